"""`appliance events`: what the box does, as it does it."""

import json
from typing import Annotated, Any

import typer

from appliance.cli.connection import Connection, connected


@connected
def events(
    box: Connection,
    after: Annotated[
        int | None, typer.Option(help="Begin with the recent events above this id; 0: all that are kept.")
    ] = None,
    kind: Annotated[
        list[str] | None,
        typer.Option(help="Only events whose name is this, or begins with this word. May be given several times."),
    ] = None,
) -> None:
    """Follow the box's events until Ctrl-C: loads, evictions, imports, keys, trouble.

    A tenant's key shows that tenant's events, an admin key all of them. With --json one JSON object a line.

    [dim]$[/dim] appliance events
    [dim]$[/dim] appliance events --after 0 --json | jq .event
    [dim]$[/dim] appliance events --kind variant --kind "job progressed"
    """
    with box.client() as client:
        for event in client.events(after=after, kinds=kind or ()):
            print(json.dumps(event.model_dump(mode="json")) if box.as_json else line_of(event), flush=True)


def line_of(event: Any) -> str:
    """Time, what happened with its severity where that is more than news, and the facts."""
    facts = "  ".join(f"{name}={value}" for name, value in event.facts.items() if value not in (None, ""))
    mark = "" if event.severity == "info" else f"{event.severity.upper()}: "
    return f"{event.at[11:19]}  {mark + event.event:<22} {facts}"
