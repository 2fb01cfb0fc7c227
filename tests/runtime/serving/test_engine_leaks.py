"""What a request held is free when it has its answer, whatever that was: without the garbage collector, which comes
when it likes, and finds megabytes of tensors in a dozen objects.
"""

import asyncio
import gc
import itertools
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from appliance.domain.errors import ApplianceError, DeadlineExceeded, RunFailed
from appliance.domain.request import Tensors
from tests.fakes.clock import settle, story
from tests.fakes.engine import EngineBench
from tests.fakes.processor import Cost
from tests.runtime.at_work import at_work, engine, warm
from tests.runtime.serving.parts_bench import bench_of, network

COUNT = 1000


class Tensor(np.ndarray[Any, Any]):
    """An array that can be watched."""


@pytest.fixture(autouse=True)
def _no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def failing_at_times() -> Callable[[Tensors], dict[str, Any]]:
    """A model that fails in every third run."""
    runs = itertools.count()

    def model(inputs: Tensors) -> dict[str, Any]:
        if next(runs) % 3 == 0:
            raise RunFailed(variant_id="v", reason="the kernel refuses")
        return {"y": np.array([1.0])}

    return model


async def asked(bench: EngineBench, watched: list[weakref.ref[Any]], **facts: Any) -> type[ApplianceError] | None:
    """Ask with a tensor that is watched; the kind of its error."""
    tensor = np.zeros(4, np.float32).view(Tensor)
    watched.append(weakref.ref(tensor))
    try:
        await bench.infer(inputs={"x": tensor}, **facts)
    except ApplianceError as error:
        return type(error)
    return None


def assert_free(bench: EngineBench, watched: list[weakref.ref[Any]]) -> None:
    """No tensor that was asked about is held any more, but for what the fakes remember."""
    for one in (bench.processor, bench.other):
        one.ran.clear()
        one.ran_for.clear()
    assert sum(tensor() is not None for tensor in watched) == 0


@pytest.mark.parametrize("queue_len", [1, COUNT])
@story
async def test_refused_late_cancelled_and_failed_requests_free_their_tensors(queue_len: int) -> None:
    """A thousand at once on one worker: too many, too late, given up by their callers, or failing in the run."""
    watched: list[weakref.ref[Any]] = []
    bench = EngineBench(queue_len=queue_len, model=failing_at_times())
    bench.add({"v": Cost(load_ms=0, run_ms=10)}, measured=False)
    async with at_work(bench):
        tasks = [asyncio.create_task(asked(bench, watched, within_ms=1000)) for _ in range(COUNT)]
        await settle()
        for task in tasks[::10]:
            task.cancel()
        ends = await asyncio.gather(*tasks, return_exceptions=True)
        assert len({end if isinstance(end, type) else type(end) for end in ends}) > 2
        del tasks, task, ends
    assert_free(bench, watched)


@story
async def test_requests_whose_build_was_lost_free_their_tensors() -> None:
    """The worker finds for each waiting request that its build has gone, and the request is placed anew."""
    watched: list[weakref.ref[Any]] = []
    async with warm(engine(Cost(load_ms=0, run_ms=10), queue_len=COUNT)) as bench:
        tasks = [asyncio.create_task(asked(bench, watched)) for _ in range(100)]
        await settle()
        bench.processor.lose(bench.build("v"))
        bench.memory.lost(bench.build("v"))
        await asyncio.gather(*tasks)
        del tasks
    assert_free(bench, watched)


@story
async def test_requests_in_parts_free_their_tensors() -> None:
    """Answered, late, given up or failed between two parts."""
    watched: list[weakref.ref[Any]] = []
    failing = failing_at_times()

    def model(inputs: Tensors) -> dict[str, Any]:
        return network(inputs) if "x" in inputs or failing(inputs) else {}

    async with warm(bench_of(queue_len=100)) as bench:
        bench.processor.model = bench.other.model = model
        tasks = [asyncio.create_task(asked(bench, watched, within_ms=30 if at % 2 else None)) for at in range(30)]
        await bench.pause(10)
        for task in tasks[::7]:
            task.cancel()
        ends = await asyncio.gather(*tasks, return_exceptions=True)
        assert len({end if isinstance(end, type) else type(end) for end in ends}) > 2
        del tasks, task, ends
        bench.other.slowness = 10.0
        assert await asked(bench, watched, within_ms=12) is DeadlineExceeded
        await bench.pause(200)
    assert_free(bench, watched)
