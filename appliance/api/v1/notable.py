"""Why was that answer slow, or by a smaller variant? The latest notable requests of an application, each with the
decision behind it.
"""

import datetime
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from fastapi import APIRouter
from starlette.responses import Response

from appliance.api.auth.keyring import Principal
from appliance.api.auth.named import callable_application
from appliance.api.http.documented import problems
from appliance.api.v1.applications import ApplicationName
from appliance.api.v1.decisions import shape_of as decision_shape
from appliance.api.v1.deps import Member, TheBox
from appliance.api.v1.pages import document, written
from appliance.clock import NS_PER_MS
from appliance.domain.decisions import DecisionRecord
from appliance.domain.errors import Forbidden, UnknownApplication
from appliance.domain.notable import Cause, NotableRequest
from appliance.wire.notable import NotableShape, RequestTimingsShape

router = APIRouter(prefix="/v1/applications", tags=["applications"])

_DECISIONS_MAX = 300
"""The latest ones that concerned the application, among which those behind its requests are looked for."""
_SLACK = datetime.timedelta(seconds=1)
_BEHIND: Mapping[Cause, tuple[tuple[str, ...], datetime.timedelta]] = {
    Cause.FAILED: (("drop", "admission", "residency"), datetime.timedelta(seconds=60)),
    Cause.COLD: (("residency",), datetime.timedelta(seconds=60)),
    Cause.SMALLER: (("residency", "selection"), datetime.timedelta.max),
    Cause.LATE: (("drop", "residency"), datetime.timedelta(seconds=10)),
}
"""Kinds of decisions that may be behind a cause, and how long before the request they may have been made. Refusals are
stored once a minute.
"""


@router.get(
    "/{application}/requests",
    summary="Why was that answer slow?",
    response_model=list[NotableShape],
    responses=problems(Forbidden, UnknownApplication),
)
async def show_requests(application: ApplicationName, box: TheBox, principal: Member) -> Response:
    """The latest requests that were late, cold, failed or answered by another variant than the first choice, newest
    first, and samples of the others. Kept in memory, without anything that they carried.

    A tenant sees its own requests, an admin all of the application's.
    """
    found = callable_application(box.catalogue, principal, application)
    kept = [] if box.telemetry.notable is None else box.telemetry.notable.of(found.id)
    seen = [one for one in kept if principal.is_admin or one.kind.tenant == principal.tenant]
    tenant = None if principal.is_admin else principal.tenant
    read = partial(box.store.decisions.page, tenant, application=found.id, limit=_DECISIONS_MAX)
    decisions = await box.turns.alone(principal.tenant, read) if seen else ()
    zero = box.clock.wall_now() - datetime.timedelta(microseconds=box.clock.now_ns() / 1000)
    rows = (_shape(one, zero, decisions, principal) for one in seen)
    return document(await written(box.turns, principal.tenant, rows))


def _shape(
    one: NotableRequest, zero: datetime.datetime, decisions: Sequence[DecisionRecord], principal: Principal
) -> NotableShape:
    """`zero` is the civil time at which the monotonic clock stood at zero."""
    at = zero + datetime.timedelta(microseconds=one.ended_ns / 1000)
    behind = decision_behind(one.kind.causes, at, decisions)
    return NotableShape(
        at=at,
        causes=list(one.kind.causes),
        id=one.id,
        tenant=one.kind.tenant if principal.is_admin else None,
        variant=one.kind.variant or None,
        best=one.kind.best or None,
        timings_ms=RequestTimingsShape(
            decode=one.spent.decode_ns / NS_PER_MS,
            queue=one.spent.queue_ns / NS_PER_MS,
            load=one.spent.load_ns / NS_PER_MS,
            wake=one.spent.wake_ns / NS_PER_MS,
            compute=one.spent.compute_ns / NS_PER_MS,
            total=(one.ended_ns - one.arrival_ns) / NS_PER_MS,
        ),
        slo_ms=one.slo_ms,
        deadline_ms=None if one.deadline_ns is None else (one.deadline_ns - one.arrival_ns) / NS_PER_MS,
        problem=None if one.kind.problem is None else one.kind.problem.slug,
        why="; ".join(reasons(one)),
        decision=None if behind is None else behind.id,
        decision_reason=None if behind is None else decision_shape(behind, principal).reason,
        times=one.times,
    )


def decision_behind(
    causes: Sequence[Cause], at: datetime.datetime, decisions: Sequence[DecisionRecord]
) -> DecisionRecord | None:
    """The latest of a kind that may be behind one of the causes, made before a request was over; `decisions` are newest
    first. Behind a cold start is what somebody asked for: while that loads, the box may decide for itself, in vain.
    """
    for cause in causes:
        kinds, before = _BEHIND.get(cause, ((), datetime.timedelta()))
        fitting = [one for one in decisions if one.kind in kinds and one.at <= at + _SLACK and at - one.at <= before]
        asked = [one for one in fitting if one.application is not None] if cause is Cause.COLD else []
        if fitting:
            return (asked or fitting)[0]
    return None


def reasons(one: NotableRequest) -> Iterator[str]:
    """Why it is notable, in words."""
    total_ms = (one.ended_ns - one.arrival_ns) / NS_PER_MS
    if Cause.FAILED in one.kind.causes:
        yield one.detail or "it failed inside the box; the log has the details"
        return
    if Cause.COLD in one.kind.causes:
        done, took_ns = ("woken", one.spent.wake_ns) if one.spent.wake_ns else ("loaded", one.spent.load_ns)
        yield f"no variant was in memory: {one.kind.variant} was {done} first ({_ms(took_ns)})"
    if Cause.SMALLER in one.kind.causes:
        yield f"{one.kind.variant} answered, for {one.kind.best} was not in memory, or found no room"
    if Cause.LATE in one.kind.causes:
        parts = {
            "decoding": one.spent.decode_ns,
            "waiting": one.spent.queue_ns,
            "loading": one.spent.load_ns + one.spent.wake_ns,
        }
        parts["computing"] = one.spent.compute_ns
        most = max(parts, key=lambda name: parts[name])
        allowed = one.slo_ms
        if allowed is None and one.deadline_ns is not None:
            allowed = (one.deadline_ns - one.arrival_ns) / NS_PER_MS
        yield f"{total_ms:.3g} ms in place of {allowed or 0:.3g}, most of it {most} ({_ms(parts[most])})"
    if Cause.SAMPLE in one.kind.causes:
        yield "nothing was amiss"


def _ms(count_ns: int) -> str:
    return f"{count_ns / NS_PER_MS:.3g} ms"
