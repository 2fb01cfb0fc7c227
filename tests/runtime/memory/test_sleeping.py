"""Builds that sleep: what leaves keeps its session and gives its pages back, and comes again by waking."""

import asyncio
from collections.abc import Collection
from dataclasses import replace

import pytest

from appliance.domain.errors import DeadlineExceeded, LoadFailed, OutOfMemory, ProcessorLost
from appliance.runtime.ports import Occupied
from tests.fakes.clock import settle, story
from tests.fakes.memory import MemoryBench
from tests.fakes.processor import Cost

BUDGET = 100
SLEEPER = Cost(40, 45, load_ms=100, unload_ms=5, asleep_bytes=4, sleep_ms=2, wake_ms=3)


class Idle:
    """Port `IdleProcesses`: processes with nothing awake, which take so much."""

    def __init__(self, bench: MemoryBench, *processes: int) -> None:
        self.processes = list(processes)
        self.asked: list[set[str]] = []
        self._bench = bench
        bench.memory.set_overhead(sum(processes))
        bench.memory.when_short(self)

    def idle_bytes(self, wanted: Collection[str]) -> int:
        return sum(self.processes)

    def occupied(self, wanted: Collection[str]) -> Collection[Occupied]:
        return ()

    def end_idle(self, wanted: Collection[str]) -> bool:
        self.asked.append(set(wanted))
        if not self.processes:
            return False
        self.processes.pop()
        self._bench.memory.set_overhead(sum(self.processes))
        return True


def bench_of(names: str, cost: Cost = SLEEPER, budget: int = BUDGET, share: float = 0.25) -> MemoryBench:
    costs = {name: replace(cost, sleep_failures=[], wake_failures=[], failures=[]) for name in names}
    return MemoryBench(costs, budget, asleep_share=share)


# -- to sleep, and back ------------------------------------------------------------------------------------------------


@story
async def test_evicted_build_sleeps_and_wakes() -> None:
    """The victim of a load keeps its session; its next request wakes it, and has the time that took."""
    bench = bench_of("abc")
    for name in "abc":
        await bench.use(name)
    await bench.pause(1000)
    assert bench.states() == {"a": "asleep", "b": "resident", "c": "resident"}
    assert bench.memory.used_bytes == 84 == sum(bench.processor.memory.values())
    assert bench.memory.snapshot()["asleep_bytes"] == 4
    start_ns = bench.clock.now_ns()
    build = await bench.pin("a")
    assert bench.elapsed_ms(start_ns) == pytest.approx(5, abs=0.01)  # b goes to sleep, a wakes
    assert build.is_woken
    assert build.wake_ns == 3_000_000
    assert (bench.memory.loads, bench.memory.wakes, bench.processor.loads["a"]) == (3, 1, 1)
    bench.memory.unpin(build)
    assert [e["build"] for e in bench.events.of("variant asleep")] == ["a", "b"]
    assert [e["build"] for e in bench.events.of("variant woken")] == ["a"]
    bench.assert_quiet()


@story
async def test_processes_with_nothing_awake_end_for_a_request_without_room() -> None:
    """Two take 30 of 100 beside the builds: a request that finds no room is given theirs, as many as it needs; a load
    ahead of time is not.
    """
    bench = bench_of("ab")
    idle = Idle(bench, 15, 15)
    held = await bench.pin("a")
    with pytest.raises(OutOfMemory):
        await bench.memory.pin("b", 40, 45, None, is_urgent=False)
    assert idle.asked == []
    bench.memory.unpin(await bench.pin("b"))
    assert (idle.processes, idle.asked) == ([15], [{"a", "b"}])
    bench.memory.unpin(held)
    bench.memory.set_overhead(0)
    bench.assert_quiet()


@story
async def test_processes_that_exceed_the_budget_alone_leave_only_pinned_builds() -> None:
    """Builds that are not in use leave, though that is not enough, and processes with nothing awake end."""
    bench = bench_of("ab")
    idle = Idle(bench)
    held = await bench.pin("a")
    await bench.use("b")
    bench.budget = 3 * BUDGET  # what it watches: the ledger is over, whatever it does
    bench.memory.set_overhead(BUDGET)
    bench.memory.set_overhead(10, of="what they are forked of")
    assert bench.memory.snapshot()["overhead_bytes"] == BUDGET + 10
    await bench.pause(1000)
    assert bench.states() == {"a": "resident"}
    bench.memory.unpin(held)
    await bench.pause(1000)
    assert bench.states() == {}
    assert idle.asked
    bench.memory.set_overhead(0)
    bench.memory.set_overhead(0, of="what they are forked of")
    bench.assert_quiet()


@story
async def test_concurrent_requests_join_one_wake() -> None:
    """Twenty requests for a sleeper: one wake, all pinned; a deadline is kept while it wakes."""
    bench = bench_of("a")
    await bench.put_to_sleep("a")
    late = asyncio.create_task(bench.pin("a", deadline_ms=1))
    pinned = await asyncio.gather(*(bench.pin("a") for _ in range(20)))
    with pytest.raises(DeadlineExceeded):
        await late
    assert bench.processor.wakes["a"] == 1
    assert pinned[0].pins == 20
    for build in pinned:
        bench.memory.unpin(build)
    bench.assert_quiet()


@story
async def test_build_on_its_way_to_sleep_is_woken_for_a_request() -> None:
    """Pages are not taken from under a run: a pinned build drains first, and a request for one that leaves waits."""
    bench = bench_of("a")
    held = await bench.pin("a")
    bench.memory.release("a")
    assert bench.states() == {"a": "draining"}
    bench.memory.unpin(held)
    await settle()
    assert bench.states() == {"a": "unloading"}
    await bench.use("a", hold_ms=5)
    assert bench.processor.wakes["a"] == 1
    bench.assert_quiet()


@pytest.mark.parametrize(
    ("cost", "share"),
    [(Cost(40), 0.25), (Cost(40, asleep_bytes=40), 0.25), (SLEEPER, 0.03), (SLEEPER, 0.0)],
    ids=["its kind cannot sleep, or was not measured", "it keeps all", "it keeps more than the share", "no share"],
)
@story
async def test_build_that_may_not_sleep_is_unloaded(cost: Cost, share: float) -> None:
    bench = bench_of("a", cost, share=share)
    await bench.put_to_sleep("a")
    assert (bench.states(), bench.processor.memory, bench.processor.sleeps["a"]) == ({}, {}, 0)


# -- the share ---------------------------------------------------------------------------------------------------------


@story
async def test_sleeping_build_asked_for_longest_ago_is_unloaded() -> None:
    """Sleepers keep to their share of the budget."""
    bench = bench_of("abcd", replace(SLEEPER, resident_bytes=30, peak_bytes=30, asleep_bytes=6), share=0.12)
    await bench.put_to_sleep(*"abcd")
    assert bench.states() == {"c": "asleep", "d": "asleep"}
    assert bench.memory.snapshot()["asleep_bytes"] == 12
    bench.assert_quiet()


@story
async def test_sleeping_builds_give_way_to_a_load() -> None:
    """Where a load finds no room otherwise, as many go for good as it needs."""
    bench = MemoryBench({**{n: replace(SLEEPER) for n in "abc"}, "z": Cost(95, load_ms=10)}, BUDGET)
    await bench.put_to_sleep(*"abc")
    assert bench.memory.snapshot()["asleep_bytes"] == 12
    await bench.use("z")
    assert bench.states() == {"c": "asleep", "z": "resident"}
    bench.assert_quiet()


@story
async def test_sleeping_build_whose_wake_finds_no_room_stays_asleep() -> None:
    """A request that cannot be served leaves the sleeper as it was; so does a load ahead of time in vain."""
    bench = MemoryBench({"a": replace(SLEEPER), "z": Cost(90, load_ms=10)}, BUDGET, wait_ms_max=50)
    await bench.put_to_sleep("a")
    held = await bench.pin("z")
    for is_urgent in (True, False):
        with pytest.raises(OutOfMemory):
            await bench.memory.pin("a", 40, 45, None, is_urgent=is_urgent)
        assert bench.states()["a"] == "asleep"
    bench.memory.unpin(held)
    await bench.use("a")
    assert bench.processor.loads["a"] == 1
    bench.assert_quiet()


@story
async def test_smaller_budget_evicts_resident_builds_before_sleeping_builds() -> None:
    """Until the budget holds."""
    bench = bench_of("ab")
    for name in "ab":
        await bench.use(name)
    bench.memory.resize(10)
    bench.budget = 100
    await bench.pause(1000)
    assert bench.memory.used_bytes <= 10
    assert set(bench.states().values()) <= {"asleep"}


@story
async def test_sleeping_build_counts_its_measured_bytes() -> None:
    """What `sleep` returns goes before the profile, at once and from then on."""
    bench = bench_of("ab")
    await bench.use("a")
    bench.processor.costs["a"].asleep_bytes = 9
    bench.memory.release("a")
    await bench.pause(1000)
    assert bench.memory.used_bytes == 9
    await bench.use("a")
    build = bench.memory.build("a")
    assert build is not None
    assert build.asleep_bytes == 9


# -- for good ----------------------------------------------------------------------------------------------------------


@story
async def test_unloaded_build_does_not_sleep_whatever_its_state() -> None:
    """Awake, asleep, or on the way to sleep."""
    for instant in ("awake", "asleep", "leaving", "draining"):
        bench = bench_of("a")
        held = await bench.pin("a")
        if instant != "draining":
            bench.memory.unpin(held)
        if instant in ("asleep", "leaving"):
            bench.memory.release("a")
        if instant == "asleep":
            await bench.pause(1000)
        elif instant == "leaving":
            await settle()
        unloading = asyncio.create_task(bench.memory.unload("a"))
        await settle()
        if instant == "draining":
            bench.memory.unpin(held)
        await unloading
        assert (bench.states(), bench.processor.memory, bench.memory.used_bytes) == ({}, {}, 0), instant
        await bench.put_to_sleep("a")
        assert bench.states() == {"a": "asleep"}, "loaded again, it may sleep again"


@story
async def test_sleeping_build_whose_process_ends_is_absent() -> None:
    """So is a build whose process ends while it goes to sleep, or wakes."""
    bench = bench_of("a")
    await bench.put_to_sleep("a")
    build = bench.memory.build("a")
    assert build is not None
    bench.processor.end_process(build.handle)
    bench.memory.lost("a")
    await bench.pause(1000)
    assert (bench.states(), bench.memory.used_bytes) == ({}, 0)
    bench.processor.costs["a"].sleep_failures.append(ProcessorLost(processor="fake"))
    await bench.put_to_sleep("a")
    assert (bench.states(), bench.memory.used_bytes) == ({}, 0)
    await bench.put_to_sleep("a")
    waking = asyncio.create_task(bench.use("a"))
    await settle()
    bench.processor.end_process(build.handle)
    bench.memory.lost("a")
    with pytest.raises(LoadFailed):
        await waking
    assert bench.memory.used_bytes == 0
    await bench.use("a")
    bench.assert_quiet()


@story
async def test_build_whose_wake_fails_is_unloaded() -> None:
    """The wake's error is the request's; the next request loads the build."""
    bench = bench_of("a")
    bench.processor.costs["a"].wake_failures.append(LoadFailed(build_id="a", reason="the disk"))
    await bench.put_to_sleep("a")
    with pytest.raises(LoadFailed):
        await bench.use("a")
    await bench.pause(1000)
    assert (bench.processor.memory, bench.memory.used_bytes) == ({}, 0)
    await bench.use("a")
    assert bench.processor.loads["a"] == 2
    bench.assert_quiet()
