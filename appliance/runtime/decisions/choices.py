"""Decisions on which variant answers requests that name none, in the JSON that `appliance plan` reads and writes."""

from collections.abc import Sequence
from typing import Any

from appliance.domain.catalogue import Application
from appliance.domain.units import BYTES_PER_MB
from appliance.policies.selection.base import Candidate, SelectionInput, SelectionPlan


def choice(
    application: Application, problem: SelectionInput, plan: SelectionPlan, before: str, policy: str
) -> dict[str, object]:
    """An application's first choice is another than `before`, of kind `selection`."""
    return {
        "application": application.id,
        "concerned": ((application.id, application.tenant),),
        "problem": {"kind": "selection", "policy": policy, "request": application.id, "before": before}
        | _asked(problem),
        "answer": answer_json(plan),
    }


def answer_json(plan: SelectionPlan) -> dict[str, Any]:
    """As `appliance plan` answers, without the time it took."""
    outcome = plan.order[0] if plan.order else "none"
    return {"outcome": outcome, "actions": [], "order": list(plan.order), "reason": plan.reason}


def _asked(problem: SelectionInput) -> dict[str, object]:
    return {
        "prefer": problem.prefer.value,
        "latency_slo_ms": problem.latency_slo_ms,
        "accuracy_min": problem.accuracy_min,
        "loss_max": problem.loss_max,
        "meaning": problem.meaning,
        "variants": _variants(problem.candidates),
    }


def _variants(candidates: Sequence[Candidate]) -> list[dict[str, object]]:
    return [
        {
            "name": c.name,
            "accuracy": c.accuracy,
            "loss": c.loss,
            "p50_ms": c.p50_ms,
            "p99_ms": c.p99_ms,
            "size_mb": c.resident_bytes / BYTES_PER_MB,
        }
        for c in candidates
    ]
