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

from appliance.domain.errors import ApplianceError, RunFailed
from appliance.domain.request import Tensors
from tests.fakes.clock import settle, story
from tests.fakes.engine import EngineBench
from tests.fakes.processor import Cost
from tests.runtime.at_work import at_work

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


@pytest.mark.parametrize("queue_len", [1, COUNT])
def test_refused_late_cancelled_and_failed_requests_free_their_tensors(queue_len: int) -> None:
    """A thousand at once on one worker: too many, too late, given up by their callers, or failing in the run."""
    watched: list[weakref.ref[Any]] = []
    kinds: list[Any] = []

    @story
    async def ask() -> None:
        async with at_work(EngineBench(queue_len=queue_len, model=failing_at_times())) as bench:
            bench.add({"v": Cost(load_ms=0, run_ms=10)}, measured=False)
            tasks = [asyncio.create_task(asked(bench, watched, within_ms=1000)) for _ in range(COUNT)]
            await settle()
            for task in tasks[::10]:
                task.cancel()
            kinds.extend(await asyncio.gather(*tasks, return_exceptions=True))
            bench.processor.ran.clear()
            bench.processor.ran_for.clear()
            tasks.clear()

    ask()
    assert len(watched) == COUNT
    assert len({kind if isinstance(kind, type) else type(kind) for kind in kinds}) > 2
    assert sum(tensor() is not None for tensor in watched) == 0


def test_requests_whose_build_was_lost_free_their_tensors() -> None:
    """The worker finds for each waiting request that its build has gone, and the request is placed anew."""
    watched: list[weakref.ref[Any]] = []

    @story
    async def ask() -> None:
        async with at_work(EngineBench(queue_len=COUNT)) as bench:
            bench.add({"v": Cost(load_ms=0, run_ms=10)}, measured=False)
            await bench.infer()
            tasks = [asyncio.create_task(asked(bench, watched)) for _ in range(100)]
            await settle()
            bench.processor.lose(bench.build("v"))
            bench.memory.lost(bench.build("v"))
            await asyncio.gather(*tasks, return_exceptions=True)
            bench.processor.ran.clear()
            bench.processor.ran_for.clear()
            tasks.clear()

    ask()
    assert len(watched) == 100
    assert sum(tensor() is not None for tensor in watched) == 0
