"""What is asked of a session and what is shown of it, for whatever answers: the framework's routes, or `early_joins`,
which answers before there is a framework. So nothing here imports one.
"""

from appliance.api.auth.keyring import Principal
from appliance.api.auth.named import callable_application, callable_pipeline
from appliance.api.box import ServingBox
from appliance.api.streams.words import plan_fields
from appliance.domain.accuracy import ACCURACY, points, share
from appliance.domain.errors import ModelUnavailable
from appliance.domain.session import AccuracyPromise, LatencyPromise, Promise
from appliance.runtime.sessions.live import LiveSession
from appliance.runtime.sessions.orders import JoinOrder
from appliance.wire.sessions import (
    AccuracyPromiseShape,
    DecisionTimesShape,
    DropCurveShape,
    LatencyPromiseShape,
    SessionFiguresShape,
    SessionOrder,
    SessionPlanShape,
    SessionShape,
)

JOIN = "Join: ask for a promise"
"""What the audit and the documents call it."""


async def join(box: ServingBox, principal: Principal, order: SessionOrder) -> LiveSession:
    """Begin the session that a caller asks for.

    Raises: UnknownApplication, UnknownPipeline, and what `Sessions.join` raises.
    """
    application = pipeline = ""
    if order.application is not None:
        application = callable_application(box.catalogue, principal, order.application).id
    elif order.pipeline is not None:
        pipeline = callable_pipeline(box.pipelines, principal, order.pipeline).pipeline.id
    link = order.link
    return await box.sessions.join(
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


def _figures_of(box: ServingBox, live: LiveSession) -> SessionFiguresShape:
    figures, start_ms = live.figures, live.figures.start_ms.value
    busy_ms, now_ns = box.engine.run_totals()[1], live.ended_ns or box.clock.now_ns()
    agreement = figures.against_original(_agreements(box, live))
    return SessionFiguresShape(
        miss_rate=live.counts.miss_rate,
        mean_drop=figures.drop.value,
        drop_error=figures.drop_error.value,
        batch_rows=figures.batch_rows.value,
        start_difference_ms=start_ms,
        start_difference_max_ms=None if start_ms is None else figures.start_ms_max,
        utilisation=figures.utilisation(busy_ms, now_ns, box.engine.serving_workers()),
        against_original=agreement.value,
        against_original_frames=agreement.count,
    )


def _agreements(box: ServingBox, live: LiveSession) -> dict[str, float]:
    """Variant → its agreement with the original, of those where one was measured."""
    try:
        variants = box.catalogue.entry(live.session.application_id).model.variants
    except ModelUnavailable:  # gone, or a pipeline
        return {}
    return {one.name: one.agreement for one in variants if one.agreement is not None}


def _meaning(box: ServingBox, live: LiveSession) -> str:
    """Return the name of the accuracies of the model that the session uses."""
    try:
        return box.catalogue.entry(live.session.application_id).model.meaning
    except ModelUnavailable:  # gone, or a pipeline
        return ACCURACY


def shape_of(box: ServingBox, live: LiveSession) -> SessionShape:
    """A session as it stands."""
    plan = None if live.plan is None else SessionPlanShape(**plan_fields(live.plan, live, box.clock.now_ns()))
    return summary_of(box, live).model_copy(update={"plan": plan})


def summary_of(box: ServingBox, live: LiveSession) -> SessionShape:
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
        accuracy_meaning=_meaning(box, live),
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
        figures=_figures_of(box, live),
    )
