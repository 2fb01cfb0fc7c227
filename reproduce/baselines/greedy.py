"""Scrooge's greedy yardstick (§4.3): from the fastest configurations, always the change that brings most throughput
for cost and latency.
"""

from appliance.policies.allocation.base import AllocationInput, AllocationPlan
from appliance.policies.allocation.configurations import Configuration, Pipeline, Plans
from appliance.policies.allocation.dag import critical_path_ms
from appliance.policies.allocation.refine import refined
from appliance.policies.allocation.reruns import until_placed

NAME = "greedy"


class Greedy:
    """One configuration a stage.

    A change's worth is the gain in throughput for a unit of cost, by the latency that it adds; ties by stage and rank.

    Partial instances are refined as in Scrooge; when they cannot be, the last change is taken back until they can.
    """

    def plan(self, problem: AllocationInput) -> AllocationPlan:
        return until_placed(problem, NAME, _allocate)


def _allocate(pipeline: Pipeline) -> Plans | None:
    for chosen in reversed(_path(pipeline)):
        rates = [{c: stage.rate_rps} for stage, c in zip(pipeline.stages, chosen, strict=True)]
        plans = refined(pipeline, rates)
        if plans is not None:
            return plans
    return None


def _path(pipeline: Pipeline) -> list[tuple[Configuration, ...]]:
    """The configurations after every change."""
    chosen = tuple(min(stage.configurations, key=lambda c: c.full_latency_ms) for stage in pipeline.stages)
    path = [chosen]
    while True:
        changes = [
            (_worth(chosen[i], c), (*chosen[:i], c, *chosen[i + 1 :]))
            for i, stage in enumerate(pipeline.stages)
            for c in stage.configurations
            if c.unit_cost < chosen[i].unit_cost and _fits(pipeline, (*chosen[:i], c, *chosen[i + 1 :]))
        ]
        if not changes:
            return path
        chosen = max(changes, key=lambda change: change[0])[1]
        path.append(chosen)


def _worth(now: Configuration, then: Configuration) -> float:
    gain = 1.0 / max(then.unit_cost, 1e-12) - 1.0 / max(now.unit_cost, 1e-12)
    return gain / max(then.full_latency_ms - now.full_latency_ms, 1e-9)


def _fits(pipeline: Pipeline, chosen: tuple[Configuration, ...]) -> bool:
    return pipeline.fits(critical_path_ms([c.full_latency_ms for c in chosen], pipeline.edges))
