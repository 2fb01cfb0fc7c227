"""`appliance audit`: who changed what, and with which key."""

from typing import TYPE_CHECKING, Annotated

import typer

from appliance.cli.connection import Connection, connected
from appliance.terminal import screen

if TYPE_CHECKING:
    from appliance.wire.audit import AuditShape

LIST_MAX = 20


@connected
def audit(
    box: Connection, limit: Annotated[int, typer.Option(help="Most entries, the newest first.", min=1)] = LIST_MAX
) -> None:
    """List changes, sign-ins and refusals with their time, key and address, newest first. An admin key sees all of
    them, a tenant's key those that concerned the tenant.

    [dim]$[/dim] appliance audit --limit 100
    """
    from itertools import islice

    columns = ("id>", "at (UTC)", "tenant", "what", "of what", "who", "from")
    with box.client() as client:
        box.table(islice(client.audit(), limit), columns, _row, "Nothing was changed yet.")


def _row(one: "AuditShape") -> tuple[object, ...]:
    refused = f", refused {screen.count(one.times, 'time')}" if one.outcome == "refused" else ""
    named = one.path.removeprefix("/v1/") + (f" {one.subject}" if one.subject else "")
    who = "" if one.actor is None else f"{one.actor.role} {one.actor.label or one.actor.key_id or ''}".strip()
    return one.id, f"{one.at:%Y-%m-%d %H:%M:%S}", one.tenant, one.action + refused, named, who, one.address or ""
