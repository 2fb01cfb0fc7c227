"""The emulated processor spends what the profile says, and has no mercy with an engine that breaks the rules."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from appliance.clock import NS_PER_MS
from appliance.domain.errors import LoadFailed, ProcessorLost
from appliance.domain.hardware import PreparedForm, ProcessorDescription
from appliance.lab.loop import START_NS, VirtualClock, VirtualLoop
from appliance.lab.processors import Broken, BuildCost, EmulatedProcessor
from tests.fakes.clock import run_virtual, story

COST = BuildCost(("door",), 60, 80, 100 * NS_PER_MS, 6, {(1, 1): 10, (4, 1): 30, (1, 2): 15})
ONE = {"x": np.zeros(1, np.float32)}


SLEEPY = replace(COST, asleep_bytes=5, sleep_ns=2, wake_ns=7)


def _processor(memory_bytes: int = 140) -> tuple[EmulatedProcessor, VirtualClock]:
    """One with two loads at a time. To be made inside a story."""
    clock = VirtualClock()
    description = ProcessorDescription("dev", "dev", 1, 1, "host", "emulated")
    costs = {name: COST for name in "abc"} | {"sleepy": SLEEPY}
    return EmulatedProcessor(clock, description, costs, memory_bytes, loads_parallel_max=2), clock


def _form(name: str) -> PreparedForm:
    return PreparedForm(name, name, 0, optimised=True)


def test_runs_take_the_nearest_profiled_batch_and_concurrency() -> None:
    assert COST.run_ns_of(1, 1) == 10
    assert COST.run_ns_of(2, 1) == 30
    assert COST.run_ns_of(8, 1) == 60  # beyond the largest batch in proportion
    assert COST.run_ns_of(1, 3) == 15  # beyond the largest concurrency as that


def test_served_run_times_are_drawn_from_the_seed_alone() -> None:
    """For one item as they are; of four none was seen, so that takes as much longer or shorter than its profile."""
    seen = BuildCost(("door",), 60, 80, 0, 0, {(1, 1): 10, (4, 1): 30}, served_ns=(1, 2, 3))

    def drawn(seed: int) -> list[int]:
        spent: list[int] = []

        async def told() -> None:
            clock = VirtualClock()
            description = ProcessorDescription("dev", "dev", 1, 1, "host", "emulated")
            processor = EmulatedProcessor(clock, description, {"a": seen}, 140, 2, seed)
            handle = await processor.load(_form("a"))
            for _ in range(40):
                start_ns = clock.now_ns()
                await processor.run(handle, ONE, None)
                spent.append(clock.now_ns() - start_ns)
            start_ns = clock.now_ns()
            await processor.run(handle, {"x": np.zeros(4, np.float32)}, None)
            assert clock.now_ns() - start_ns in {3, 6, 9}, "three times what one takes"

        run_virtual(told)
        return spent

    assert set(drawn(1)) == {1, 2, 3}
    assert drawn(1) == drawn(1) != drawn(2)


@story
async def test_load_holds_its_peak_and_then_its_size() -> None:
    processor, clock = _processor()
    handle = await processor.load(_form("a"))
    assert (clock.now_ns() - START_NS, processor.memory.used_bytes, processor.memory.peak_bytes) == (
        100 * NS_PER_MS,
        60,
        80,
    )
    await processor.load(_form("b"))  # 60 + 80 fit exactly
    await processor.unload(handle)
    assert (processor.memory.used_bytes, processor.memory.peak_bytes) == (60, 140)


@story
async def test_loads_beyond_the_parallel_limit_wait_without_memory() -> None:
    processor, clock = _processor(240)
    loads = [asyncio.create_task(processor.load(_form(name))) for name in "abc"]
    await clock.sleep_until_ns(START_NS + 99 * NS_PER_MS)
    assert processor.memory.used_bytes == 160  # the peaks of two
    ends_ns = []
    for load in loads:
        await load
        ends_ns.append(clock.now_ns() - START_NS)
    assert ends_ns == [100 * NS_PER_MS, 100 * NS_PER_MS, 200 * NS_PER_MS]


@story
async def test_unload_runs_beside_loads_and_after_other_unloads() -> None:
    processor, clock = _processor(240)
    handles = [await processor.load(_form(name)) for name in "ab"]
    start_ns = clock.now_ns()
    load = asyncio.create_task(processor.load(_form("c")))
    unloads = [asyncio.create_task(processor.unload(handle)) for handle in handles]
    for unload, size in zip(unloads, (60 + 80, 80), strict=True):
        await unload
        assert processor.memory.used_bytes == size
    assert clock.now_ns() - start_ns == 12
    await load
    assert clock.now_ns() - start_ns == 100 * NS_PER_MS


@story
async def test_waiting_loads_fail_when_the_processor_is_lost() -> None:
    processor, clock = _processor(240)
    loads = [asyncio.create_task(processor.load(_form(name))) for name in "abc"]
    await clock.sleep_until_ns(START_NS + 4)
    processor.lose()
    ends = await asyncio.gather(*loads, return_exceptions=True)
    assert [type(end) for end in ends] == [ProcessorLost] * 3
    assert clock.now_ns() - START_NS == 4
    processor.restore()
    await processor.load(_form("c"))


@pytest.mark.parametrize("crime", ["twice", "unloaded", "gone"])
@story
async def test_impossible_device_operation_breaks_the_simulation(crime: str) -> None:
    processor, _ = _processor()
    handle = await processor.load(_form("a"))
    if crime != "twice":
        await processor.unload(handle)
    crimes: dict[str, Callable[[], Coroutine[Any, Any, object]]] = {
        "twice": lambda: processor.load(_form("a")),
        "unloaded": lambda: processor.unload(handle),
        "gone": lambda: processor.run(handle, ONE, None),
    }
    with pytest.raises(Broken):
        await crimes[crime]()


@story
async def test_load_beyond_the_memory_breaks_the_simulation() -> None:
    processor, clock = _processor()
    cost = BuildCost((), 10, 141, 1, 0, {(1, 1): 1})
    greedy = EmulatedProcessor(clock, processor.describe(), {"a": cost}, 140, loads_parallel_max=1)
    with pytest.raises(Broken):
        await greedy.load(_form("a"))


@story
async def test_lost_processor_aborts_its_run_and_returns_with_its_memory() -> None:
    processor, clock = _processor()
    handle = await processor.load(_form("a"))
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    loop.call_at_ns(clock.now_ns() + 4, processor.lose)
    with pytest.raises(ProcessorLost):
        await processor.run(handle, ONE, None)
    assert clock.now_ns() - START_NS == 100 * NS_PER_MS + 4
    with pytest.raises(ProcessorLost):
        await processor.load(_form("b"))
    assert processor.memory.used_bytes == 60
    processor.restore()
    await processor.run(handle, ONE, None)
    assert (processor.batches, processor.running) == (1, 0)


@story
async def test_failed_load_takes_its_time_and_frees_its_memory() -> None:
    processor, clock = _processor()
    processor.ailments.failing_applications.append("door")
    with pytest.raises(LoadFailed):
        await processor.load(_form("a"))
    assert (clock.now_ns() - START_NS, processor.memory.used_bytes) == (100 * NS_PER_MS, 0)


@story
async def test_sleep_and_wake_take_time_and_memory() -> None:
    """Asleep a build takes what it keeps, a wake takes all of it from the first moment, and twice is once."""
    processor, clock = _processor()
    handle = await processor.load(_form("sleepy"))
    assert processor.can_sleep(handle)
    assert not processor.can_sleep(await processor.load(_form("a")))
    start_ns = clock.now_ns()
    assert [await processor.sleep(handle) for _ in range(2)] == [5, 5]
    assert clock.now_ns() - start_ns == 2
    assert processor.memory.used_bytes == 65
    with pytest.raises(Broken, match="asleep"):
        await processor.run(handle, ONE, None)
    waking = asyncio.create_task(processor.wake(handle))
    await clock.sleep_until_ns(clock.now_ns() + 1)
    assert processor.memory.used_bytes == 120
    await waking
    await processor.wake(handle)
    assert clock.now_ns() - start_ns == 9 == 2 + processor.wake_ns(handle)
    await processor.run(handle, ONE, None)
    await processor.sleep(handle)
    await processor.unload(handle)
    assert processor.memory.used_bytes == 60


@story
async def test_sleep_of_an_unfit_build_is_refused_and_a_lost_wake_stays_asleep() -> None:
    """The first is a mistake of the engine; after the second the build is asleep still."""
    processor, clock = _processor()
    with pytest.raises(Broken, match="cannot"):
        await processor.sleep(await processor.load(_form("a")))
    handle = await processor.load(_form("sleepy"))
    await processor.sleep(handle)
    waking = asyncio.create_task(processor.wake(handle))
    await clock.sleep_until_ns(clock.now_ns() + 1)
    processor.lose()
    with pytest.raises(ProcessorLost):
        await waking
    assert processor.memory.used_bytes == 65
    processor.restore()
    await processor.wake(handle)
    await processor.run(handle, ONE, None)
