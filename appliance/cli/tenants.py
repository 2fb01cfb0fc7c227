"""`appliance tenants`: who pays, and what they may use."""

from enum import StrEnum
from typing import Annotated

import typer

from appliance.cli.connection import Connection, connected
from appliance.domain.isolation import Isolation
from appliance.domain.spans import Span
from appliance.terminal import screen

app = typer.Typer(no_args_is_help=True, help="Tenants, the owners of models, applications and keys.")

_HEADS = (
    "tenant",
    "requests>",
    "processor>",
    "mean memory>",
    "on disk>",
    "requests/s>",
    "concurrent>",
    "disk quota>",
    "guarantee>",
    "ceiling>",
    "in memory>",
    "weight>",
    "isolation",
)


class Sort(StrEnum):
    """Orders of the list."""

    NAME = "name"
    REQUESTS = "requests"
    PROCESSOR = "processor"
    MEMORY = "memory"
    STORED = "stored"

    @property
    def field(self) -> str:
        """Return the name of the field in the rows of the box."""
        return {"processor": "processor_s", "memory": "memory_bytes", "stored": "stored_bytes"}.get(self, self)


Rate = Annotated[float | None, typer.Option("--requests-per-s", help="Most requests a second.", min=0.001)]
Concurrent = Annotated[int | None, typer.Option("--concurrent", help="Most requests under way at once.", min=1)]
Guarantee = Annotated[
    float | None,
    typer.Option("--memory-guarantee-mb", help="Megabytes of memory that other tenants' models cannot take.", min=0),
]
Ceiling = Annotated[
    float | None, typer.Option("--memory-ceiling-mb", help="Most megabytes of memory for its models.", min=0.000001)
]
Share = Annotated[
    float | None, typer.Option("--memory-share", help="The same as a share of the memory budget.", min=0.001, max=1)
]
Weight = Annotated[
    float | None,
    typer.Option("--processor-weight", help="Weight of the tenant when processor time is shared; 1.", min=0.001),
]
Isolated = Annotated[
    Isolation | None,
    typer.Option(
        "--isolation",
        help="Which of its models run in a process of their own: those not shown to be harmless, all, or none.",
    ),
]
Stored = Annotated[float | None, typer.Option("--stored-mb", help="Most megabytes of models on disk.", min=0)]


@app.command("list")
@connected
def list_tenants(
    box: Connection,
    over: Annotated[Span, typer.Option(help="Time over which use is added up.")] = Span.DAY,
    sort: Annotated[Sort, typer.Option(help="Order: by name, or by use, most first.")] = Sort.NAME,
) -> None:
    """List the tenants with what they used, their quotas, and the memory that their models take now.

    Requests are all that were sent; each item of a pipeline's stage is one. Processor time is that of their runs, and
    of a run that tenants share the part that each had. Memory is the mean over the time.

    [dim]$[/dim] appliance tenants list
    [dim]$[/dim] appliance tenants list --over month --sort processor
    """
    with box.client() as client:
        known = {tenant.name: tenant for tenant in client.tenants()}
        holdings = {holding.tenant: holding for holding in client.memory().tenants}
        used = list(client.tenants_used(over=over.value, sort=sort.field))
    if box.as_json:
        listed = [{**known[one.name].model_dump(mode="json"), "used": one} for one in used if one.name in known]
        screen.show_json(listed)
        return
    rows = []
    for one in used:
        if (tenant := known.get(one.name)) is None:  # made meanwhile
            continue
        quota, holding = tenant.quota, holdings.get(tenant.name)
        limits = (_limit(quota.requests_per_s), _limit(quota.concurrent_requests), screen.size(quota.stored_bytes))
        memory: tuple[int | None, ...] = (None, None, None)
        if holding is not None:
            memory = (holding.guarantee_bytes or None, holding.ceiling_bytes, holding.held_bytes)
        processing = (f"{quota.processor_weight:g}", quota.isolation or "–")
        use = (one.requests, f"{one.processor_s:.1f} s", screen.size(one.memory_bytes), screen.size(one.stored_bytes))
        rows.append((tenant.name, *use, *limits, *map(screen.size, memory), *processing))
    screen.show_table(_HEADS, rows, "There is no tenant.")


@app.command("create")
@connected
def create_tenant(
    box: Connection,
    name: Annotated[str, typer.Argument(help="a-z 0-9 . _ - and starting with a letter or digit.")],
    requests_per_s: Rate = None,
    concurrent: Concurrent = None,
    memory_guarantee_mb: Guarantee = None,
    memory_ceiling_mb: Ceiling = None,
    memory_share: Share = None,
    stored_mb: Stored = None,
    processor_weight: Weight = None,
    isolation: Isolated = None,
) -> None:
    """Make a tenant; without limits unless you name some. Needs an admin key.

    Next: a key for its developer.

    [dim]$[/dim] appliance tenants create harbour --requests-per-s 50 --memory-guarantee-mb 200
    [dim]$[/dim] appliance keys create harbour --label "the harbour's developers"
    """
    from appliance.wire.access import QuotaShape

    named = _named(
        requests_per_s,
        concurrent,
        memory_guarantee_mb,
        memory_ceiling_mb,
        memory_share,
        stored_mb,
        processor_weight,
        isolation,
    )
    quota = QuotaShape.model_validate(named)
    with box.client() as client:
        tenant = client.create_tenant(name, quota)
    box.tell(tenant, f"tenant {tenant.name} is made; give it a key with: appliance keys create {tenant.name}")


@app.command("change")
@connected
def change_tenant(
    box: Connection,
    name: str,
    requests_per_s: Rate = None,
    concurrent: Concurrent = None,
    memory_guarantee_mb: Guarantee = None,
    memory_ceiling_mb: Ceiling = None,
    memory_share: Share = None,
    stored_mb: Stored = None,
    processor_weight: Weight = None,
    isolation: Isolated = None,
    unlimited: Annotated[
        bool,
        typer.Option("--unlimited", help="Begin with no limit, no guarantee, and weight and isolation of the box."),
    ] = False,
) -> None:
    """Change limits of a running box's tenant at once; those that are not named stay. Needs an admin key.

    Below a lowered memory ceiling its models leave, those in use with their last running request.

    [dim]$[/dim] appliance tenants change harbour --memory-ceiling-mb 400
    [dim]$[/dim] appliance tenants change harbour --processor-weight 3 --isolation process
    [dim]$[/dim] appliance tenants change harbour --unlimited
    """
    from appliance.wire.access import QuotaShape

    named = _named(
        requests_per_s,
        concurrent,
        memory_guarantee_mb,
        memory_ceiling_mb,
        memory_share,
        stored_mb,
        processor_weight,
        isolation,
    )
    with box.client() as client:
        before = QuotaShape() if unlimited else client.tenant(name).quota
        tenant = client.change_tenant(name, before.model_copy(update=named))
    box.tell(tenant, f"tenant {tenant.name} is changed")


@app.command("delete")
@connected
def delete_tenant(box: Connection, name: str) -> None:
    """Delete a tenant with its keys and applications; its models must be deleted first. Needs an admin key.

    [dim]$[/dim] appliance tenants delete harbour
    """
    with box.client() as client:
        client.delete_tenant(name)
    print(f"tenant {name} is deleted")


def _named(
    requests_per_s: float | None,
    concurrent: int | None,
    memory_guarantee_mb: float | None,
    memory_ceiling_mb: float | None,
    memory_share: float | None,
    stored_mb: float | None,
    processor_weight: float | None,
    isolation: Isolation | None,
) -> dict[str, float | str]:
    """The fields of a quota that were named."""
    fields = {
        "requests_per_s": requests_per_s,
        "concurrent_requests": concurrent,
        "memory_guarantee_bytes": _bytes(memory_guarantee_mb),
        "memory_ceiling_bytes": _bytes(memory_ceiling_mb),
        "memory_share": memory_share,
        "stored_bytes": _bytes(stored_mb),
        "processor_weight": processor_weight,
        "isolation": isolation,
    }
    return {name: value for name, value in fields.items() if value is not None}


def _bytes(megabytes: float | None) -> int | None:
    return None if megabytes is None else int(megabytes * 1e6)


def _limit(value: float | None) -> str:
    return "–" if value is None else f"{value:g}"
