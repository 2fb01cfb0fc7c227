"""The box's own policy: the cheapest pipeline by searching stages under bounds from one another; exact unless it
says otherwise.
"""

import math

from appliance.policies.allocation.answer import answer, refusal
from appliance.policies.allocation.base import AllocationInput, AllocationPlan
from appliance.policies.allocation.configurations import pipeline_of
from appliance.policies.allocation.limits import limited
from appliance.policies.allocation.placement import Missing, place
from appliance.policies.allocation.split import split

NAME = "frontier"


class Frontier:
    """Objective: least cost.

    Unlike the paper's two steps, full and partial instances are chosen together, with W* of the partial one exact.

    Without scarce workers the search needs no solver: for each stage, branch and bound over multisets of instances,
    pruned by what the other stages must cost at least; then an exact merge of latency-cost fronts over the graph.
    Scarce workers or a graph without nesting end in a small program for HiGHS. Ties: lower latency, then the canonical
    order of configurations (unit cost, W, worker, batch, concurrency).
    """

    def plan(self, problem: AllocationInput) -> AllocationPlan:
        pipeline = pipeline_of(problem)
        found = split(pipeline)
        facts = _facts(found.is_exact, found.bound, found.rows)
        if found.plans is None:
            return refusal(problem, NAME, (), facts)
        placement = place(pipeline, found.plans, problem.workers, problem.existing)
        if not isinstance(placement, Missing):
            return answer(problem, pipeline, found.plans, placement, NAME, facts)
        scarce = limited(problem, pipeline, placement.pool)
        facts = _facts(scarce.is_exact, scarce.bound, scarce.rows)
        if scarce.plans is None:
            return refusal(problem, NAME, (), facts)
        how = f"{NAME}, short of {placement.pool}"
        return answer(problem, pipeline, scarce.plans, scarce.placement, how, facts)


def _facts(is_exact: bool, bound: float, candidates: int) -> dict[str, float | int | bool]:
    """`bound`: no plan costs less; left out where none is possible."""
    facts: dict[str, float | int | bool] = {"is_optimal": is_exact, "candidates": candidates}
    return {**facts, "bound": bound} if math.isfinite(bound) else facts
