"""`appliance backup` and `appliance restore`: a state folder in one file.

Both work on files, with or without a running box.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from appliance.terminal import screen

if TYPE_CHECKING:
    from appliance.modelstore.store.backup import Backup

State = Annotated[Path, typer.Option(help="State folder.", envvar="APPLIANCE_STATE_DIR", file_okay=False)]
Json = Annotated[bool, typer.Option("--json", help="Answer with JSON.")]


def backup(
    file: Annotated[Path, typer.Argument(help="The backup to write; must not exist.")],
    state: State = Path("state"),
    as_json: Json = False,
) -> None:
    """Write everything of a box that cannot be made again to one file: database, models, admin key, TLS files.

    The box may go on serving meanwhile. Whoever has the file can open the box, so only you can read it; keep it like a
    key.

    [dim]$[/dim] appliance backup /mnt/usb/box.tar --state /var/lib/appliance
    """
    from appliance.clock import SystemClock
    from appliance.modelstore.store.backup import back_up

    _tell("written to", file, back_up(state.absolute(), file.absolute(), SystemClock().wall_now()), as_json)


def restore(
    file: Annotated[Path, typer.Argument(help="A backup.", exists=True, dir_okay=False)],
    state: State = Path("state"),
    as_json: Json = False,
) -> None:
    """Make a state folder from a backup; every file is checked first. The folder must not exist, or be empty.

    The restored box prepares its models for this machine at its first start.

    [dim]$[/dim] appliance restore /mnt/usb/box.tar --state /var/lib/appliance
    [dim]$[/dim] appliance serve --state /var/lib/appliance
    """
    from appliance.modelstore.store.backup import restore as restore_now

    _tell("restored to", state, restore_now(file.absolute(), state.absolute()), as_json)


def _tell(what: str, where: Path, done: "Backup", as_json: bool) -> None:
    if as_json:
        screen.show_json(
            {
                "created_at": done.created_at,
                "models": done.models,
                "tenants": done.tenants,
                "contents": done.contents,
                "size_bytes": done.size_bytes,
            }
        )
        return
    made = f"{done.created_at:%Y-%m-%d %H:%M} UTC"
    whose = f"{screen.count(done.models, 'model')} of {screen.count(done.tenants, 'tenant')}"
    print(f"{whose}, {screen.size(done.size_bytes)}, as of {made}: {what} {where}")
