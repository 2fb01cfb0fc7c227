"""One known way for each stage, where stages meet in more than the SLO: scarce workers, or a graph without nesting.

A small program for HiGHS.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from appliance.policies.allocation.base import TOLERANCE
from appliance.policies.allocation.configurations import Pipeline
from appliance.policies.allocation.dag import critical_path_ms
from appliance.policies.allocation.stage_plans import StagePlans
from appliance.policies.milp import Program

RETRIES_MAX = 50
"""Choices that the solver's tolerance let through and that are cut off one by one."""


@dataclass(frozen=True, slots=True)
class Choice:
    """By stage the row that was chosen; None when there is no choice."""

    picks: tuple[int, ...] | None
    cost: float
    is_optimal: bool


def choose(
    pipeline: Pipeline,
    ways: Sequence[StagePlans],
    limits: Mapping[str, float],
    forbidden: Collection[tuple[int, ...]] = (),
) -> Choice:
    """The cheapest rows within the SLO, with at most `limits[pool]` workers of a pool in all; none of the `forbidden`
    choices.
    """
    cuts = list(forbidden)
    for _ in range(RETRIES_MAX):
        program, columns = _program(pipeline, ways, limits, cuts)
        prices = {
            z: float(cost)
            for row, way in zip(columns, ways, strict=True)
            for z, cost in zip(row, way.cost, strict=True)
        }
        solved = program.least(prices)
        if not solved.values:
            return Choice(None, np.inf, solved.is_infeasible)
        picks = tuple(max(range(len(row)), key=lambda p: (solved.values[row[p]], -p)) for row in columns)
        latencies = [float(way.latency_ms[pick]) for way, pick in zip(ways, picks, strict=True)]
        if pipeline.fits(critical_path_ms(latencies, pipeline.edges)) and _within(ways, picks, limits):
            cost = sum(float(way.cost[pick]) for way, pick in zip(ways, picks, strict=True))
            return Choice(picks, cost, solved.is_optimal)
        cuts.append(picks)
    return Choice(None, np.inf, False)


def _program(
    pipeline: Pipeline, ways: Sequence[StagePlans], limits: Mapping[str, float], cuts: Collection[tuple[int, ...]]
) -> tuple[Program, list[list[int]]]:
    """z[stage, row] binary; start[stage] in units of the SLO: start_m + latency_m ≤ start_n on every edge, ≤ 1 at
    the end.
    """
    program = Program()
    columns = [[program.column(1.0, whole=True) for _ in way.cost] for way in ways]
    starts = [program.column(1.0) for _ in ways]
    takes = [
        dict(zip(row, (float(ms) / pipeline.slo_ms for ms in way.latency_ms), strict=True))
        for row, way in zip(columns, ways, strict=True)
    ]
    for row in columns:
        program.exactly(1.0, dict.fromkeys(row, 1.0))
    for m, n in pipeline.edges:
        program.at_most(0.0, {**takes[m], starts[m]: 1.0, starts[n]: -1.0})
    for stage, terms in enumerate(takes):
        if all(m != stage for m, _ in pipeline.edges):
            program.at_most(1.0, {**terms, starts[stage]: 1.0})
    for pool, limit in sorted(limits.items()):
        program.at_most(
            limit,
            {
                z: float(u)
                for row, way in zip(columns, ways, strict=True)
                for z, u in zip(row, way.usage(pool), strict=True)
                if u
            },
        )
    for picks in cuts:
        program.at_most(len(picks) - 1.0, {row[pick]: 1.0 for row, pick in zip(columns, picks, strict=True)})
    return program, columns


def _within(ways: Sequence[StagePlans], picks: Sequence[int], limits: Mapping[str, float]) -> bool:
    return all(
        sum(float(way.usage(pool)[pick]) for way, pick in zip(ways, picks, strict=True)) <= limit * (1.0 + TOLERANCE)
        for pool, limit in limits.items()
    )
