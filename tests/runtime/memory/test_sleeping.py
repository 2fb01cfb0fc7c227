"""Builds that sleep: what leaves keeps its session and gives its pages back, and comes again by waking."""

import asyncio
from collections.abc import Callable, Collection
from dataclasses import replace
from functools import partial

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from appliance.domain.errors import ApplianceError, DeadlineExceeded, LoadFailed, OutOfMemory, ProcessorLost
from appliance.domain.states import ResidencyState
from appliance.lab.loop import VirtualLoop
from appliance.runtime.ports import Occupied
from tests.fakes.clock import settle, story
from tests.fakes.memory import MemoryBench
from tests.fakes.processor import Cost
from tests.harness.lanes import examples

BUDGET = 100
SLEEPER = Cost(40, 45, load_ms=100, unload_ms=5, asleep_bytes=4, sleep_ms=2, wake_ms=3)


def bench_of(names: str, cost: Cost = SLEEPER, budget: int = BUDGET, share: float = 0.25) -> MemoryBench:
    costs = {name: replace(cost, sleep_failures=[], wake_failures=[], failures=[]) for name in names}
    return MemoryBench(costs, budget, asleep_share=share)


async def quiet(bench: MemoryBench) -> None:
    """Until what leaves has left."""
    await bench.clock.sleep_until_ns(bench.clock.now_ns() + 1_000_000_000)


def states(bench: MemoryBench) -> dict[str, str]:
    return {b["build"]: b["state"] for b in bench.memory.snapshot()["builds"]}


# -- to sleep, and back ------------------------------------------------------------------------------------------------


@story
async def test_evicted_build_sleeps_and_wakes() -> None:
    """The victim of a load keeps its session; its next request wakes it, and has the time that took."""
    bench = bench_of("abc")
    for name in "abc":
        await bench.use(name)
    await quiet(bench)
    assert states(bench) == {"a": "asleep", "b": "resident", "c": "resident"}
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
    processes = [15, 15]
    bench.memory.set_overhead(30)
    asked: list[set[str]] = []

    class Idle:
        def idle_bytes(self, wanted: Collection[str]) -> int:
            return sum(processes)

        def occupied(self, wanted: Collection[str]) -> Collection[Occupied]:
            return ()

        def end_idle(self, wanted: Collection[str]) -> bool:
            asked.append(set(wanted))
            if processes:
                processes.pop()
                bench.memory.set_overhead(sum(processes))
                return True
            return False

    bench.memory.when_short(Idle())
    held = await bench.pin("a")
    with pytest.raises(OutOfMemory):
        await bench.memory.pin("b", 40, 45, None, is_urgent=False)
    assert asked == []
    bench.memory.unpin(await bench.pin("b"))
    assert (processes, asked) == ([15], [{"a", "b"}])
    bench.memory.unpin(held)
    bench.memory.set_overhead(0)
    bench.assert_quiet()


@story
async def test_processes_that_exceed_the_budget_alone_leave_only_pinned_builds() -> None:
    """Builds that are not in use leave, though that is not enough, and processes with nothing awake end."""
    bench = bench_of("ab")
    ended: list[int] = []

    class Idle:
        def idle_bytes(self, wanted: Collection[str]) -> int:
            return 0

        def occupied(self, wanted: Collection[str]) -> Collection[Occupied]:
            return ()

        def end_idle(self, wanted: Collection[str]) -> bool:
            ended.append(1)
            return False

    bench.memory.when_short(Idle())
    held = await bench.pin("a")
    await bench.use("b")
    bench.budget = 3 * BUDGET  # what it watches: the ledger is over, whatever it does
    bench.memory.set_overhead(BUDGET)
    bench.memory.set_overhead(10, of="what they are forked of")
    assert bench.memory.snapshot()["overhead_bytes"] == BUDGET + 10
    await quiet(bench)
    assert states(bench) == {"a": "resident"}
    bench.memory.unpin(held)
    await quiet(bench)
    assert states(bench) == {}
    assert ended
    bench.memory.set_overhead(0)
    bench.memory.set_overhead(0, of="what they are forked of")
    bench.assert_quiet()


@story
async def test_concurrent_requests_join_one_wake() -> None:
    """Twenty requests for a sleeper: one wake, all pinned; a deadline is kept while it wakes."""
    bench = bench_of("a")
    await bench.use("a")
    bench.memory.release("a")
    await quiet(bench)
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
async def test_request_for_a_build_on_its_way_to_sleep_waits_and_wakes_it() -> None:
    """The pages are not taken from under a run."""
    bench = bench_of("a")
    await bench.use("a")
    bench.memory.release("a")
    await settle()
    build = bench.memory.build("a")
    assert build is not None
    assert build.state is ResidencyState.UNLOADING
    await bench.use("a", hold_ms=5)
    assert bench.processor.wakes["a"] == 1
    bench.assert_quiet()


@story
async def test_pinned_build_sleeps_once_its_last_pin_is_gone() -> None:
    """As an unload: it drains first."""
    bench = bench_of("a")
    held = await bench.pin("a")
    bench.memory.release("a")
    assert held.state is ResidencyState.DRAINING
    bench.memory.unpin(held)
    await quiet(bench)
    assert states(bench) == {"a": "asleep"}


@story
async def test_build_of_a_kind_that_cannot_sleep_is_unloaded() -> None:
    """Nothing is kept. So is a build of which it is not measured what it keeps, and one that keeps all."""
    for cost in (Cost(40), Cost(40, asleep_bytes=40)):
        bench = bench_of("a", cost)
        await bench.use("a")
        bench.memory.release("a")
        await quiet(bench)
        assert (bench.processor.memory, bench.processor.sleeps["a"]) == ({}, 0)


# -- the share ---------------------------------------------------------------------------------------------------------


@story
async def test_sleeping_build_asked_for_longest_ago_is_unloaded() -> None:
    """Sleepers keep to their share of the budget."""
    bench = bench_of("abcd", replace(SLEEPER, resident_bytes=30, peak_bytes=30, asleep_bytes=6), share=0.12)
    for name in "abcd":
        await bench.use(name)
        bench.memory.release(name)
        await quiet(bench)
    assert states(bench) == {"c": "asleep", "d": "asleep"}
    assert bench.memory.snapshot()["asleep_bytes"] == 12
    bench.assert_quiet()


@story
async def test_build_larger_asleep_than_the_share_is_unloaded() -> None:
    """So is every build where the share is nothing."""
    for share in (0.03, 0.0):
        bench = bench_of("a", share=share)
        await bench.use("a")
        bench.memory.release("a")
        await quiet(bench)
        assert states(bench) == {}
        assert bench.processor.memory == {}


@story
async def test_sleeping_builds_give_way_to_a_load() -> None:
    """Where a load finds no room otherwise, as many go for good as it needs."""
    bench = MemoryBench({**{n: replace(SLEEPER) for n in "abc"}, "z": Cost(95, load_ms=10)}, BUDGET)
    for name in "abc":
        await bench.use(name)
        bench.memory.release(name)
        await quiet(bench)
    assert bench.memory.snapshot()["asleep_bytes"] == 12
    await bench.use("z")
    assert states(bench) == {"c": "asleep", "z": "resident"}
    bench.assert_quiet()


@story
async def test_sleeping_build_whose_wake_finds_no_room_stays_asleep() -> None:
    """A request that cannot be served leaves the sleeper as it was; so does a load ahead of time in vain."""
    bench = MemoryBench({"a": replace(SLEEPER), "z": Cost(90, load_ms=10)}, BUDGET, wait_ms_max=50)
    await bench.use("a")
    bench.memory.release("a")
    await quiet(bench)
    held = await bench.pin("z")
    for is_urgent in (True, False):
        with pytest.raises(OutOfMemory):
            await bench.memory.pin("a", 40, 45, None, is_urgent=is_urgent)
        assert states(bench)["a"] == "asleep"
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
    await quiet(bench)
    assert bench.memory.used_bytes <= 10
    assert set(states(bench).values()) <= {"asleep"}


@story
async def test_sleeping_build_counts_its_measured_bytes() -> None:
    """What `sleep` returns goes before the profile, at once and from then on."""
    bench = bench_of("ab")
    await bench.use("a")
    bench.processor.costs["a"].asleep_bytes = 9
    bench.memory.release("a")
    await quiet(bench)
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
            await quiet(bench)
        elif instant == "leaving":
            await settle()
        unloading = asyncio.create_task(bench.memory.unload("a"))
        await settle()
        if instant == "draining":
            bench.memory.unpin(held)
        await unloading
        assert (states(bench), bench.processor.memory, bench.memory.used_bytes) == ({}, {}, 0), instant
        await bench.use("a")
        bench.memory.release("a")
        await quiet(bench)
        assert states(bench) == {"a": "asleep"}, "loaded again, it may sleep again"


@story
async def test_sleeping_build_whose_process_ends_is_absent() -> None:
    """So is a build whose process ends while it goes to sleep, or wakes."""
    bench = bench_of("a")
    await bench.use("a")
    bench.memory.release("a")
    await quiet(bench)
    build = bench.memory.build("a")
    assert build is not None
    bench.processor.end_process(build.handle)
    bench.memory.lost("a")
    await quiet(bench)
    assert (states(bench), bench.memory.used_bytes) == ({}, 0)
    bench.processor.costs["a"].sleep_failures.append(ProcessorLost(processor="fake"))
    await bench.use("a")
    bench.memory.release("a")
    await quiet(bench)
    assert (states(bench), bench.memory.used_bytes) == ({}, 0)
    await bench.use("a")
    bench.memory.release("a")
    await quiet(bench)
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
    await bench.use("a")
    bench.memory.release("a")
    await quiet(bench)
    with pytest.raises(LoadFailed):
        await bench.use("a")
    await quiet(bench)
    assert (bench.processor.memory, bench.memory.used_bytes) == ({}, 0)
    await bench.use("a")
    assert bench.processor.loads["a"] == 2
    bench.assert_quiet()


@story
async def test_close_unloads_builds_in_any_state_of_sleep() -> None:
    bench = bench_of("abc")
    for name in "abc":
        await bench.use(name)
    bench.memory.release("c")
    await settle()
    await bench.memory.close()
    assert (bench.processor.memory, bench.memory.used_bytes) == ({}, 0)


# -- in any order ------------------------------------------------------------------------------------------------------

NAMES = "abcde"
NAME = st.sampled_from(NAMES)
PAUSE = st.sampled_from([30.0, 0.0, 0.5, 2.0, 300.0])
"""Milliseconds, among them less than it takes to fall asleep or to wake, and more than a load."""


class MemoryMachine(RuleBasedStateMachine):
    """Sleep, wake, join, pin, delete, damage and loss in any order, time passing as it likes: the ledger and the
    processor never exceed the budget and agree when nothing is under way; who holds a pin has a live, awake build.
    """

    def __init__(self) -> None:
        super().__init__()
        self.loop = VirtualLoop()
        asyncio.set_event_loop(self.loop)
        self.held: list[tuple[asyncio.Task[None], asyncio.Event]] = []
        self.tasks: list[asyncio.Task[None]] = []

    @initialize(
        sizes=st.lists(st.integers(5, 60), min_size=5, max_size=5),
        kept=st.lists(st.sampled_from([None, 1, 2, 3, 5, 8, 12]), min_size=5, max_size=5),
        share=st.sampled_from([0.25, 0.1, 0.0]),
    )
    def begin(self, sizes: list[int], kept: list[int | None], share: float) -> None:
        costs = {
            name: Cost(size, size + 5, load_ms=20, unload_ms=3, asleep_bytes=None if k is None else min(k, size))
            for name, size, k in zip(NAMES, sizes, kept, strict=True)
        }

        async def made() -> MemoryBench:
            return MemoryBench(costs, BUDGET, wait_ms_max=200, asleep_share=share)

        self.bench = self.loop.run_until_complete(made())
        self.bench.processor.on_memory = self._changed

    def _spawn(self, name: str, leave: asyncio.Event, deadline_ms: float | None) -> asyncio.Task[None]:
        async def use() -> None:
            build = await self.bench.pin(name, deadline_ms)
            try:
                assert build.handle is None or build.handle.is_live
                assert build.handle is None or not build.handle.is_asleep
                await leave.wait()
            finally:
                self.bench.memory.unpin(build)

        return self.loop.create_task(use())

    @rule(names=st.lists(NAME, min_size=1, max_size=4), ms=PAUSE)
    def use(self, names: list[str], ms: float) -> None:
        for name in names:
            leave = asyncio.Event()
            leave.set()
            self.tasks.append(self._spawn(name, leave, None))
            self._pass(ms)

    @rule(name=NAME, deadline_ms=st.none() | st.sampled_from([1.0, 15.0]), ms=PAUSE)
    def hold(self, name: str, deadline_ms: float | None, ms: float) -> None:
        leave = asyncio.Event()
        self.held.append((self._spawn(name, leave, deadline_ms), leave))
        self._pass(ms)

    @precondition(lambda self: self.held)
    @rule(data=st.data(), cancel=st.sampled_from([False, False, True]), ms=PAUSE)
    def answer(self, data: st.DataObject, cancel: bool, ms: float) -> None:
        task, leave = self.held.pop(data.draw(st.integers(0, len(self.held) - 1)))
        leave.set()
        if cancel:
            task.cancel()
        self.tasks.append(task)
        self._pass(ms)

    @rule(names=st.lists(NAME, min_size=1, max_size=3), ms=PAUSE)
    def release(self, names: list[str], ms: float) -> None:
        for name in names:
            self._do(partial(self.bench.memory.release, name))
        self._pass(ms)

    @rule(name=NAME, how=st.sampled_from(["delete", "nobody refers to it"]), ms=PAUSE)
    def remove(self, name: str, how: str, ms: float) -> None:
        if how == "delete":
            self.tasks.append(self.loop.create_task(self.bench.memory.unload(name)))
        else:
            self._do(lambda: self.bench.memory.dismiss(name))
        self._pass(ms)

    @rule(name=NAME, what=st.sampled_from(["disk", "guard", "loss", "less memory", "more memory"]), ms=PAUSE)
    def trouble(self, name: str, what: str, ms: float) -> None:
        costs, build = self.bench.processor.costs[name], self.bench.memory.build(name)
        if what == "disk":
            costs.wake_failures[:] = [LoadFailed(build_id=name, reason="drawn")]
        elif what == "guard":
            costs.sleep_failures[:] = [ProcessorLost(processor="fake")]
        elif what != "loss":
            self._do(lambda: self.bench.memory.resize(60 if what == "less memory" else BUDGET))
        elif build is not None and not build.pins and build.state in (ResidencyState.RESIDENT, ResidencyState.ASLEEP):
            self.bench.processor.end_process(build.handle)
            self._do(lambda: self.bench.memory.lost(name))
        self._pass(ms)

    def _pass(self, ms: float) -> None:
        self.loop.run_until_complete(asyncio.sleep(ms / 1000))  # noqa: TID251 - the loop is virtual

    def _do(self, act: Callable[[], None]) -> None:
        async def doing() -> None:
            act()

        self.loop.run_until_complete(doing())

    def _changed(self, used_bytes: int) -> None:
        """At every change of what is really there: the ledger counts no less, and only a smaller budget is exceeded."""
        self.bench.watch()
        assert used_bytes <= self.bench.memory.used_bytes, "the ledger counts less than is there"

    @invariant()
    def the_books_hold(self) -> None:
        if hasattr(self, "bench"):
            self._changed(sum(self.bench.processor.memory.values()))

    def teardown(self) -> None:
        if not hasattr(self, "bench"):
            self.loop.close()
            return

        async def end() -> None:
            for task, leave in self.held:
                leave.set()
                self.tasks.append(task)
            answers = await asyncio.gather(*self.tasks, return_exceptions=True)
            for answer in answers:
                assert answer is None or isinstance(answer, ApplianceError | asyncio.CancelledError), repr(answer)
            self.bench.memory.resize(BUDGET)
            await quiet(self.bench)
            self.bench.assert_quiet()
            assert self.bench.memory.used_bytes == sum(self.bench.processor.memory.values())
            await self.bench.memory.close()
            assert (self.bench.processor.memory, self.bench.memory.used_bytes) == ({}, 0)

        self.loop.run_until_complete(end())
        self.loop.close()
        asyncio.set_event_loop(None)


def test_memory_keeps_its_budget_and_pins_with_sleep_in_any_order() -> None:
    """See `MemoryMachine`."""
    run_state_machine_as_test(
        MemoryMachine,
        settings=settings(examples(gate=60), stateful_step_count=40, suppress_health_check=[HealthCheck.too_slow]),
    )
