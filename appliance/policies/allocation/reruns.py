"""Allocation, then placement; and again without the worker type that cannot be had (SC-14, SC-16)."""

from collections.abc import Callable

from appliance.policies.allocation.answer import answer, refusal
from appliance.policies.allocation.base import AllocationInput, AllocationPlan
from appliance.policies.allocation.configurations import Pipeline, Plans, pipeline_of
from appliance.policies.allocation.placement import Missing, place


def until_placed(
    problem: AllocationInput,
    how: str,
    allocate: Callable[[Pipeline], Plans | None],
    concurrency_max: int | None = None,
) -> AllocationPlan:
    """What `allocate` says, on workers that there are: every type or group that is short is left out from then on.

    At most one round each.
    """
    missing: list[str] = []
    while True:
        pipeline = pipeline_of(problem, missing, concurrency_max)
        plans = allocate(pipeline) if all(stage.configurations for stage in pipeline.stages) else None
        if plans is None:
            return refusal(problem, how, missing, {"is_optimal": False})
        placement = place(pipeline, plans, problem.workers, problem.existing)
        if not isinstance(placement, Missing):
            without = f", without {', '.join(missing)}" if missing else ""
            return answer(problem, pipeline, plans, placement, how + without, {"is_optimal": False})
        missing.append(placement.pool)
