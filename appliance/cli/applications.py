"""`appliance applications`: registered uses of models, with their promises."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from appliance.cli.connection import Connection, connected
from appliance.domain.catalogue import Late, Prefer, Unverified, Verify
from appliance.terminal import screen

if TYPE_CHECKING:
    from appliance.wire.catalogue import ApplicationShape

app = typer.Typer(
    no_args_is_help=True, help="Applications: uses of models, with a promised latency and a least quality."
)


@app.command("list")
@connected
def list_applications(box: Connection) -> None:
    """List the applications that the key may call.

    [dim]$[/dim] appliance applications list --tenant harbour
    """
    columns = ("application", "tenant", "model", "task", "SLO>", "least", "weight>", "available", "first choice")
    with box.client() as client:
        box.table(
            client.applications(),
            columns,
            lambda a: (
                a.name,
                a.tenant + (" (shared)" if a.shared else ""),
                a.model,
                a.task or "",
                "–" if a.latency_slo_ms is None else f"{a.latency_slo_ms:g} ms",
                f"{a.accuracy_min:g} ({a.accuracy_meaning})" if a.accuracy_min else "–",
                f"{a.weight:g}",
                "yes" if a.available else "no",
                a.variants[0] if a.variants else "–",
            ),
            ("application", "importing a model makes one of the same name."),
        )


@app.command("show")
@connected
def show_application(box: Connection, name: str) -> None:
    """Show an application: its promises, whether they are kept, and the variants that would serve it.

    [dim]$[/dim] appliance applications show door --tenant harbour
    """
    from appliance.cli.promise_text import promise_lines

    with box.client() as client:
        application = client.application(name)
        promises = client.promises(application=name)
    first, slo, *rest = _lines(application)
    lines = (first, slo, *promise_lines(promises), *rest)
    box.tell({**application.model_dump(mode="json"), "promises": promises}, lines)
    if not box.as_json:
        _warn(application)


@app.command("create")
@connected
def create_application(
    box: Connection,
    name: str,
    model: Annotated[str, typer.Option(help="One of the tenant's models, or a shared one.")],
    latency_slo_ms: Annotated[
        float | None, typer.Option(help="Promised latency, also the deadline of a request.", min=0.001)
    ] = None,
    accuracy_min: Annotated[
        float, typer.Option(help="Least accuracy, or agreement where there are no labels.", min=0, max=1)
    ] = 0.0,
    weight: Annotated[float, typer.Option(help="Part of the tenant's share of the box.", min=0.001)] = 1.0,
    shared: Annotated[bool, typer.Option("--shared", help="Callable by every tenant.")] = False,
    late: Annotated[Late, typer.Option(help="What becomes of a request at its deadline.")] = Late.DROP,
    prefer: Annotated[Prefer, typer.Option(help="Which variant answers a request that names none.")] = Prefer.BALANCED,
    unverified: Annotated[
        Unverified, typer.Option(help="Whether the box may choose a variant that only noise was tried on.")
    ] = Unverified.NEVER,
    verify: Annotated[
        Verify, typer.Option(help="Whether unverified variants are tried on its requests while the box is idle.")
    ] = Verify.ON,
    strict: Annotated[bool, typer.Option("--strict", help="Refuse an SLO that no variant keeps.")] = False,
) -> None:
    """Register another use of a model, with promises of its own.

    [dim]$[/dim] appliance applications create door --model centerface --latency-slo-ms 100 --accuracy-min 0.9
    """
    from appliance.wire.catalogue import ApplicationOrder

    order = ApplicationOrder(
        name=name,
        model=model,
        latency_slo_ms=latency_slo_ms,
        accuracy_min=accuracy_min,
        weight=weight,
        shared=shared,
        late=late,
        prefer=prefer,
        unverified=unverified,
        verify=verify,
    )
    with box.client() as client:
        application = client.create_application(order, strict=strict)
    told = f"application {application.name} is made; call it with: appliance predict {application.name} FILE"
    box.tell(application, told)
    if not box.as_json:
        _warn(application)


@app.command("change")
@connected
def change_application(
    box: Connection,
    name: str,
    slo_ms: Annotated[
        float | None, typer.Option("--slo-ms", help="Promised latency, also the deadline of a request.", min=0.001)
    ] = None,
    no_slo: Annotated[bool, typer.Option("--no-slo", help="Promise no latency any more.")] = False,
    accuracy_min: Annotated[
        float | None, typer.Option(help="Least accuracy, or agreement where there are no labels.", min=0, max=1)
    ] = None,
    weight: Annotated[float | None, typer.Option(help="Part of the tenant's share of the box.", min=0.001)] = None,
    model: Annotated[str | None, typer.Option(help="Swap the network behind the name.")] = None,
    shared: Annotated[bool | None, typer.Option("--shared/--not-shared", help="Callable by every tenant.")] = None,
    late: Annotated[Late | None, typer.Option(help="What becomes of a request at its deadline.")] = None,
    prefer: Annotated[Prefer | None, typer.Option(help="Which variant answers a request that names none.")] = None,
    unverified: Annotated[
        Unverified | None, typer.Option(help="Whether the box may choose a variant that only noise was tried on.")
    ] = None,
    verify: Annotated[
        Verify | None, typer.Option(help="Whether unverified variants are tried on its requests while the box is idle.")
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Change nothing where the box would warn.")] = False,
) -> None:
    """Change an application of a running box; what is not named stays. It holds from the next request on.

    Says what of it the box cannot keep, for example a latency that no variant reaches.

    [dim]$[/dim] appliance applications change door --slo-ms 50 --weight 2
    [dim]$[/dim] appliance applications change door --no-slo
    """
    from appliance.wire.catalogue import ApplicationChange

    if no_slo and slo_ms is not None:
        raise typer.BadParameter("give either --slo-ms or --no-slo")
    wanted = {
        "latency_slo_ms": slo_ms,
        "accuracy_min": accuracy_min,
        "weight": weight,
        "model": model,
        "shared": shared,
        "late": late,
        "prefer": prefer,
        "unverified": unverified,
        "verify": verify,
    }
    fields: dict[str, object] = {field: value for field, value in wanted.items() if value is not None}
    if no_slo:
        fields["latency_slo_ms"] = None
    if not fields:
        raise typer.BadParameter("say what to change")
    with box.client() as client:
        application = client.change_application(name, ApplicationChange.model_validate(fields), strict=strict)
    _warn(application)
    box.tell(application, f"application {application.name} is changed")


@app.command("delete")
@connected
def delete_application(box: Connection, name: str) -> None:
    """Delete an application; its model stays.

    [dim]$[/dim] appliance applications delete door
    """
    with box.client() as client:
        client.delete_application(name)
    print(f"application {name} is deleted")


def _lines(application: "ApplicationShape") -> Iterator[str]:
    """An application as it stands, for a person."""
    yield f"{application.tenant}/{application.name}   {application.model}   {application.task or ''}"
    yield f"  SLO           {_slo(application)}"
    yield f"  at least      {application.accuracy_min:g} ({application.accuracy_meaning})"
    yield f"  weight        {application.weight:g}"
    if application.late is Late.RUN:
        yield "  late          answered whenever it is done"
    yield f"  prefers       {application.prefer.value}"
    if application.unverified is Unverified.ALLOW:
        yield "  unverified    allowed: variants that only noise was tried on may answer"
    if application.verify is Verify.OFF:
        yield "  verify        off: unverified variants are not tried on its requests"
    yield f"  variants      {', '.join(application.variants) or 'none yet'}"
    if application.choice:
        yield f"                {application.choice}"
    if not application.available:
        yield "  not available"


def _slo(application: "ApplicationShape") -> str:
    if application.latency_slo_ms is None:
        return "none"
    if application.slo_kept is None:
        return f"{application.latency_slo_ms:g} ms, not asked yet"
    asked = screen.count(application.slo_requests, "request")
    return f"{application.latency_slo_ms:g} ms, kept for {100 * application.slo_kept:.1f} % of {asked}"


def _warn(application: "ApplicationShape") -> None:
    for warning in application.warnings:
        screen.say(f"warning: {warning.detail}")
