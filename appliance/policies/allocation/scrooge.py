"""Scrooge's own policy (§3.3): capacity by a mixed-integer program, then partial instances refined under W*."""

from collections.abc import Mapping

from appliance.policies.allocation.base import AllocationInput, AllocationPlan
from appliance.policies.allocation.configurations import Configuration, Pipeline, Plans, Stage, StagePlan
from appliance.policies.allocation.placement import Missing, capacity, place
from appliance.policies.allocation.refine import Assignment, Room, refined
from appliance.policies.allocation.reruns import until_placed
from appliance.policies.milp import Program

TIGHTER = (1.0, 0.95, 0.9, 0.85, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3)
"""Parts of the SLO that the first step is given in turn, when what it leaves cannot be refined within the whole."""


class Scrooge:
    """Eq.

    2 linearised: t ≤ r·x in place of x·t (2b), and the latency of a stage is at least W of *every* configuration that
    it uses (2c).

    The paper is silent on what happens when no partial configuration fits: here one full instance may be released into
    the rest, and then the first step runs again with less of the SLO. Both steps keep to the workers that are
    available; where no refinement does, the one that takes too many goes to placement, and allocation runs again
    without the type that is short (SC-16). Cost: one program a try; its size is that of the undominated configurations.
    """

    def __init__(self, name: str = "scrooge", concurrency_max: int | None = None) -> None:
        self._name, self._concurrency_max = name, concurrency_max

    def plan(self, problem: AllocationInput) -> AllocationPlan:
        limits = {
            pool: limit
            for pool in sorted({worker.pool for worker in problem.workers})
            if (limit := capacity(pool, problem.workers, problem.existing)) is not None
        }

        def allocate(pipeline: Pipeline) -> Plans | None:
            return _allocate(pipeline, limits, _room(pipeline, problem) if limits else None)

        return until_placed(problem, self._name, allocate, self._concurrency_max)


def without_concurrency() -> Scrooge:
    """SC-29: how much spatial multiplexing saves."""
    return Scrooge("concurrency-1", concurrency_max=1)


def _allocate(pipeline: Pipeline, limits: Mapping[str, float], room: Room | None) -> Plans | None:
    before: list[Assignment] | None = None
    too_large: Plans | None = None
    for part in TIGHTER:
        assigned = capacities(pipeline, pipeline.slo_ms * part, limits)
        if assigned is None:
            break
        if assigned != before:
            plans = refined(pipeline, assigned, room)
            if plans is not None:
                return plans
            too_large = too_large or (refined(pipeline, assigned) if room else None)
        before = assigned
    return too_large


def _room(pipeline: Pipeline, problem: AllocationInput) -> Room:
    """Whether instances can be placed; stages without a plan yet take nothing."""

    def has_room(plans: Plans) -> bool:
        nothing = (StagePlan((), None),) * (len(pipeline.stages) - len(plans))
        return not isinstance(place(pipeline, (*plans, *nothing), problem.workers, problem.existing), Missing)

    return has_room


def capacities(pipeline: Pipeline, slo_ms: float, limits: Mapping[str, float]) -> list[Assignment] | None:
    """Eq. 2: the rate of each configuration by stage, with W of full instances; None when there is none.

    Columns by configuration: x whether it is used, t its part of the stage's rate; by stage its latency and its start,
    in units of the SLO.
    """
    program = Program()
    columns = [_columns(program, stage, slo_ms, limits) for stage in pipeline.stages]
    latencies = [program.column(1.0) for _ in pipeline.stages]
    starts = [program.column(1.0) for _ in pipeline.stages]
    for used, latency, start in zip(columns, latencies, starts, strict=True):
        program.exactly(1.0, {t: 1.0 for _, t in used.values()})
        for c, (x, t) in used.items():
            program.at_most(0.0, {t: 1.0, x: -1.0})
            program.at_most(0.0, {x: c.full_latency_ms / slo_ms, latency: -1.0})
        program.at_most(1.0, {start: 1.0, latency: 1.0})
    for m, n in pipeline.edges:
        program.at_most(0.0, {starts[m]: 1.0, latencies[m]: 1.0, starts[n]: -1.0})
    for pool, limit in sorted(limits.items()):
        takes = {
            t: taken * stage.rate_rps / c.throughput_rps
            for stage, used in zip(pipeline.stages, columns, strict=True)
            for c, (_, t) in used.items()
            if (taken := c.taken_of(pool))
        }
        if takes:
            program.at_most(limit, takes)
    costs = {
        t: c.unit_cost * stage.rate_rps
        for stage, used in zip(pipeline.stages, columns, strict=True)
        for c, (_, t) in used.items()
    }
    values = program.least(costs).values
    if not values:
        return None
    return [
        {c: values[t] * stage.rate_rps for c, (_, t) in used.items() if values[t] > 1e-6}
        for stage, used in zip(pipeline.stages, columns, strict=True)
    ]


def _columns(
    program: Program, stage: Stage, slo_ms: float, limits: Mapping[str, float]
) -> dict[Configuration, tuple[int, int]]:
    """Columns (x, t) of the configurations that none beats in unit cost and W; one of a scarce type is beaten by its
    own type only, and by none that draws otherwise.
    """
    columns: dict[Configuration, tuple[int, int]] = {}
    for c in stage.configurations:  # by unit cost
        beaten = any(
            other.full_latency_ms <= c.full_latency_ms
            and (not limits or (other.worker, other.draws) == (c.worker, c.draws))
            for other in columns
        )
        if not beaten and c.full_latency_ms <= slo_ms * (1.0 + 1e-9):
            columns[c] = program.column(1.0, whole=True), program.column(1.0)
    return columns
