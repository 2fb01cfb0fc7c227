"""Starts of planned batches are reserved: a worker is free for each, and gaps are filled by what ends before."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import count
from typing import Any

import pytest
import uvloop

from appliance.clock import NS_PER_MS, SystemClock
from appliance.runtime.serving.queue import Queue
from appliance.runtime.serving.reservations import Reservation, Reservations
from appliance.runtime.sessions.batches import Batches, PlannedBatch
from appliance.runtime.sessions.frame import PLANNED_PRIORITY
from tests.fakes.clock import ms, settle, story
from tests.fakes.engine import EngineBench
from tests.fakes.processor import Cost

RUN_MS, GRACE_MS = 30, 3
FLOOD = "u/flood"


class Plan:
    """One tenant's planned batches of two frames each, on a bench of one application."""

    def __init__(self, **facts: Any) -> None:
        self.bench = EngineBench(**facts)
        self.bench.add({"v": Cost(run_ms=20, load_ms=0, run_ms_by_batch={2: RUN_MS})})
        self.batches = Batches(self.bench.clock, "t", self.bench.engine.reservations)
        self.began_ns = 0

    async def warm(self, *others: str) -> None:
        """Everything is in memory; the plan's time begins."""
        await self.bench.infer()
        for name in others:
            await self.bench.infer(application=name, tenant=name.partition("/")[0])
        self.began_ns = self.bench.clock.now_ns()

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
        number = await self.batches.wait((name, int(start_ms)))
        result = await self.bench.infer(batch=number, is_planned=True, priority=PLANNED_PRIORITY)
        self.batches.ended((name, int(start_ms)))
        return self.now_ms() - ms(result.compute_ns)

    @contextmanager
    def flood(self, application: str = FLOOD, callers: int = 5) -> Iterator[list[float]]:
        """Callers that ask again as soon as they are answered; when each answer came."""
        answers: list[float] = []

        async def call() -> None:
            while True:
                await self.bench.infer(application=application, tenant=application.partition("/")[0])
                answers.append(self.now_ms())

        tasks = [asyncio.create_task(call()) for _ in range(callers)]
        try:
            yield answers
        finally:
            for task in tasks:
                task.cancel()


@story
async def test_reserved_starts_are_kept_under_a_flood() -> None:
    """Another tenant asks without end, in runs that fit no whole number of times: batches begin within their grace, a
    tenth of their run, and no gap loses more than it is too short for."""
    plan = Plan()
    plan.bench.add({"v": Cost(run_ms=8, load_ms=0)}, name="flood", tenant="u")
    async with plan.bench.working():
        await plan.warm(FLOOD)
        starts = [50.0 + 100.0 * at for at in range(20)]
        with plan.flood() as answers:
            plan.put(*starts)
            frames = [plan.frame(name, at, at + late) for at in starts for name, late in (("a", -20), ("b", 1))]
            began = await asyncio.gather(*frames)
            assert all(at <= start <= at + GRACE_MS for at, start in zip(sorted(2 * starts), began, strict=True))
            assert plan.batches.counts.full == 20
            assert plan.batches.counts.late == 0
            ends_ms = max(began) + RUN_MS
            in_gaps = [at for at in answers if 80 <= at <= ends_ms - RUN_MS]
            assert len(in_gaps) == 19 * (70 // 8)


@story
async def test_starts_without_a_reservation_are_late_under_a_flood() -> None:
    """Runs of the flood are in the way of the starts that a reservation would keep."""
    plan = Plan()
    plan.bench.add({"v": Cost(run_ms=8, load_ms=0)}, name="flood", tenant="u")
    async with plan.bench.working():
        await plan.warm(FLOOD)
        starts = [50.0 + 100.0 * at for at in range(20)]
        with plan.flood():
            plan.put(*starts)
            plan.bench.engine.reservations.drop(range(10**6))
            frames = [plan.frame(name, at, at + late) for at in starts for name, late in (("a", -20), ("b", 1))]
            began = await asyncio.gather(*frames)
        assert sum(start > at + GRACE_MS for at, start in zip(sorted(2 * starts), began, strict=True)) > 10


@story
async def test_queue_hands_out_by_itself_where_no_start_is_reserved() -> None:
    """Also after the last reserved start is over."""
    plan = Plan()
    async with plan.bench.working():
        await plan.warm()
        assert plan.bench.queue.assign is None
        plan.put(20)
        assert plan.bench.queue.assign is not None
        await asyncio.gather(plan.frame("a", 20, 5), plan.frame("b", 20, 10))
        assert plan.bench.queue.assign is None
    plan.bench.assert_quiet()


@story
async def test_complete_batch_begins_before_its_reserved_start() -> None:
    """A run under way is all that it waits for, and others in line come after."""
    plan = Plan()
    plan.bench.add({"v": Cost(run_ms=8, load_ms=0)}, name="flood", tenant="u")
    async with plan.bench.working():
        await plan.warm(FLOOD)
        plan.put(90)
        with plan.flood():
            began = await asyncio.gather(plan.frame("a", 90, 12), plan.frame("b", 90, 20))
        assert list(began) == [24, 24]
    assert plan.batches.counts.late == 0


@story
async def test_reserved_start_without_frames_holds_its_worker_for_its_grace_only() -> None:
    """The start and its grace are over: the worker goes on with what waited. A pool that ends gives its starts back."""
    plan = Plan()
    plan.bench.add({"v": Cost(run_ms=8, load_ms=0)}, name="flood", tenant="u")
    async with plan.bench.working():
        await plan.warm(FLOOD)
        plan.put(5, 100)
        waits = asyncio.create_task(plan.bench.infer(application=FLOOD, tenant="u"))
        await waits
        assert plan.now_ms() == pytest.approx(5 + GRACE_MS + 1 + 8, abs=0.1)
        waits = asyncio.create_task(plan.bench.infer(application=FLOOD, tenant="u"))
        await plan.until_ms(96)
        await waits
        waits = asyncio.create_task(plan.bench.infer(application=FLOOD, tenant="u"))
        await plan.until_ms(98)
        plan.batches.plan(())
        await waits
        assert plan.now_ms() == 106
        assert plan.bench.queue.assign is None


@story
async def test_device_that_sends_no_frames_has_no_starts_reserved() -> None:
    """Starts without frames cost their tenant nothing: after two in a row none is reserved, until a frame comes again.
    Then they are all reserved.
    """
    plan = Plan()
    plan.bench.add({"v": Cost(run_ms=48, load_ms=0)}, name="long", tenant="u")
    async with plan.bench.working():
        await plan.warm("u/long")
        starts = [20.0 + 50.0 * at for at in range(20)]
        plan.put(*starts)
        await plan.bench.infer(application="u/long", tenant="u")
        assert plan.now_ms() == pytest.approx(70 + GRACE_MS + 1 + 48, abs=0.1)
        plan.put(*starts[3:])
        assert plan.bench.queue.assign is None
        began = await asyncio.gather(*(plan.frame(name, 220, 200) for name in "ab"))
        assert began == [200, 200]
        waits = asyncio.create_task(plan.bench.infer(application="u/long", tenant="u"))
        began = await asyncio.gather(*(plan.frame(name, 270, late) for name, late in (("a", 268), ("b", 271))))
        assert began == [271, 271]
        assert not waits.done()
        await waits


@story
async def test_run_too_long_for_every_gap_waits_for_some_seconds() -> None:
    """The tenant's own: its planned batches go first, but nothing waits for ever. Shorter ones pass it meanwhile."""
    plan = Plan()
    plan.bench.add({"v": Cost(run_ms=45, load_ms=0)}, name="long")
    plan.bench.add({"v": Cost(run_ms=8, load_ms=0)}, name="short")
    async with plan.bench.working():
        await plan.warm("t/long", "t/short")
        long_one = asyncio.create_task(plan.bench.infer(application="t/long"))
        plan.put(*range(0, 8000, 60))
        for at in range(0, 4800, 60):
            short = asyncio.create_task(plan.bench.infer(application="t/short"))
            began = await asyncio.gather(*(plan.frame(name, at, at - 1) for name in "ab"))
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
    plan = Plan()
    plan.bench.add({"v": Cost(run_ms=20, load_ms=0)}, name="flood", tenant="u")
    async with plan.bench.working():
        await plan.warm(FLOOD)
        with plan.flood() as answers:
            for start in count(0, 33):
                if plan.now_ms() > 4000:
                    break
                at = max(start, plan.now_ms())
                plan.put(at)
                await asyncio.gather(*(plan.frame(name, at, at) for name in "ab"))
            assert 20 * len(answers) / plan.now_ms() == pytest.approx(0.5, abs=0.1)


@story
async def test_reserved_starts_after_the_deciding_start_are_not_looked_at() -> None:
    """Each request that comes has all that wait weighed, and many starts may be reserved. A start that is moved counts
    from where it is now.
    """
    looked_at: list[int] = []

    class Takes(dict[int, int]):
        def __bool__(self) -> bool:
            looked_at.append(self[0])
            return True

    bench = EngineBench()
    reservations = bench.engine.reservations

    def put(number: int, at_ms: int) -> None:
        start_ns = bench.clock.now_ns() + at_ms * NS_PER_MS
        facts = "t", start_ns, start_ns + NS_PER_MS, number, Takes({0: number})
        reservations.put(number, Reservation(*facts, lambda now_ns: None, lambda: None))

    for number in range(5, 0, -1):
        put(number, 10 * number)
    assert reservations.gap_ns("u", 0, {0: [0]}) == 10 * NS_PER_MS
    put(1, 25)
    assert reservations.gap_ns("u", 0, {0: [0]}) == 20 * NS_PER_MS
    reservations.ready(4)
    assert reservations.gap_ns("u", 0, {0: [0]}) == 0
    assert looked_at == [1, 2, 4]
    reservations.drop(range(1, 6))


@story
async def test_shared_run_ends_before_a_reserved_start() -> None:
    """A run of one row fits, and of eight it would not: as many join as end before."""
    plan = Plan()
    gains = {2: 11.0, 4: 13.0, 8: 22.0}
    plan.bench.add({"v": Cost(run_ms=10, load_ms=0, run_ms_by_batch=gains)}, name="flood", tenant="u")
    async with plan.bench.working():
        await plan.warm(FLOOD)
        plan.put(15, 80)
        waiting = [asyncio.create_task(plan.bench.infer(application=FLOOD, tenant="u")) for _ in range(9)]
        await settle()
        began = await asyncio.gather(plan.frame("a", 15, 14), plan.frame("b", 15, 15))
        assert max(began) <= 15 + GRACE_MS
        await asyncio.gather(*waiting)
    rows = [len(inputs["x"]) for inputs in plan.bench.processor.ran][2:]
    assert rows[0] == 1
    assert sum(rows) == 11


@pytest.mark.parametrize("twins", [(), [(1, 100.0, 0.01)]], ids=["one group", "several"])
@story
async def test_shared_run_is_unbounded_once_no_start_is_reserved(twins: list[tuple[int, float, float]]) -> None:
    """A request that was weighed against a start that is gone is bounded by it no more."""
    plan = Plan(twins=twins)
    gains = {2: 11.0, 4: 13.0, 8: 16.0}
    plan.bench.add({"v": Cost(run_ms=10, load_ms=0, run_ms_by_batch=gains)}, name="flood", tenant="u")
    async with plan.bench.working():
        await plan.warm(FLOOD)
        plan.put(5)
        waiting = [asyncio.create_task(plan.bench.infer(application=FLOOD, tenant="u")) for _ in range(8)]
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
    plan = Plan(twins=[(1, 3.0, 1 / 3)])
    plan.bench.add({"v": Cost(run_ms=25, load_ms=0)}, name="flood", tenant="u")
    async with plan.bench.working():
        await plan.warm(FLOOD)
        starts = [20.0 + 60.0 * at for at in range(10)]
        with plan.flood(callers=3):
            plan.put(*starts)
            await settle()
            frames = [plan.frame(name, at, at - 1) for at in starts for name in "ab"]
            began = await asyncio.gather(*frames)
        assert all(start <= at + GRACE_MS for at, start in zip(sorted(2 * starts), began, strict=True))
        await plan.until_ms(2000)
        plan.put(2010)
        now = plan.bench.processor.running
        promised = asyncio.create_task(plan.bench.infer(application=FLOOD, tenant="u", is_planned=True))
        await settle()
        assert plan.bench.processor.running == now + 1
        await promised


@story
async def test_request_beside_a_reserved_worker_is_weighed_alone() -> None:
    """The requests that wait already were weighed in vain, and nothing else is new: a put costs the same however many
    wait. A request that ends before the start begins at once all the same.
    """
    plan = Plan(queue_len=100, queue_total=200)
    plan.bench.add({"v": Cost(run_ms=40, load_ms=0)}, name="long", tenant="u")
    plan.bench.add({"v": Cost(run_ms=5, load_ms=0)}, name="short", tenant="u")
    weighed: list[object] = []
    is_held = plan.bench.engine.reservations.is_held
    plan.bench.engine.reservations.is_held = lambda job, *gap: weighed.append(job) or is_held(job, *gap)  # type: ignore[func-returns-value, method-assign]
    async with plan.bench.working():
        await plan.warm("u/long", "u/short")
        plan.put(35)
        weighed.clear()
        calls = [asyncio.create_task(plan.bench.infer(application="u/long", tenant="u")) for _ in range(60)]
        await settle()
        assert len(plan.bench.queue) == 60
        assert len(weighed) == 60, "each once"
        await plan.bench.infer(application="u/short", tenant="u")
        assert plan.now_ms() == 5
        await asyncio.gather(plan.frame("a", 35, 30), plan.frame("b", 35, 31), *calls)
    plan.bench.assert_quiet()


@story
async def test_inline_run_that_would_delay_a_reserved_start_takes_a_worker() -> None:
    """Of a lone connection: where a start comes before the run would be over, it waits for a worker as all
    others do.
    """
    plan = Plan(quick_ms_max=0.25, alone_ms_max=10)
    plan.bench.add({"v": Cost(run_ms=4, load_ms=0)}, name="other", tenant="u")
    async with plan.bench.working():
        await plan.warm("u/other")
        await plan.bench.pause(2000)
        plan.began_ns = plan.bench.clock.now_ns()
        runs = []
        plan.put(12)
        for at in (0, 10):
            await plan.until_ms(at)
            before = sum(worker.runs for worker in plan.bench.engine.workers)
            asked = asyncio.create_task(plan.bench.infer(application="u/other", tenant="u", source=1))
            await settle()
            if at:
                await asyncio.gather(plan.frame("a", 12, 11), plan.frame("b", 12, 11.5))
            await asked
            runs.append(sum(worker.runs for worker in plan.bench.engine.workers) - before)
        assert runs == [0, 2], "on the loop; behind the batch, on the worker"
    plan.bench.assert_quiet()


def test_reserved_starts_in_the_past_lapse_on_uvloop() -> None:
    """As the box is run: a timer that is due at once is none there, and cannot be asked for its time."""
    lapsed: list[int] = []

    async def past() -> None:
        clock = SystemClock()
        reservations = Reservations(clock, Queue(clock, 1, 1), 1)
        for number in (1, 2):
            now_ns = clock.now_ns()
            reservations.put(
                number,
                Reservation("t", now_ns - 2, now_ns - NS_PER_MS, 1, {}, lapsed.append, partial(lapsed.append, number)),
            )
        await clock.sleep_until_ns(clock.now_ns() + 20 * NS_PER_MS)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(past())
    assert lapsed == [1, 2]
