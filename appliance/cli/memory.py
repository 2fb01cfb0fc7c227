"""`appliance memory`: who is in memory, and why."""

import json
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from appliance.cli.connection import Connection, connected
from appliance.terminal import screen

if TYPE_CHECKING:
    from appliance.wire.box import MemoryShape


@connected
def memory(
    box: Connection,
    watch: Annotated[bool, typer.Option("--watch", help="Go on until Ctrl-C.")] = False,
    every_s: Annotated[float, typer.Option("--every-s", help="Seconds between two looks of --watch.", min=0.1)] = 1.0,
) -> None:
    """Show the memory budget: what takes it, and why.

    A row is a build that an application uses; its letter stands for it in the bar. An application inside its window is
    expected soon and keeps its place; one outside may have to make room, unless requests use it (pins). A time below
    zero in `expected` is overdue. With --json and --watch one JSON object a line.

    [dim]$[/dim] appliance memory
    [dim]$[/dim] appliance memory --watch
    [dim]$[/dim] appliance memory --json | jq '.builds[] | [.variant, .bytes]'
    """
    with box.client() as client:
        if not watch:
            now = client.memory()
            screen.show_json(now) if box.as_json else _print(now)
            return
        from appliance.clock import pause_s

        if box.as_json or not sys.stdout.isatty():
            while True:
                now = client.memory()
                print(json.dumps(now.model_dump(mode="json")), flush=True) if box.as_json else _print(now)
                pause_s(every_s)
        from rich.live import Live

        from appliance.cli.memory_text import picture

        with Live(console=screen.console(), auto_refresh=False) as live:
            while True:
                live.update(picture(client.memory(), live.console.width), refresh=True)
                pause_s(every_s)


def _print(now: "MemoryShape") -> None:
    from appliance.cli.memory_text import picture

    console = screen.console()
    console.print(picture(now, console.width))
    sys.stdout.flush()
