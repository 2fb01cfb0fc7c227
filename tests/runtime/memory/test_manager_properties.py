"""Whatever happens in whatever order: the budget holds, pins hold, everybody gets an answer, and the books balance
in the end.
"""

import asyncio
from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from appliance.domain.errors import ApplianceError, LoadFailed, ProcessorLost
from appliance.domain.states import ResidencyState
from appliance.lab.loop import VirtualLoop
from tests.fakes.clock import story
from tests.fakes.memory import MemoryBench
from tests.fakes.processor import Cost
from tests.harness.lanes import examples

pytestmark = pytest.mark.gate("a whole engine for minutes of virtual time")

BUDGET = 100
NAMES = "abcde"
NAME = st.sampled_from(NAMES)
PAUSE = st.sampled_from([30.0, 0.0, 0.5, 2.0, 300.0])
"""Milliseconds, among them less than it takes to fall asleep or to wake, and more than a load."""


class MemoryMachine(RuleBasedStateMachine):
    """Load, sleep, wake, join, pin, delete, damage, loss and the end in any order, time passing as it likes: the ledger
    and the processor never exceed the budget and agree when nothing is under way; who holds a pin has a live, awake
    build; every caller has an answer. Where builds turn out to be of another size than they had, the budget holds in
    the end.
    """

    def __init__(self) -> None:
        super().__init__()
        self.loop = VirtualLoop()
        asyncio.set_event_loop(self.loop)
        self.held: list[tuple[asyncio.Task[None], asyncio.Event]] = []
        self.tasks: list[asyncio.Task[None]] = []
        self.is_closed = False

    @initialize(
        sizes=st.lists(st.integers(5, 60), min_size=5, max_size=5),
        kept=st.lists(st.sampled_from([None, 1, 2, 3, 5, 8, 12]), min_size=5, max_size=5),
        share=st.sampled_from([0.25, 0.1, 0.0]),
        unload_ms=st.sampled_from([3, 30]),
        is_exact=st.sampled_from([True, True, False]),
        ends_early=st.sampled_from([False, False, True]),
    )
    def begin(
        self,
        sizes: list[int],
        kept: list[int | None],
        share: float,
        unload_ms: int,
        is_exact: bool,
        ends_early: bool,
    ) -> None:
        self.is_exact, self.ends_early = is_exact, ends_early
        costs = {
            name: Cost(size, size + 5, load_ms=20, unload_ms=unload_ms, asleep_bytes=k and min(k, size))
            for name, size, k in zip(NAMES, sizes, kept, strict=True)
        }

        async def made() -> MemoryBench:
            return MemoryBench(costs, BUDGET, wait_ms_max=200, asleep_share=share, watched=is_exact)

        self.bench = self.loop.run_until_complete(made())
        self.bench.processor.on_memory = self._changed

    def _spawn(self, name: str, leave: asyncio.Event, deadline_ms: float | None) -> asyncio.Task[None]:
        async def use() -> None:
            build = await self.bench.pin(name, deadline_ms)
            try:
                assert build.handle is None or build.handle.is_live
                assert build.handle is None or not build.handle.is_asleep
                await leave.wait()
                assert self.is_closed or (build.handle.is_live and not build.handle.is_asleep)
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

    @rule(name=NAME, what=st.sampled_from(["file", "disk", "guard", "loss", "less memory", "more memory"]), ms=PAUSE)
    def trouble(self, name: str, what: str, ms: float) -> None:
        costs, build = self.bench.processor.costs[name], self.bench.memory.build(name)
        if what == "file":
            costs.failures.append(LoadFailed(build_id=name, reason="drawn"))
        elif what == "disk":
            costs.wake_failures[:] = [LoadFailed(build_id=name, reason="drawn")]
        elif what == "guard":
            costs.sleep_failures[:] = [ProcessorLost(processor="fake")]
        elif what != "loss":
            self._do(lambda: self.bench.memory.resize(60 if what == "less memory" else BUDGET))
        elif build is not None and not build.pins and build.state in (ResidencyState.RESIDENT, ResidencyState.ASLEEP):
            self.bench.processor.end_process(build.handle)
            self._do(lambda: self.bench.memory.lost(name))
        self._pass(ms)

    @precondition(lambda self: not self.is_exact)
    @rule(name=NAME, size=st.integers(1, 90), ms=PAUSE)
    def measure(self, name: str, size: int, ms: float) -> None:
        self._do(lambda: self.bench.memory.update_figures(name, size, size))
        self._pass(ms)

    def _pass(self, ms: float) -> None:
        self.loop.run_until_complete(asyncio.sleep(ms / 1000))  # noqa: TID251 - the loop is virtual

    def _do(self, act: Callable[[], None]) -> None:
        async def doing() -> None:
            act()

        self.loop.run_until_complete(doing())

    def _changed(self, used_bytes: int) -> None:
        """At every change of what is really there: the ledger counts no less, and only a smaller budget is exceeded."""
        if not self.is_exact:
            return
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
            if self.ends_early:
                self.is_closed = True
                await self.bench.memory.close()
            for task, leave in self.held:
                leave.set()
                self.tasks.append(task)
            answers = await asyncio.gather(*self.tasks, return_exceptions=True)
            for answer in answers:
                assert answer is None or isinstance(answer, ApplianceError | asyncio.CancelledError), repr(answer)
            if not self.ends_early:
                self.bench.memory.resize(BUDGET)
                await self.bench.pause(1000)
                self.bench.assert_quiet()
                assert self.bench.memory.used_bytes <= BUDGET
                there = sum(self.bench.processor.memory.values())
                assert not self.is_exact or self.bench.memory.used_bytes == there
                assert self.bench.memory.loads == len(self.bench.events.of("variant loaded"))
            await self.bench.memory.close()
            assert (self.bench.processor.memory, self.bench.memory.used_bytes) == ({}, 0)

        self.loop.run_until_complete(end())
        self.loop.close()
        asyncio.set_event_loop(None)


def test_memory_keeps_its_budget_and_pins_in_any_order() -> None:
    """See `MemoryMachine`."""
    run_state_machine_as_test(
        MemoryMachine,
        settings=settings(examples(gate=100), stateful_step_count=40, suppress_health_check=[HealthCheck.too_slow]),
    )


@examples(gate=50)
@given(order=st.lists(NAME, min_size=1, max_size=30), hold_ms=st.sampled_from([0, 1, 20]))
@story
async def test_requests_without_deadlines_all_succeed_in_any_memory(order: list[str], hold_ms: int) -> None:
    """Without failures, deadlines and hurry, every request is served however small the memory: waiting always ends
    well.
    """
    bench = MemoryBench({name: Cost(10, 20, load_ms=5, unload_ms=5) for name in NAMES}, 25, wait_ms_max=60_000)
    await asyncio.gather(*(bench.use(build, hold_ms) for build in order))
    bench.assert_quiet()
