"""Single decisions of a run, looked at by themselves: what other policies would have paid, and what was configured
(§4.3).
"""

from collections.abc import Iterable, Sequence
from statistics import fmean

from appliance.policies.allocation.base import AllocationInput, AllocationPlan
from reproduce.baselines import ALLOCATION
from reproduce.claims import Numbers

Decisions = Sequence[tuple[AllocationInput, AllocationPlan]]
SAME = 1.0 + 1e-6
DECISIONS_MAX = 150
"""Looked at; evenly spread over those of a run."""


def compared(decisions: Decisions, policies: Iterable[str]) -> Numbers:
    """By policy: `same` share of decisions at no more than our cost, `worst` cost over ours.

    Of `optimal`, the share that ours has proven.
    """
    decisions = decisions[:: 1 + len(decisions) // DECISIONS_MAX]
    found = {"optimal": fmean(bool(plan.facts.get("is_optimal")) for _, plan in decisions)}
    for name in policies:
        policy = ALLOCATION[name]()
        costs = [(policy.plan(problem).cost, plan.cost) for problem, plan in decisions]
        ratios = [theirs / ours for theirs, ours in costs if theirs and ours]
        found[f"{name}/same"] = sum(ratio <= SAME for ratio in ratios) / len(decisions)
        found[f"{name}/worst"] = max(ratios, default=1.0)
    return found


def configured(decisions: Decisions, stage: str) -> Numbers:
    """Mean `batch`, `concurrency` and items a second of a worker (`throughput`) of a stage, by its rate."""
    rows = [row for _, plan in decisions for row in plan.allocations if row.module == stage]
    rate = sum(row.rate_rps for row in rows)
    return {
        "batch": sum(row.batch * row.rate_rps for row in rows) / rate,
        "concurrency": sum(row.concurrency * row.rate_rps for row in rows) / rate,
        "throughput": rate / sum(row.instances for row in rows),
    }
