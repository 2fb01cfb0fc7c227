"""`appliance backups`: backups that lie on a running box."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from appliance.cli.connection import Connection, connected
from appliance.terminal import screen
from appliance.terminal.failure import CommandFailed

if TYPE_CHECKING:
    from appliance.client import Client
    from appliance.wire.backups import BackupShape

app = typer.Typer(no_args_is_help=True, help="Backups on the box: made every night, and when you ask for one.")
_LOOK_EVERY_S = 0.5
Name = Annotated[str, typer.Argument(help="As the list shows it.")]


@app.command("list")
@connected
def list_backups(box: Connection) -> None:
    """List the backups that lie on the box, newest first.

    [dim]$[/dim] appliance backups list
    """
    with box.client() as client:
        box.table(
            client.backups(),
            ("name", "made (UTC)", "state", "size>"),
            lambda one: (one.name, f"{one.created_at:%Y-%m-%d %H:%M}", _state(one), screen.size(one.size_bytes)),
            "There is no backup on the box.",
        )


@app.command("create")
@connected
def create_backup(box: Connection) -> None:
    """Make a backup on the box, and wait until it is there.

    [dim]$[/dim] appliance backups create
    """
    from appliance.clock import pause_s

    with box.client() as client:
        made = client.make_backup()
        while made.state == "making":
            pause_s(_LOOK_EVERY_S)
            made = _found(client, made.name)
    if made.state == "failed":
        raise CommandFailed(f"{made.name} was not made: {made.error}")
    box.tell(made, f"{made.name}, {screen.size(made.size_bytes)}")


@app.command("download")
@connected
def download_backup(
    box: Connection,
    name: Name,
    file: Annotated[Path | None, typer.Argument(help="Where to; must not exist. Without it: its name, here.")] = None,
) -> None:
    """Fetch a backup from the box. Its keys are digests; its models are there as they are.

    [dim]$[/dim] appliance backups download nightly-20260101T030500Z.tar /mnt/usb/box.tar
    """
    target = file or Path(name)
    if target.exists():
        raise CommandFailed(f"{target} exists already; name another file")
    with box.client() as client:
        client.download_backup(name, target)
    print(f"{name}: written to {target}, {screen.size(target.stat().st_size)}")


@app.command("delete")
@connected
def delete_backup(box: Connection, name: Name) -> None:
    """Delete a backup from the box.

    [dim]$[/dim] appliance backups delete nightly-20260101T030500Z.tar
    """
    with box.client() as client:
        client.delete_backup(name)
    print(f"backup {name} is deleted")


def _found(client: "Client", name: str) -> "BackupShape":
    """Raises: CommandFailed where somebody has deleted it."""
    for one in client.backups():
        if one.name == name:
            return one
    raise CommandFailed(f"backup {name} is gone")


def _state(one: "BackupShape") -> str:
    if one.state == "making":
        return f"making, {one.percent:.0f} %"
    return f"failed: {one.error}" if one.state == "failed" else str(one.state)
