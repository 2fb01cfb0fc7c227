"""Decisions on neighbours as facts for the decision log, in the JSON that `appliance plan` reads and writes."""

from typing import Any

from appliance.domain.units import BYTES_PER_MB
from appliance.policies.residency.neighbours import Neighbour, NeighbourPlan, NeighbourProblem


def brought(
    application: str, sharing: tuple[str, ...], problem: NeighbourProblem, plan: NeighbourPlan
) -> dict[str, Any]:
    """A neighbour of what sessions use at an application comes. `sharing`: all applications that use its builds, by
    id. Others' variants bear no name of theirs in the problem.
    """
    return {
        "application": application,
        "concerned": tuple((id, id.partition("/")[0]) for id in sharing),
        "problem": problem_json(problem),
        "answer": {
            "outcome": "ahead",
            "actions": [{"application": application, "from": None, "to": plan.bring}],
            **answer_json(plan),
        },
    }


def problem_json(problem: NeighbourProblem) -> dict[str, Any]:
    """As `appliance plan` reads it."""
    return {
        "kind": "neighbours",
        "free_mb": problem.free_bytes / BYTES_PER_MB,
        "reserve_mb": problem.reserve_bytes / BYTES_PER_MB,
        "variants": [_variant(neighbour) for neighbour in problem.neighbours],
    }


def answer_json(plan: NeighbourPlan) -> dict[str, Any]:
    """As `appliance plan` answers, without the time it took."""
    return {"bring": plan.bring, "leave": list(plan.leave), "reason": plan.reason}


def _variant(neighbour: Neighbour) -> dict[str, Any]:
    return {
        "name": neighbour.name,
        "distance": neighbour.distance,
        "size_mb": neighbour.bytes / BYTES_PER_MB,
        "need_mb": neighbour.need_bytes / BYTES_PER_MB,
        "resident": neighbour.is_there,
    }
