"""Starts of planned batches are reserved: a worker is free for each, and gaps are filled by what ends before."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

import pytest

from appliance.clock import NS_PER_MS
from appliance.domain.request import Result
from appliance.domain.slots import PlannedBatch, Slot
from appliance.runtime.sessions.batches import Batches
from appliance.runtime.sessions.frame import PLANNED_PRIORITY
from tests.fakes.clock import ms, settle, story
from tests.fakes.engine import EngineBench
from tests.fakes.processor import Cost
from tests.runtime.at_work import engine, warm
from tests.runtime.serving.floods import flood

RUN_MS, GRACE_MS = 30, 3
FLOOD = "u/flood"


class Plan:
    """One tenant's planned batches of two frames each, on a bench at work; its time begins with it."""

    def __init__(self, bench: EngineBench) -> None:
        self.bench = bench
        self.batches = Batches(bench.clock, bench.queue, "lane", "t")
        self.began_ns = bench.clock.now_ns()

    def now_ms(self) -> float:
        return ms(self.bench.clock.now_ns() - self.began_ns)

    def put(self, *starts_ms: float, takes_ms: float = RUN_MS) -> None:
        """From now on these batches are planned; frames are numbered by their starts."""
        self.batches.plan(
            PlannedBatch(
                self.began_ns + int(at * NS_PER_MS),
                int(takes_ms * NS_PER_MS),
                int(GRACE_MS * NS_PER_MS),
                frozenset((name, int(at)) for name in "ab"),
                {0: int(takes_ms * NS_PER_MS), 1: int(3 * takes_ms * NS_PER_MS)} if self.bench.twins else {},
            )
            for at in starts_ms
        )

    async def until_ms(self, at_ms: float) -> None:
        await self.bench.clock.sleep_until_ns(self.began_ns + int(at_ms * NS_PER_MS))

    async def frame(self, name: str, start_ms: float, come_ms: float) -> float:
        """A frame of a batch, which comes then; returns when its run began."""
        await self.until_ms(come_ms)
        member = name, int(start_ms)
        slot = self.batches.slot(member, is_planned=True)
        result = await self.bench.infer(slot=slot, priority=PLANNED_PRIORITY)
        self.batches.ended(member)
        return self.now_ms() - ms(result.compute_ns)

    @property
    def has_reserved(self) -> bool:
        """Whether a start is reserved."""
        return self.bench.queue.scheduler.lanes.has_reserved

    async def frames(self, start_ms: float, *come_ms: float) -> list[float]:
        """Both frames of a batch, which come then; when their run began."""
        return await asyncio.gather(*(self.frame(name, start_ms, at) for name, at in zip("ab", come_ms, strict=True)))

    def ask(self, application: str = FLOOD, **facts: Any) -> asyncio.Task[Result]:
        """A request that no batch plans."""
        tenant = application.partition("/")[0]
        return asyncio.create_task(self.bench.infer(application=application, tenant=tenant, **facts))


@asynccontextmanager
async def planned(others: Mapping[str, Cost] | None = None, **facts: Any) -> AsyncIterator[Plan]:
    """A plan for `t/app`, beside other applications; all of them are in memory."""
    bench = engine(Cost(run_ms=20, load_ms=0, run_ms_by_batch={2: RUN_MS}), **facts)
    async with warm(bench):
        for application, cost in (others or {}).items():
            tenant, name = application.split("/")
            bench.add({"v": cost}, name=name, tenant=tenant)
            await bench.infer(application=application, tenant=tenant)
        yield Plan(bench)


@story
async def test_reserved_starts_are_kept_under_a_flood() -> None:
    """Another tenant asks without end, in runs that fit no whole number of times: batches begin within their grace, a
    tenth of their run, and no gap loses more than it is too short for.
    """
    async with planned({FLOOD: Cost(run_ms=8, load_ms=0)}) as plan:
        starts = [50.0 + 100.0 * at for at in range(20)]
        async with flood(plan.bench, FLOOD, 5) as others:
            plan.put(*starts)
            began = [max(both) for both in await asyncio.gather(*(plan.frames(at, at - 20, at + 1) for at in starts))]
            late = sum(start > at + GRACE_MS for at, start in zip(starts, began, strict=True))
            assert late == 0
            assert all(at <= start for at, start in zip(starts, began, strict=True))
            assert (plan.batches.counts.full, plan.batches.counts.late) == (20, 0)
            came_ms = [ms(at_ns - plan.began_ns) for at_ns in others.answers_ns]
            assert len([at for at in came_ms if 80 <= at <= max(began)]) == 19 * (70 // 8)


@story
async def test_no_start_is_reserved_once_its_batch_has_begun() -> None:
    async with planned() as plan:
        plan.put(20)
        assert plan.has_reserved
        await plan.frames(20, 5, 10)
        assert not plan.has_reserved


@story
async def test_complete_batch_begins_before_its_reserved_start() -> None:
    """A run under way is all that it waits for, and others in line come after."""
    async with planned({FLOOD: Cost(run_ms=8, load_ms=0)}) as plan:
        plan.put(90)
        async with flood(plan.bench, FLOOD, 5):
            began = await plan.frames(90, 12, 20)
        assert list(began) == [24, 24]
    assert plan.batches.counts.late == 0


@story
async def test_reserved_start_without_frames_holds_its_worker_for_its_grace_only() -> None:
    """The start and its grace are over: the worker goes on with what waited. A pool that ends gives its starts back."""
    async with planned({FLOOD: Cost(run_ms=8, load_ms=0)}) as plan:
        plan.put(5, 100)
        await plan.ask()
        assert plan.now_ms() == pytest.approx(5 + GRACE_MS + 1 + 8, abs=0.1)
        before = plan.ask()
        await plan.until_ms(96)
        await before
        waits = plan.ask()
        await plan.until_ms(98)
        plan.batches.plan(())
        await waits
        assert plan.now_ms() == 106
        assert not plan.has_reserved


@story
async def test_device_that_sends_no_frames_has_no_starts_reserved() -> None:
    """Starts without frames cost their tenant nothing: after two in a row none is reserved, until a frame comes again.
    Then they are all reserved.
    """
    async with planned({"u/long": Cost(run_ms=48, load_ms=0)}) as plan:
        starts = [20.0 + 50.0 * at for at in range(20)]
        plan.put(*starts)
        await plan.ask("u/long")
        assert plan.now_ms() == pytest.approx(70 + GRACE_MS + 1 + 48, abs=0.1)
        plan.put(*starts[3:])
        assert not plan.has_reserved
        began = await plan.frames(220, 200, 200)
        assert began == [200, 200]
        waits = plan.ask("u/long")
        began = await plan.frames(270, 268, 271)
        assert began == [271, 271]
        assert not waits.done()
        await waits


@story
async def test_run_too_long_for_every_gap_waits_for_some_seconds() -> None:
    """The tenant's own: its planned batches go first, but nothing waits for ever. Shorter ones pass it meanwhile."""
    async with planned({"t/long": Cost(run_ms=45, load_ms=0), "t/short": Cost(run_ms=8, load_ms=0)}) as plan:
        long_one = plan.ask("t/long")
        plan.put(*range(0, 8000, 60))
        for at in range(0, 4800, 60):
            short = plan.ask("t/short")
            began = await plan.frames(at, at - 1, at - 1)
            await short
            assert max(began) <= at + GRACE_MS, at
        assert not long_one.done()
        await plan.until_ms(5200)
        assert long_one.done()


@story
async def test_tenant_with_reserved_starts_has_no_more_than_its_share() -> None:
    """It has planned nine tenths of the time; another tenant of equal weight asks for as much as it can get, in runs
    that no gap is long enough for, and has about half.
    """
    async with planned({FLOOD: Cost(run_ms=20, load_ms=0)}) as plan, flood(plan.bench, FLOOD, 5) as others:
        for start in count(0, 33):
            if plan.now_ms() > 4000:
                break
            at = max(start, plan.now_ms())
            plan.put(at)
            await plan.frames(at, at, at)
        assert 20 * len(others.answers_ns) / plan.now_ms() == pytest.approx(0.5, abs=0.1)


@story
async def test_shared_run_ends_before_a_reserved_start() -> None:
    """A run of one row fits, and of eight it would not: as many join as end before."""
    gains = {2: 11.0, 4: 13.0, 8: 22.0}
    async with planned({FLOOD: Cost(run_ms=10, load_ms=0, run_ms_by_batch=gains)}) as plan:
        plan.put(15, 80)
        waiting = [plan.ask() for _ in range(9)]
        await settle()
        began = await plan.frames(15, 14, 15)
        assert max(began) <= 15 + GRACE_MS
        await asyncio.gather(*waiting)
    rows = [len(inputs["x"]) for inputs in plan.bench.processor.ran][2:]
    assert rows[0] == 1
    assert sum(rows) == 11


@pytest.mark.parametrize("twins", [(), [(1, 100.0, 0.01)]], ids=["one group", "several"])
@story
async def test_shared_run_is_unbounded_once_no_start_is_reserved(twins: list[tuple[int, float, float]]) -> None:
    """A request that was weighed against a start that is gone is bounded by it no more."""
    gains = {2: 11.0, 4: 13.0, 8: 16.0}
    async with planned({FLOOD: Cost(run_ms=10, load_ms=0, run_ms_by_batch=gains)}, twins=twins) as plan:
        plan.put(5)
        waiting = [plan.ask() for _ in range(8)]
        await settle()
        assert plan.bench.processor.running == 0
        plan.batches.plan(())
        await asyncio.gather(*waiting)
    elsewhere = sum(len(twin.ran) for twin in plan.bench.twins)
    assert elsewhere <= 1
    assert [len(inputs["x"]) for inputs in plan.bench.processor.ran][2:] == [8 - elsewhere]


@story
async def test_reserved_start_keeps_the_best_of_several_processors() -> None:
    """The start is on the quick core: a run that fits no gap there goes to the slow one, or waits; and a frame that no
    batch plans (one with a promise of latency) is kept from nothing.
    """
    async with planned({FLOOD: Cost(run_ms=25, load_ms=0)}, twins=[(1, 3.0, 1 / 3)]) as plan:
        starts = [20.0 + 60.0 * at for at in range(10)]
        async with flood(plan.bench, FLOOD, 3):
            plan.put(*starts)
            await settle()
            began = await asyncio.gather(*(plan.frames(at, at - 1, at - 1) for at in starts))
        assert all(max(both) <= at + GRACE_MS for at, both in zip(starts, began, strict=True))
        await plan.until_ms(2000)
        plan.put(2010)
        now = plan.bench.processor.running
        promised = plan.ask(slot=Slot(is_planned=True))
        await settle()
        assert plan.bench.processor.running == now + 1
        await promised


@story
async def test_inline_run_that_would_delay_a_reserved_start_takes_a_worker() -> None:
    """Of a lone connection: where a start comes before the run would be over, it waits for a worker as all
    others do.
    """
    async with planned({"u/other": Cost(run_ms=4, load_ms=0)}, quick_ms_max=0.25, alone_ms_max=10) as plan:
        await plan.bench.pause(2000)
        plan.began_ns = plan.bench.clock.now_ns()
        runs = []
        plan.put(12)
        for at in (0, 10):
            await plan.until_ms(at)
            before = sum(worker.runs for worker in plan.bench.engine.workers)
            asked = plan.ask("u/other", source=1)
            await settle()
            if at:
                await plan.frames(12, 11, 11.5)
            await asked
            runs.append(sum(worker.runs for worker in plan.bench.engine.workers) - before)
        assert runs == [0, 2], "on the loop; behind the batch, on the worker"
