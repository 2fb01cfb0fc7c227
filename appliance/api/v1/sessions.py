"""Sessions of devices: promises of latency or accuracy, and plans of what to send."""

from functools import partial
from typing import Annotated

from fastapi import APIRouter, Path

from appliance.api.auth.named import callable_application, callable_pipeline
from appliance.api.box import RunningBox
from appliance.api.http.documented import problems
from appliance.api.http.routes import StrictRoute
from appliance.api.streams.sessions import own_key, session_of
from appliance.api.streams.words import plan_fields
from appliance.api.v1.deps import Caller, Cursor, EveryTenant, Limit, Summary, TheBox
from appliance.api.v1.pages import page_of_all
from appliance.domain.accuracy import points, share
from appliance.domain.errors import (
    Forbidden,
    IllegalState,
    ModelUnavailable,
    PromiseNotPossible,
    TooManySessions,
    UnknownApplication,
    UnknownPipeline,
    UnknownSession,
)
from appliance.domain.session import AccuracyPromise, LatencyPromise, Promise
from appliance.runtime.sessions.live import LiveSession
from appliance.runtime.sessions.orders import JoinOrder
from appliance.wire.sessions import (
    AccuracyPromiseShape,
    DecisionTimesShape,
    DropCurveShape,
    LatencyPromiseShape,
    SessionChange,
    SessionOrder,
    SessionPlanShape,
    SessionShape,
)
from appliance.wire.shape import Deleted, Page

router = APIRouter(prefix="/v1/sessions", tags=["sessions"], route_class=StrictRoute)

SessionId = Annotated[str, Path(max_length=64, description="Its `id`.", examples=["5f0c2a9be1d04377"])]


@router.post(
    "",
    status_code=201,
    summary="Join: ask for a promise",
    responses=problems(UnknownApplication, UnknownPipeline, ModelUnavailable, PromiseNotPossible, TooManySessions),
)
async def join_session(order: SessionOrder, box: TheBox, principal: Caller) -> SessionShape:
    """A session is one device's stay. It is promised a latency (each frame is answered within `slo_ms` of its capture)
    or an accuracy (what the device shows loses at most `drop_max`), and told what to send, and when. Its frames go to
    an `application`, or through a `pipeline`, of which there is a promise of latency only.

    A promise that cannot be kept is refused with the `cause` that binds (link, processor, memory, share) and `offers`:
    promises that can be kept, each ready to be sent as `promise`. With `wait=true` the session waits for room instead.
    """
    application = pipeline = ""
    if order.application is not None:
        application = callable_application(box.catalogue, principal, order.application).id
    elif order.pipeline is not None:
        pipeline = callable_pipeline(box.pipelines, principal, order.pipeline).pipeline.id
    link = order.link
    live = await box.sessions.join(
        JoinOrder(
            tenant=principal.tenant,
            key_id=principal.key_id,
            application_id=application,
            fps=order.fps,
            promise=promise_of(order.promise, order.fps),
            name=order.name,
            weight=order.weight,
            wait=order.wait,
            rtt_ms=None if link is None else link.rtt_ms,
            uplink_bps=None if link is None or link.uplink_mbps is None else link.uplink_mbps * 1e6,
            pipeline_id=pipeline,
        )
    )
    return shape_of(box, live)


@router.get("", summary="List sessions", responses=problems(Forbidden))
async def list_sessions(
    box: TheBox,
    principal: Caller,
    every_tenant: EveryTenant,
    summary: Summary = False,
    cursor: Cursor = "",
    limit: Limit = 100,
) -> Page[SessionShape]:
    """Those of the tenant; a device's key sees those that it began. One that has ended is shown for a minute.

    With `summary=true` there are no plans.
    """
    found = box.sessions.list(None if every_tenant else principal.tenant, own_key(principal))
    return page_of_all(found, cursor, limit, lambda live: live.id, partial(_summary_of if summary else shape_of, box))


@router.get("/{session}", summary="Show a session", responses=problems(UnknownSession))
async def show_session(session: SessionId, box: TheBox, principal: Caller) -> SessionShape:
    """Its promise, its plan, what became of its frames, and in how many windows of time the promise was kept."""
    return shape_of(box, session_of(box, principal, session))


@router.get("/{session}/plan", summary="Show what to send", responses=problems(UnknownSession, IllegalState))
async def show_plan(session: SessionId, box: TheBox, principal: Caller) -> SessionPlanShape:
    """The present plan of a session that is served; for devices without a stream."""
    live = session_of(box, principal, session)
    live.check_alive()
    box.sessions.heard(live)
    if live.plan is None:
        raise IllegalState(name=session, state=live.state.value)
    return SessionPlanShape(**plan_fields(live.plan, live, box.clock.now_ns()))


@router.patch(
    "/{session}", summary="Change a promise, or pause", responses=problems(UnknownSession, PromiseNotPossible)
)
async def change_session(session: SessionId, change: SessionChange, box: TheBox, principal: Caller) -> SessionShape:
    """Another promise, or pause and go on. Where the new promise cannot be kept the old one stays (409)."""
    live = session_of(box, principal, session)
    promise = None if change.promise is None else promise_of(change.promise, live.session.fps)
    return shape_of(box, await box.sessions.change(live, promise=promise, is_paused=change.paused))


@router.delete("/{session}", summary="Leave", responses=problems(UnknownSession))
async def end_session(session: SessionId, box: TheBox, principal: Caller) -> Deleted:
    """The session ends; its counts are shown for a minute."""
    await box.sessions.end(session_of(box, principal, session))
    return Deleted(deleted=session)


def promise_of(order: LatencyPromiseShape | AccuracyPromiseShape, fps: float) -> Promise:
    """As the runtime has it: nobody is promised more frames than the camera gives."""
    if isinstance(order, AccuracyPromiseShape):
        return AccuracyPromise(order.drop_max, order.reference)
    floor = None if order.accuracy_min is None else points(order.accuracy_min)
    return LatencyPromise(order.slo_ms, min(order.rate_rps, fps), floor)


def promise_shape(promise: Promise) -> LatencyPromiseShape | AccuracyPromiseShape:
    """As it is posted."""
    if isinstance(promise, AccuracyPromise):
        return AccuracyPromiseShape(kind="accuracy", drop_max=promise.drop_max, reference=promise.reference)
    floor = None if promise.accuracy_min is None else share(promise.accuracy_min)
    return LatencyPromiseShape(kind="latency", slo_ms=promise.slo_ms, rate_rps=promise.rate_rps, accuracy_min=floor)


def _curves_of(live: LiveSession) -> dict[str, DropCurveShape]:
    return {
        name: DropCurveShape(gap=drop.base, rate=drop.rate) for name, drop in sorted(live.curves.measured().items())
    }


def shape_of(box: RunningBox, live: LiveSession) -> SessionShape:
    """A session as it stands."""
    plan = None if live.plan is None else SessionPlanShape(**plan_fields(live.plan, live, box.clock.now_ns()))
    return _summary_of(box, live).model_copy(update={"plan": plan})


def _summary_of(box: RunningBox, live: LiveSession) -> SessionShape:
    """Without its plan."""
    session, counts = live.session, live.counts
    count, mean_ms, p99_ms = box.sessions.planning.decisions_of(live)
    return SessionShape(
        id=session.id,
        tenant=session.tenant,
        application=None if session.pipeline_id else session.target,
        pipeline=session.target if session.pipeline_id else None,
        name=session.name,
        fps=session.fps,
        weight=session.weight,
        wait=session.wait,
        paused=session.is_paused,
        state=live.state,
        reason=live.reason,
        beyond_share=live.beyond_share,
        promise=promise_shape(live.promise),
        plan=None,
        captured=counts.captured,
        sent=counts.sent,
        unplanned=counts.unplanned,
        skipped=counts.skipped,
        answered=counts.answered,
        late=counts.late,
        dropped=counts.dropped,
        lost=counts.lost,
        drops={cause.value: count for cause, count in sorted(counts.drops.items())},
        windows=live.windows,
        kept=live.kept,
        uplink_mbps=round(live.link.bandwidth_bps / 1e6, 3),
        rtt_ms=live.link.rtt_ms,
        drop_rate=live.curves.rate,
        drop_curves=_curves_of(live),
        drop=live.accuracy_windows.last_drop,
        decisions=DecisionTimesShape(count=count, mean_ms=round(mean_ms, 3), p99_ms=round(p99_ms, 3)),
    )
