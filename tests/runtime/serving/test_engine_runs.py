"""What the engine makes of measured runs: room for their memory, and who may run on the event loop."""

import asyncio

import numpy as np
import pytest

from appliance.domain.catalogue import RunBound, TensorSpec
from appliance.domain.errors import NoRoomToRun
from tests.fakes.clock import settle, story
from tests.fakes.engine import EngineBench
from tests.fakes.processor import Cost
from tests.runtime.at_work import at_work, change

MB = 10**6
LENGTHS = (TensorSpec("x", "FP32", (-1, -1)),)


def measured(bench: EngineBench, runs: tuple[RunBound, ...], hazards: tuple[str, ...] | None = ()) -> None:
    """Give the only variant these runs."""
    change(bench, runs=runs, hazards=hazards, shape_max=runs[-1].shapes if runs else None)


def sized(length: int) -> dict[str, np.ndarray]:
    return {"x": np.ones((1, length), np.float32)}


def bounds(*figures: tuple[int, float, int]) -> tuple[RunBound, ...]:
    return tuple(RunBound({"x": (8, length)}, run_ms, taken) for length, run_ms, taken in figures)


@story
async def test_run_without_memory_beside_the_builds_is_refused() -> None:
    """Before it begins, by the next larger run that was measured; smaller inputs fit, and all is free again after. For
    one that is larger than the budget no waiting helps.
    """
    async with at_work(EngineBench(budget=100 * MB)) as bench:
        bench.add({"v": Cost(resident_bytes=60 * MB, peak_bytes=60 * MB)}, inputs=LENGTHS)
        measured(bench, bounds((10, 1, 5 * MB), (100, 1, 30 * MB), (1000, 1, 50 * MB), (2000, 1, 200 * MB)))
        await bench.infer(inputs=sized(10))
        await bench.infer(inputs=sized(11))
        with pytest.raises(NoRoomToRun, match=r"takes up to 50.0 MB.*40.0 MB are free") as caught:
            await bench.infer(inputs=sized(101))
        assert caught.value.can_fit
        with pytest.raises(NoRoomToRun, match="ever") as caught:
            await bench.infer(inputs=sized(1001))
        assert not caught.value.can_fit
        assert bench.memory.runs.running_bytes == 0


@story
async def test_concurrent_runs_share_the_free_memory() -> None:
    """Two workers, room for one run: the second is refused at its turn, and fits once the first is over."""
    async with at_work(EngineBench(budget=100 * MB, workers=2)) as bench:
        bench.add({"v": Cost(resident_bytes=60 * MB, peak_bytes=60 * MB, run_ms=50)}, inputs=LENGTHS)
        measured(bench, bounds((10, 50, 30 * MB)))
        await bench.infer(inputs=sized(10))
        first = asyncio.create_task(bench.infer(inputs=sized(10)))
        await settle()
        with pytest.raises(NoRoomToRun, match=r"10.0 MB are free"):
            await bench.infer(inputs=sized(10))
        await first
        await bench.infer(inputs=sized(10))


@pytest.mark.parametrize(
    ("hazards", "length", "is_inline"),
    [((), 10, True), ((), 11, False), (("Loop: it may run for ever",), 10, False), (None, 10, False)],
)
@story
async def test_inline_run_needs_a_harmless_build_that_is_quick_at_its_size(
    hazards: tuple[str, ...] | None, length: int, is_inline: bool
) -> None:
    """The profile's median is that of short inputs: a long one would hold up all other requests, a loop for ever."""
    async with at_work(EngineBench(workers=1, quick_ms_max=0.25)) as bench:
        bench.add({"v": Cost(load_ms=0, run_ms=0.1)}, inputs=LENGTHS)
        measured(bench, bounds((10, 0.1, 0), (1000, 30, 0)), hazards)
        await bench.infer(inputs=sized(1))
        runs = bench.engine.workers[0].runs
        await bench.infer(inputs=sized(length))
        assert (bench.engine.workers[0].runs == runs) is is_inline


@story
async def test_memory_taken_by_other_processes_costs_no_answer() -> None:
    """A run under way ends and is answered; a build that is not in use leaves, and comes back for the next request."""
    mib = 2**20
    bench = EngineBench(budget=128 * mib)
    for name in ("busy", "idle"):
        bench.add({"v": Cost(resident_bytes=40 * mib, load_ms=1, run_ms=100)}, name=name)
    async with at_work(bench):
        for name in ("busy", "idle"):
            await bench.infer(application=f"t/{name}")
        running = asyncio.create_task(bench.infer(3, application="t/busy"))
        await bench.pause(10)
        bench.others_bytes = 80 * mib
        bench.core.pressure.step()
        await bench.pause(10)
        assert bench.memory.budget_bytes <= 48 * mib
        assert not bench.memory.is_resident(bench.build("v", "t/idle"))
        assert (await running).outputs["y"].tolist() == [6]
        assert (await bench.infer(4, application="t/idle")).outputs["y"].tolist() == [8]
        assert bench.memory.used_bytes <= bench.memory.budget_bytes
