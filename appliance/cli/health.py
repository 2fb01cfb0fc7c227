"""`appliance health`: what is wrong with the box and its promises."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from appliance.cli.connection import Connection, connected
from appliance.terminal import screen

if TYPE_CHECKING:
    from appliance.wire.health import HealthShape


@connected
def health(box: Connection) -> None:
    """Show what is wrong with the box and with the promises that it made, the worst first, and what to do.

    An admin's key is shown all of it. A tenant's key is shown the tenant's own conditions, and those of the box without
    figures.

    [dim]$[/dim] appliance health
    """
    with box.client() as client:
        found = client.health()
    box.tell(found, in_words(found))


def in_words(found: "HealthShape") -> Iterator[str]:
    """Return the lines for a person."""
    if not found.conditions:
        yield "good: everything is in order"
        return
    yield f"{found.status}: {screen.count(found.conditions_in_all, 'condition')}"
    for one in found.conditions:
        yield f"  {one.severity:<5} {one.text}"
        if one.detail:
            yield f"        {one.detail}"
        yield f"        {one.action} (since {one.since:%Y-%m-%d %H:%M} UTC)"
    if found.conditions_in_all > len(found.conditions):
        yield f"  and {found.conditions_in_all - len(found.conditions)} more"
