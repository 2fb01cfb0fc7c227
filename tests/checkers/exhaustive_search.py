"""The yardstick for small problems: every multiset of instances of every stage, every combination of stages.

Shares no search with other policies.
"""

import math
from collections.abc import Iterator, Sequence

from appliance.policies.allocation.answer import answer, refusal
from appliance.policies.allocation.base import TOLERANCE, AllocationInput, AllocationPlan, Placed
from appliance.policies.allocation.configurations import Pipeline, Plans, Stage, StagePlan, critical_ms, pipeline_of
from appliance.policies.allocation.placement import Missing, place

NAME = "brute-force"
WAYS_MAX = 400_000
"""Ways of one stage; a problem with more gets no answer from this policy."""


class BruteForce:
    """Objective: least cost, over every plan that the rules allow. Cost: exponential in instances and stages."""

    def plan(self, problem: AllocationInput) -> AllocationPlan:
        pipeline = pipeline_of(problem)
        limited = any(worker.available is not None for worker in problem.workers)
        ways = [_ways(stage, pipeline.slo_ms, limited) for stage in pipeline.stages]
        if any(len(found) > WAYS_MAX for found in ways):
            return refusal(problem, f"{NAME}, too large a problem", (), {"is_optimal": False})
        best = _best(problem, pipeline, ways)
        if best is None:
            return refusal(problem, NAME, (), {"is_optimal": True})
        facts = {"is_optimal": True, "candidates": sum(len(found) for found in ways)}
        return answer(problem, pipeline, *best, NAME, facts)


def _ways(stage: Stage, slo_ms: float, keep_all: bool) -> list[StagePlan]:
    """All plans of a stage within the SLO, by cost; without those that another beats in cost and latency unless
    `keep_all`.
    """
    found: list[StagePlan] = []
    for plan in _plans(stage):
        if plan.latency_ms <= slo_ms * (1.0 + TOLERANCE):
            found.append(plan)
            if len(found) > WAYS_MAX:
                return found
    found.sort(key=lambda plan: (plan.cost, plan.latency_ms))
    if keep_all:
        return found
    kept: list[StagePlan] = []
    for plan in found:
        if not kept or plan.latency_ms < kept[-1].latency_ms:
            kept.append(plan)
    return kept


def _plans(stage: Stage) -> Iterator[StagePlan]:
    configurations = stage.configurations
    fulls: list[tuple[int, int]] = []

    def below(index: int, left: float) -> Iterator[StagePlan]:
        if index == len(configurations):
            whole = tuple((configurations[c], count) for c, count in fulls)
            if left <= TOLERANCE * stage.rate_rps:
                yield StagePlan(whole, None)
                return
            for c in configurations:
                if left <= c.throughput_rps * (1.0 + TOLERANCE):
                    yield StagePlan(whole, (c, left))
            return
        yield from below(index + 1, left)
        throughput = configurations[index].throughput_rps
        for count in range(1, int(left / throughput * (1.0 + TOLERANCE)) + 1):
            fulls.append((index, count))
            yield from below(index + 1, max(0.0, left - count * throughput))
            fulls.pop()

    return below(0, stage.rate_rps)


def _best(
    problem: AllocationInput, pipeline: Pipeline, ways: Sequence[Sequence[StagePlan]]
) -> tuple[Plans, tuple[Placed, ...]] | None:
    """Depth first over stages, ways by cost; a branch ends when the cheapest of what follows already reaches the
    best.
    """
    cheapest = [sum(found[0].cost for found in ways[i:] if found) for i in range(len(ways) + 1)]
    least, best = math.inf, None

    def below(chosen: Plans, cost: float) -> None:
        nonlocal least, best
        depth = len(chosen)
        if depth == len(ways):
            placement = place(pipeline, chosen, problem.workers, problem.existing)
            if not isinstance(placement, Missing):
                least, best = cost, (chosen, placement)
            return
        idle = (StagePlan((), None),) * (len(ways) - depth - 1)
        for plan in ways[depth]:
            total = cost + plan.cost
            if total + cheapest[depth + 1] >= least * (1.0 - TOLERANCE):
                return
            if pipeline.fits(critical_ms(pipeline, (*chosen, plan, *idle))):
                below((*chosen, plan), total)

    below((), 0.0)
    return best
