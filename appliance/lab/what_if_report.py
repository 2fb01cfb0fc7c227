"""Report of a simulation as JSON values: memory and requests over time, and decisions with their reasons. The page
*What if* draws it.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from appliance.clock import NS_PER_S
from appliance.lab.journal import Entry
from appliance.lab.outcome import KINDS, Answer
from appliance.lab.simulation import Run, Sample
from appliance.policies.residency.base import ResidencyPlan, ResidencyProblem

COLUMNS = 120
"""Moments at which memory is looked at, and stretches of time in which requests are counted."""
DECISIONS_MAX = 50
MODELS_MAX = 8
"""Number of models with a line of their own; smaller models share a line."""
OTHERS = "others"


def report_of(run: Run, duration_s: float) -> dict[str, Any]:
    """Return the report of a run that was sampled `COLUMNS` times."""
    samples, width_s = run.samples, duration_s / COLUMNS
    return {
        "at_s": [round(sample.at_ns / NS_PER_S, 3) for sample in samples],
        "models_mb": _models(samples),
        "processes_mb": [_mb(sample.parts.processes) for sample in samples],
        "runs_mb": [_mb(sample.parts.runs) for sample in samples],
        "free_mb": [_mb(sample.parts.free) for sample in samples],
        "requests": _requests(run.outcome.answers, width_s),
        "decisions": [row for entry in run.journal.decisions if (row := _decision(entry)) is not None],
        "decisions_in_all": run.journal.residency_count,
    }


def _models(samples: Sequence[Sample]) -> dict[str, list[float]]:
    """Return the bytes of each model over time, the largest first."""
    totals: dict[str, int] = {}
    for sample in samples:
        for model, held in sample.models.items():
            totals[model] = totals.get(model, 0) + held
    order = sorted(totals, key=lambda model: (-totals[model], model))
    found = {model: [_mb(sample.models.get(model, 0)) for sample in samples] for model in order[:MODELS_MAX]}
    if rest := order[MODELS_MAX:]:
        found[OTHERS] = [_mb(sum(sample.models.get(model, 0) for model in rest)) for sample in samples]
    return found


def _requests(answers: Sequence[Answer], width_s: float) -> dict[str, list[int]]:
    """Return the number of requests by outcome for each stretch of time."""
    found: dict[str, list[int]] = {kind: [0] * COLUMNS for kind in KINDS}
    for answer in answers:
        column = min(COLUMNS - 1, int(answer.at_ns / NS_PER_S / width_s))
        found[answer.kind][column] += 1
    return found


def _decision(entry: Entry) -> Mapping[str, Any] | None:
    problem, plan = entry.facts.get("problem"), entry.facts.get("plan")
    if not isinstance(problem, ResidencyProblem) or not isinstance(plan, ResidencyPlan):
        return None
    return {
        "at_s": round(entry.at_ns / NS_PER_S, 3),
        "application": problem.request or "",
        "outcome": plan.outcome,
        "changes": [
            {"application": change.application, "before": change.before or "", "after": change.after or ""}
            for change in plan.changes
        ],
        "reason": plan.reason,
    }


def _mb(count_bytes: int) -> float:
    return round(count_bytes / 1e6, 2)
