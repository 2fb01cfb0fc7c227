"""Decisions on which variant answers requests that name none, as facts for the decision log."""

from collections.abc import Sequence

from appliance.domain.catalogue import Application
from appliance.domain.units import BYTES_PER_MB
from appliance.policies.selection.base import Candidate, SelectionInput, SelectionPlan

_WHY = "the order in which variants answer is the catalogue's: no policy of memory was asked"


def choice(application: Application, problem: SelectionInput, plan: SelectionPlan, before: str) -> dict[str, object]:
    """An application's first choice is another than `before`, of kind `selection`."""
    return {
        "application": application.id,
        "concerned": ((application.id, application.tenant),),
        "problem": {
            "kind": "selection",
            "plan": None,
            "why": _WHY,
            "request": application.id,
            "before": before,
            "prefer": problem.prefer.value,
            "latency_slo_ms": problem.latency_slo_ms,
            "accuracy_min": problem.accuracy_min,
            "loss_max": problem.loss_max,
            "variants": _variants(problem.candidates),
        },
        "answer": {"outcome": plan.order[0], "actions": [], "reason": plan.reason},
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
