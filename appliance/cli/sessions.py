"""`appliance sessions`: devices that stream, what they are promised, and what becomes of it."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from appliance.cli.connection import Connection, connected
from appliance.domain.errors.sessions import DROPPED
from appliance.terminal import screen

if TYPE_CHECKING:
    from appliance.wire.sessions import SessionShape

Id = Annotated[str, typer.Argument(metavar="SESSION")]
app = typer.Typer(
    no_args_is_help=True, help="Sessions: devices that stream, what they are promised, and what becomes of it."
)


@app.command("list")
@connected
def list_sessions(box: Connection) -> None:
    """List the sessions of the tenant, and those that ended within the last minute.

    [dim]$[/dim] appliance sessions list --tenant harbour
    """
    columns = ("session", "name", "of", "state", "promise", "kept>", "sent>", "in time>", "variant", "why")
    hint = "be a device with: appliance stream SOURCE --application A --slo-ms N"
    with box.client() as client:
        box.table(client.sessions(), columns, list_row, ("session", hint))


@app.command("show")
@connected
def show_session(box: Connection, session: Id) -> None:
    """Show a session: its promise, its plan, what became of its frames, and its link.

    [dim]$[/dim] appliance sessions show 5f0c2a9be1d04377 --tenant harbour
    """
    with box.client() as client:
        found = client.session(session)
    box.tell(found, status_lines(found))


@app.command("end")
@connected
def end_session(box: Connection, session: Id) -> None:
    """End a session: its promise is given up at once, and the device has to ask for another one.

    [dim]$[/dim] appliance sessions end 5f0c2a9be1d04377
    """
    with box.client() as client:
        client.end_session(session)
    print(f"session {session} has ended")


def list_row(session: "SessionShape") -> tuple[str, ...]:
    """As the columns of `appliance sessions list`."""
    return (
        session.id,
        session.name,
        session.application or session.pipeline or "",
        "paused" if session.paused else session.state,
        promise_text(session),
        f"{session.kept} of {session.windows}" if session.windows else "–",
        f"{session.sent} of {session.captured}",
        f"{session.answered / session.sent:.1%}" if session.sent else "–",
        session.plan.variant if session.plan else "",
        session.reason,
    )


def promise_text(session: "SessionShape") -> str:
    """What it was promised, in a few words."""
    promise = session.promise
    if promise.kind == "latency":
        floor = "" if promise.accuracy_min is None else f", {session.accuracy_meaning} {promise.accuracy_min:.3g}"
        return f"{promise.rate_rps:.3g}/s within {promise.slo_ms:g} ms{floor}"
    return f"drop ≤ {promise.drop_max:.3g} against {promise.reference.replace('_', ' ')}"


def status_lines(session: "SessionShape") -> Iterator[str]:
    """A session as it stands, for a person."""
    of = f"application {session.application}" if session.pipeline is None else f"pipeline {session.pipeline}"
    why = f" ({session.reason})" if session.reason else ""
    state = "paused" if session.paused else session.state
    yield f"{session.tenant}/{session.id} {session.name}".rstrip() + f"   {of}   {state}{why}"
    share = ", beyond the share of its tenant" if session.beyond_share else ""
    yield f"  promise   {promise_text(session)}, of {session.fps:g} frames a second{share}"
    yield f"  kept      {session.kept} of {screen.count(session.windows, 'window')}"
    plan = session.plan
    if plan is None:
        yield "  plan      none"
    else:
        what = plan.variant or ", ".join(f"{one.stage} {one.variant or '–'}" for one in plan.stages or ())
        size = "" if plan.size is None else f", {plan.size} pixels"
        often = f"{screen.count(len(plan.frames), 'frame')} by number" if plan.frames else _every(plan.interval)
        accuracy = "" if plan.accuracy is None else f", {session.accuracy_meaning} {plan.accuracy:.3f}"
        yield f"  plan {plan.number:<4} {what}{size}, {often}{accuracy}"
    causes = "; ".join(f"{count}: {DROPPED.get(cause, cause)}" for cause, count in sorted(session.drops.items()))
    yield (
        f"  frames    {session.captured} captured, {session.skipped} skipped, {session.sent} sent: "
        f"{session.answered} in time, {session.late} late, {session.dropped} dropped{causes and f' ({causes})'}, "
        f"{session.lost} lost"
    )
    rtt = f", {screen.milliseconds(session.rtt_ms)} ms there and back" if session.rtt_ms else ""
    yield f"  link      {session.uplink_mbps:.3g} Mbit/s up{rtt}"
    if session.drop is not None:
        yield f"  drop      {session.drop:.3f} in the last window"


def _every(interval: float) -> str:
    return "every frame" if interval <= 1 else f"one frame of {interval:g}"
