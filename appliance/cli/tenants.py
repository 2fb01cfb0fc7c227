"""`appliance tenants`: who pays, and what they may use."""

from typing import Annotated

import typer

from appliance.cli import screen
from appliance.cli.connection import Connection, connected

app = typer.Typer(no_args_is_help=True, help="Tenants: who owns models, applications and keys.")


@app.command("list")
@connected
def list_tenants(box: Connection) -> None:
    """List the tenants with their quotas.

    \b
    [dim]$[/dim] appliance tenants list
    """
    with box.client() as client:
        tenants = list(client.tenants())
    if box.as_json:
        screen.show_json([tenant.model_dump(mode="json") for tenant in tenants])
        return
    rows = [
        (
            tenant.name,
            _limit(tenant.quota.requests_per_s),
            _limit(tenant.quota.concurrent_requests),
            _limit(tenant.quota.memory_share),
            screen.size(tenant.quota.stored_bytes),
        )
        for tenant in tenants
    ]
    screen.show_table(("tenant", "requests/s>", "concurrent>", "memory share>", "stored>"), rows, "There is no tenant.")


@app.command("create")
@connected
def create_tenant(
    box: Connection,
    name: Annotated[str, typer.Argument(help="a-z 0-9 . _ - and starting with a letter or digit.")],
    requests_per_s: Annotated[float | None, typer.Option(help="Most requests a second.", min=0.001)] = None,
    concurrent: Annotated[int | None, typer.Option(help="Most requests under way at once.", min=1)] = None,
    memory_share: Annotated[
        float | None, typer.Option(help="Most of the memory budget, 0 to 1.", min=0.001, max=1)
    ] = None,
    stored_mb: Annotated[float | None, typer.Option(help="Most megabytes of models on disk.", min=0)] = None,
) -> None:
    """Make a tenant; without limits unless you name some. Needs an admin key.

    Next: a key for its developer.

    \b
    [dim]$[/dim] appliance tenants create harbour --requests-per-s 50
    [dim]$[/dim] appliance keys create harbour --label "the harbour's developers"
    """
    from appliance.wire.access import QuotaShape

    quota = QuotaShape(
        requests_per_s=requests_per_s,
        concurrent_requests=concurrent,
        memory_share=memory_share,
        stored_bytes=None if stored_mb is None else int(stored_mb * 1e6),
    )
    with box.client() as client:
        tenant = client.create_tenant(name, quota)
    if box.as_json:
        screen.show_json(tenant.model_dump(mode="json"))
    else:
        print(f"tenant {tenant.name} is made; give it a key with: appliance keys create {tenant.name}")


@app.command("delete")
@connected
def delete_tenant(box: Connection, name: str) -> None:
    """Delete a tenant with its keys and applications; its models must be deleted first. Needs an admin key.

    \b
    [dim]$[/dim] appliance tenants delete harbour
    """
    with box.client() as client:
        client.delete_tenant(name)
    print(f"tenant {name} is deleted")


def _limit(value: float | None) -> str:
    return "–" if value is None else f"{value:g}"
