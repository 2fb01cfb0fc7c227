"""The memory manager: pins kept, the budget never exceeded, and nothing left behind when builds go."""

import asyncio

import pytest

from appliance.domain.errors import DeadlineExceeded, LoadFailed, ShuttingDown
from appliance.domain.states import ResidencyState
from tests.fakes.clock import settle, story
from tests.fakes.memory import MemoryBench
from tests.fakes.processor import Cost

# -- pinning -----------------------------------------------------------------------------------------------------------


@story
async def test_first_pin_loads_the_build_and_the_next_finds_it() -> None:
    """A cold pin takes the load time, and twenty at once join one load; then the build is pinned without waiting."""
    bench = MemoryBench({"a": Cost(10, 15, load_ms=100)}, budget=20)
    assert bench.memory.pin_resident("a") is None
    start_ns = bench.clock.now_ns()
    pinned = await asyncio.gather(*(bench.pin("a") for _ in range(20)))
    assert bench.elapsed_ms(start_ns) == pytest.approx(100, abs=0.01)
    assert bench.memory.pin_resident("a") is pinned[0]
    assert (bench.processor.loads["a"], pinned[0].pins, bench.memory.used_bytes) == (1, 21, 10)
    for _ in range(21):
        bench.memory.unpin(pinned[0])
    bench.assert_quiet()


@story
async def test_warm_pin_counts_as_use_of_its_build() -> None:
    """The other build is the longest unused then."""
    bench = MemoryBench({n: Cost(10) for n in "abc"}, budget=20)
    await bench.use("a")
    await bench.use("b", hold_ms=1)
    held = bench.memory.pin_resident("a")
    assert held is not None
    bench.memory.unpin(held)
    await bench.use("c")
    assert bench.resident() == ["a", "c"]


# -- unloading ---------------------------------------------------------------------------------------------------------


@story
async def test_unload_gives_memory_back_and_leaves_no_record() -> None:
    """Once, however often it is asked for; also of a build that failed, or was never there."""
    bench = MemoryBench({"a": Cost(unload_ms=5), "b": Cost(failures=[ValueError()])}, budget=10)
    await bench.use("a")
    with pytest.raises(LoadFailed):
        await bench.use("b")
    await asyncio.gather(*(bench.memory.unload(name) for name in ("a", "a", "b", "never seen")))
    assert (bench.processor.memory, bench.memory.used_bytes, bench.processor.unloads["a"]) == ({}, 0, 1)
    assert (bench.memory.build("a"), bench.memory.snapshot()["builds"]) == (None, [])
    await bench.use("a")
    assert bench.processor.loads["a"] == 2


@story
async def test_unload_waits_for_pins() -> None:
    """A build in use drains: its user is not disturbed, a later request waits and loads it anew, or is too late."""
    bench = MemoryBench({"a": Cost(load_ms=10, unload_ms=5)}, budget=10)
    held = await bench.pin("a")
    unloading = asyncio.create_task(bench.memory.unload("a"))
    await settle()
    assert held.state is ResidencyState.DRAINING
    assert bench.memory.pin_resident("a") is None
    later = asyncio.create_task(bench.use("a"))
    with pytest.raises(DeadlineExceeded):
        await bench.use("a", deadline_ms=10)
    assert not later.done()
    assert held.handle.is_live
    bench.memory.unpin(held)
    await unloading
    await later
    assert bench.processor.loads["a"] == 2
    bench.assert_quiet()


@story
async def test_unload_during_a_load_serves_waiting_requests_first() -> None:
    """The load is seen through, then the build goes."""
    bench = MemoryBench({"a": Cost(load_ms=50)}, budget=10)
    user = asyncio.create_task(bench.use("a", hold_ms=20))
    await settle()
    await bench.memory.unload("a")
    await user
    assert bench.processor.memory == {}
    assert bench.processor.loads["a"] <= 2


@story
async def test_failed_unload_is_reported_and_frees_the_memory() -> None:
    """The device could not unload properly: the build is gone all the same, the event has the reason, and no caller
    hangs.
    """
    bench = MemoryBench({"a": Cost()}, budget=10)
    residency = await bench.pin("a")
    bench.memory.unpin(residency)
    residency.handle.is_live = False  # the fake refuses to unload twice
    await bench.memory.unload("a")
    assert "unloaded twice" in bench.events.of("variant unloaded")[0]["reason"]
    assert bench.memory.used_bytes == 0


# -- measured anew -----------------------------------------------------------------------------------------------------


@story
async def test_new_figures_of_a_resident_build_count_at_once() -> None:
    """A smaller size frees room for a load that waits; figures of an unknown build are ignored."""
    bench = MemoryBench({"a": Cost(10), "b": Cost(5)}, budget=10)
    bench.memory.update_figures("unknown", 5, 5)
    held = await bench.pin("a")
    waiting = asyncio.create_task(bench.use("b"))
    await settle()
    bench.processor.memory["a"] = 5
    bench.memory.update_figures("a", 5, 5)
    await waiting
    assert bench.resident() == ["a", "b"]
    bench.memory.unpin(held)
    bench.assert_quiet()


@story
async def test_growing_figures_evict_the_longest_unused_build() -> None:
    """A build measured larger pushes the ledger over the budget: the longest unused leaves until it fits again."""
    bench = MemoryBench({n: Cost(5) for n in "ab"}, budget=10, watched=False)
    await bench.use("a")
    await bench.use("b", hold_ms=1)
    bench.memory.update_figures("b", 8, 8)
    await settle()
    assert bench.resident() == ["b"]
    await bench.unloaded("a")


@pytest.mark.parametrize("deadline_ms", [None, 10], ids=["awaited", "given up"])
@story
async def test_growing_figures_of_a_loading_build_evict_when_it_is_loaded(deadline_ms: float | None) -> None:
    """Measured while it loads: the new size counts when the build is there, and the longest unused makes room for it at
    once, though no request waits for the load any more.
    """
    bench = MemoryBench({"a": Cost(5), "b": Cost(5, load_ms=50)}, budget=10, watched=False)
    await bench.use("a")
    user = asyncio.create_task(bench.use("b", 50, deadline_ms))
    await settle()
    bench.memory.update_figures("b", 9, 9)
    await asyncio.wait([user])
    assert isinstance(user.exception(), DeadlineExceeded if deadline_ms else type(None))
    await bench.pause(100)
    assert bench.resident() == ["b"]
    assert bench.memory.used_bytes == 9


# -- the end -----------------------------------------------------------------------------------------------------------


@story
async def test_close_unloads_every_build() -> None:
    """Free, pinned, draining, loading and waiting builds: all are gone, and all waiting callers have an answer."""
    bench = MemoryBench({n: Cost(10, load_ms=50) for n in "abcdef"}, budget=40)
    await bench.use("a")
    pinned, draining = await bench.pin("b"), await bench.pin("c")
    unloading = asyncio.create_task(bench.memory.unload("c"))
    held = await bench.pin("a")
    await settle()
    loading = asyncio.create_task(bench.pin("d"))
    waiting = asyncio.create_task(bench.pin("e"))
    await settle()
    start_ns = bench.clock.now_ns()
    await bench.memory.close()
    assert (
        bench.elapsed_ms(start_ns) < 100
    )  # it waits for the load that a thread works on, not for the one without room
    assert bench.processor.memory == {}
    assert bench.memory.used_bytes == 0
    for task in (waiting, loading):
        with pytest.raises(ShuttingDown):
            await task
    await unloading
    with pytest.raises(ShuttingDown):
        await bench.pin("f")
    for residency in (pinned, draining, held):
        bench.memory.unpin(residency)


# -- what is shown -----------------------------------------------------------------------------------------------------


@story
async def test_resident_set_has_the_most_recently_used_build_first() -> None:
    """The order in which a restart should bring builds back."""
    bench = MemoryBench({n: Cost(5) for n in "abc"}, budget=20)
    for name in "abca":
        await bench.use(name, hold_ms=1)
    assert bench.memory.resident_set() == ["a", "c", "b"]


@story
async def test_memory_snapshot_has_the_facts_of_each_build() -> None:
    """State, bytes, pins, loads and applications of each build, and the counters."""
    bench = MemoryBench({"a": Cost(10, 15, load_ms=100)}, budget=20)
    held = await bench.pin("a")
    await bench.pause(7)
    shown = bench.memory.snapshot()
    assert (shown["budget_bytes"], shown["used_bytes"], shown["loads"], shown["evictions"]) == (20, 10, 1, 0)
    (build,) = shown["builds"]
    assert build.pop("idle_ms") == pytest.approx(7, abs=0.01)
    assert build.pop("load_ms") == pytest.approx(100, abs=0.01)
    assert build == {
        "build": "a", "state": "resident", "bytes": 10, "resident_bytes": 10, "peak_bytes": 15, "pins": 1,
        "wakes": 0, "wake_ms": 0,
        "loads": 1, "applications": ["t/a"],
    }  # fmt: skip
    bench.memory.unpin(held)
