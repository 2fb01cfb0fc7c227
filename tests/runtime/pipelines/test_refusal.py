"""What a client is told that is refused."""

import asyncio

import pytest

from appliance.policies.allocation.base import AllocationInput, BatchWait, Module, Profile, WorkerType
from appliance.policies.allocation.frontier import Frontier
from appliance.policies.allocation.several import at_rate
from appliance.runtime.pipelines.refusal import NEAR, TRIALS_MAX, lacks, most_accepted


def _problem(*kinds: str, slo_ms: float = 100.0, run_ms: float = 50.0) -> AllocationInput:
    """For one frame a second; on two cores, which kinds share."""
    workers = tuple(WorkerType(kind, 1.0, 2, "cores") for kind in kinds)
    module = Module("m", 1.0, tuple(Profile(kind, 1, 1, run_ms) for kind in kinds))
    return AllocationInput(slo_ms, workers, (module,), (), batch_wait=BatchWait.REST)


@pytest.mark.parametrize(
    ("problem", "missing"),
    [
        (_problem("cpu"), ("processor cpu",)),
        (_problem("cpu", "npu"), ("processor cpu",)),
        (_problem("cpu", slo_ms=20.0), ("time",)),
    ],
)
def test_refusal_names_the_missing_processor_or_time(problem: AllocationInput, missing: tuple[str, ...]) -> None:
    """Processors of the pool that a plan without limits would take; where no processor would help, time."""
    assert lacks(at_rate(problem, 60.0), Frontier()) == missing


@pytest.mark.parametrize(
    ("possible", "asked"),
    [
        (possible, asked)
        for possible in (0.01, 0.02, 0.99, 7.0, 13.37, 299.0)
        for asked in (0.03, 1.0, 7.01, 60.0, 300.0, 1e3)
        if asked > possible
    ],
)
def test_highest_accepted_rate_is_found_with_few_trials(possible: float, asked: float) -> None:
    """Near the most, and never more, whatever was asked for; no rate is tried twice, as rounding might have it."""
    tried: list[float] = []

    async def is_accepted(fps: float) -> bool:
        tried.append(fps)
        return fps <= possible

    found = asyncio.run(most_accepted(is_accepted, asked))
    assert len(tried) == len(set(tried)) <= TRIALS_MAX
    assert found <= possible
    assert found >= possible - max(0.01, NEAR * possible) - 1e-9 or (len(tried) == TRIALS_MAX and found == 0.0)
