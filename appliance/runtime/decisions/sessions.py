"""Decisions on devices' sessions, as facts for the decision log and as the JSON that `appliance plan` reads.

What a pool is planned with belongs to one tenant; sessions bear their ids.
"""

import datetime
import math
from collections.abc import Mapping
from typing import Any

from appliance.domain.decisions import DecisionRecord
from appliance.domain.errors import FrameDropped
from appliance.domain.session import Session
from appliance.policies.adaptation.base import AdaptationInput, AdaptationPlan
from appliance.policies.offload.base import Batch, Client, OffloadInput, OffloadPlan

_UNASKED = "the reason says why: no policy was asked"
_DROP = "the cause says why: no policy was asked"


def adaptation(
    application_id: str,
    tenant: str,
    problem: AdaptationInput,
    plan: AdaptationPlan,
    policy: str,
    outcome: str,
    session: str | None,
) -> dict[str, object]:
    """Which variant each session is served with, of kind `adaptation`; `session`: whom it was about."""
    return _facts(application_id, tenant, problem, plan, policy, outcome, session)


def offload(
    application_id: str,
    tenant: str,
    problem: OffloadInput,
    plan: OffloadPlan,
    policy: str,
    outcome: str,
    session: str | None,
    *,
    is_often: bool = False,
) -> dict[str, object]:
    """Which frames devices send, of kind `offload`; `session`: whom it was about; `is_often`: one such in a minute is
    written, the others are counted.
    """
    return _facts(application_id, tenant, problem, plan, policy, outcome, session, is_often=is_often)


def frame_drop(session: Session, error: FrameDropped) -> dict[str, object]:
    """A frame that was not read, of kind `drop`."""
    application = session.application_id or None
    is_late = error.left_ms is not None
    figures = {"waited_ms": 0.0, "deadline_ms": error.left_ms} if is_late else {"plan": None, "why": _DROP}
    problem = {
        "kind": "drop",
        **figures,
        "request": session.target_id,
        "tenant": session.tenant,
        "session": session.id,
        **({"pipeline": session.pipeline_id} if session.pipeline_id else {}),
        **error.facts(),
    }
    return {
        "asker": session.tenant,
        "key": (session.target_id, session.tenant, error.cause),
        "application": application,
        "concerned": ((session.target_id, session.tenant),),
        "problem": problem,
        "answer": {"outcome": "dropped", "actions": [], "reason": str(error)},
    }


def unasked(session: Session, kind: str, outcome: str, reason: str) -> dict[str, object]:
    """A session that is refused, or removed, by a rule that is no policy's; of the kind of its policy."""
    problem = {
        "kind": kind,
        "plan": None,
        "why": _UNASKED,
        "tenant": session.tenant,
        "application": session.application_id,
        "session": session.id,
    }
    # Who waits is tried again and again.
    often = {"key": (session.application_id, session.tenant, reason)} if outcome == "refused" else {}
    return {
        "asker": session.tenant,
        "application": session.application_id,
        "concerned": ((session.application_id, session.tenant),),
        **often,
        "problem": problem,
        "answer": {"outcome": outcome, "session": session.id, "actions": [], "reason": reason},
    }


def session_record(at: datetime.datetime, kind: str, facts: Mapping[str, Any]) -> DecisionRecord:
    """The whole record of one decision."""
    problem, plan = facts["problem"], facts.get("plan")
    if plan is None:
        return DecisionRecord(at, kind, facts["application"], facts["concerned"], problem, facts["answer"])
    if isinstance(problem, AdaptationInput):
        written, answer = adaptation_problem_json(problem), adaptation_answer_json(plan)
    else:
        written, answer = offload_problem_json(problem), offload_answer_json(plan)
    about = {} if facts["session"] is None else {"session": facts["session"]}
    return DecisionRecord(
        at,
        kind,
        facts["application"],
        facts["concerned"],
        {**written, "policy": facts["policy"]},
        {"outcome": facts["outcome"], **about, "actions": [], **answer},
    )


def adaptation_problem_json(problem: AdaptationInput) -> dict[str, Any]:
    """As `appliance plan` reads it."""
    return {
        "kind": "adaptation",
        "models": [
            {
                "name": network.name,
                "accuracy": network.accuracy,
                "input_bytes": network.input_bytes,
                "latency_ms": _by_batch(network.latency_ms),
            }
            for network in problem.networks
        ],
        "workers": problem.workers,
        "previous": list(problem.previous),
        "clients": [
            {
                "name": c.name,
                "rate_rps": c.rate_rps,
                "slo_ms": c.slo_ms,
                "bandwidth_bps": c.bandwidth_bps,
                **({"transfer_ms_max": c.transfer_ms_max} if c.transfer_ms_max < math.inf else {}),
            }
            for c in problem.clients
        ],
        "seed": problem.seed,
        "prefetch_per_worker": problem.prefetch_per_worker,
    }


def adaptation_answer_json(plan: AdaptationPlan) -> dict[str, Any]:
    """As `appliance plan` answers, without the time it took."""
    return {
        "workers": [
            {"worker": w.worker, "model": w.network, "batch": w.batch, "clients": list(w.clients)} for w in plan.workers
        ],
        "unmapped": list(plan.unmapped),
        "objective": plan.objective,
        "prefetch": list(plan.prefetch),
        "reason": plan.reason,
        **plan.facts,
    }


def offload_problem_json(problem: OffloadInput) -> dict[str, Any]:
    """As `appliance plan` reads it."""
    return {
        "kind": "offload",
        "fps": problem.fps,
        "now_ms": problem.now_ms,
        "horizon_ms": problem.horizon_ms,
        "busy_until_ms": problem.busy_until_ms,
        "grace": problem.grace,
        "inference_ms": _by_batch(problem.inference_ms),
        "clients": [_client(client) for client in problem.clients],
        "waiting": [_client(client) for client in problem.waiting],
        "previous": {"batches": [_batch(batch) for batch in problem.previous]},
    }


def offload_answer_json(plan: OffloadPlan) -> dict[str, Any]:
    """As `appliance plan` answers, without the time it took."""
    return {
        "clients": [
            {
                "name": c.name,
                "interval": c.interval,
                "batch": c.batch,
                "variant": c.variant,
                "frames": list(c.frames),
                "expected_drop": c.expected_drop,
            }
            for c in plan.clients
        ],
        "admitted": list(plan.admitted),
        "removed": list(plan.removed),
        "batches": [_batch(batch) for batch in plan.batches],
        "reason": plan.reason,
    }


def _facts(
    application_id: str,
    tenant: str,
    problem: object,
    plan: object,
    policy: str,
    outcome: str,
    session: str | None,
    *,
    is_often: bool = False,
) -> dict[str, object]:
    often = {"key": (application_id, tenant, outcome)} if is_often or outcome == "refused" else {}
    return {
        "asker": tenant,
        **often,
        "application": application_id,
        "concerned": ((application_id, tenant),),
        "problem": problem,
        "plan": plan,
        "policy": policy,
        "outcome": outcome,
        "session": session,
    }


def _client(client: Client) -> dict[str, Any]:
    return {
        "name": client.name,
        "drop_rate": client.drop_rate,
        "accuracy_slo": client.accuracy_slo,
        "uplink_ms": client.uplink_ms,
        "downlink_ms": client.downlink_ms,
        "last_frame": client.last_frame,
        "last_arrival_ms": client.last_arrival_ms,
        "last_result_frame": client.last_result_frame,
        "last_result_ms": client.last_result_ms,
        "arrivals": [list(arrival) for arrival in client.arrivals],
        "variants": [
            {
                "name": v.name,
                "accuracy_gap": v.accuracy_gap,
                "uplink_ms": v.uplink_ms,
                "inference_ms": _by_batch(v.inference_ms),
                **({} if v.drop_rate is None else {"drop_rate": v.drop_rate}),
            }
            for v in client.variants
        ],
        **({"kept_free": client.kept_free} if client.kept_free else {}),
        **({} if client.reference_stride is None else {"reference_stride": client.reference_stride}),
    }


def _batch(batch: Batch) -> dict[str, Any]:
    return {
        "start_ms": batch.start_ms,
        "variant": batch.variant,
        "requests": [list(request) for request in batch.requests],
    }


def _by_batch(latency_ms: Mapping[int, float]) -> dict[str, float]:
    return {str(batch): ms for batch, ms in latency_ms.items()}
