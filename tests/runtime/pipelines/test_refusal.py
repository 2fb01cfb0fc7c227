"""What a client is told that is refused."""

from dataclasses import replace

import pytest

from appliance.policies.allocation.base import AllocationInput, BatchWait, Existing, Module, Part, Profile, WorkerType
from appliance.policies.allocation.frontier import Frontier
from appliance.policies.allocation.several import at_rate
from appliance.runtime.pipelines.refusal import RefusedClient, lacks


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
def test_what_there_is_not_enough_of(problem: AllocationInput, missing: tuple[str, ...]) -> None:
    """Processors of the pool that a plan without limits would take; where none would help, time."""
    assert lacks(at_rate(problem, 60.0), RefusedClient(problem, (), 0.0, 60.0), Frontier())[0] == missing


def test_for_how_many_there_is_room() -> None:
    """Beside what others take: a worker is left, which serves 20 frames a second, and five of these are served
    already; of sixty more the largest of the parts that fit, and where none does, none.
    """
    problem = _problem("cpu")
    taken = (Existing("cpu", 0, (Part("other", 1.0),)),)
    lacking = replace(at_rate(problem, 25.0), existing=taken)
    assert lacks(lacking, RefusedClient(problem, taken, 5.0, 20.0), Frontier())[1] == 15.0
    assert lacks(lacking, RefusedClient(problem, taken, 5.0, 40.0), Frontier())[1] == 10.0
    assert lacks(lacking, RefusedClient(problem, taken, 5.0, 1000.0), Frontier())[1] == 1000.0 / 128
    assert lacks(lacking, RefusedClient(problem, taken, 20.0, 1000.0), Frontier())[1] == 0.0
