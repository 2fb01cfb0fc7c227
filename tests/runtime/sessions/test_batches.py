"""Frames that are planned to run together."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from appliance.clock import NS_PER_MS
from appliance.runtime.sessions.batches import Batches, PlannedBatch
from tests.fakes.clock import story
from tests.fakes.engine import EngineBench
from tests.fakes.processor import Cost

GRACE_NS, RUN_NS = 4 * NS_PER_MS, 40 * NS_PER_MS


class Gates:
    """Batches of a pool, and frames that come to them."""

    def __init__(self, *batches: tuple[Any, ...]) -> None:
        self.bench = EngineBench()
        self.batches = Batches(self.bench.clock, "t", self.bench.engine.reservations)
        self.plan(*batches)

    def planned(self, in_ms: float, *names: str) -> PlannedBatch:
        members = frozenset((name, 7) for name in names)
        return PlannedBatch(self.bench.clock.now_ns() + int(in_ms * NS_PER_MS), RUN_NS, GRACE_NS, members)

    def plan(self, *batches: tuple[Any, ...]) -> None:
        """Each as milliseconds from now on and the frames that are in it."""
        self.batches.plan([self.planned(*one) for one in batches])

    def comes(self, name: str, in_ms: float, variant: str = "") -> asyncio.Task[tuple[float, int]]:
        """A frame that comes then; the task says after how many milliseconds it goes on, and its batch's number."""

        async def come() -> tuple[float, int]:
            start_ns = self.bench.clock.now_ns()
            await self.bench.pause(in_ms)
            number = await self.batches.wait((name, 7), variant)
            return round((self.bench.clock.now_ns() - start_ns) / NS_PER_MS, 3), number

        return asyncio.create_task(come())

    async def went(self, *comes: tuple[Any, ...]) -> tuple[list[float], list[int]]:
        """When frames that come then go on, and the numbers of their batches."""
        found = await asyncio.gather(*(self.comes(*one) for one in comes))
        return [ms for ms, _ in found], [number for _, number in found]

    def ended(self, *names: str) -> None:
        for name in names:
            self.batches.ended((name, 7))


@story
async def test_batch_with_all_frames_begins_at_once() -> None:
    """Before its planned start, too (AR-19)."""
    gates = Gates((50, "a", "b"))
    times, (a, b) = await gates.went(("a", 5), ("b", 20))
    assert times == [20, 20]
    assert a == b > 0
    counts = gates.batches.counts
    assert (counts.full, counts.short, counts.late) == (1, 0, 0)


@story
async def test_batch_waits_for_late_frame_within_grace_only() -> None:
    """Late by 5 % of the run: in its batch; by 20 %: not (AR-18)."""
    gates = Gates((50, "a", "b"), (100, "c", "d"))
    times, _ = await gates.went(("a", 40), ("b", 52), ("c", 90), ("d", 108))
    assert times == [52, 52, 104, 108]
    assert (gates.batches.counts.full, gates.batches.counts.short) == (1, 1)


@story
async def test_late_frame_joins_batch_while_previous_batch_runs() -> None:
    """The frame keeps no other waiting; when the run is over the next batch begins, with the frames that are there."""
    gates = Gates((10, "a"), (50, "b", "c"), (90, "d", "e"))
    tasks = [gates.comes(*one) for one in (("a", 30), ("b", 45), ("c", 60), ("d", 89), ("e", 200))]
    await gates.bench.pause(62)
    first, second = gates.batches.begun()
    assert [(len(one.members), one.end_ns - one.start_ns) for one in (first, second)] == [(1, RUN_NS), (2, RUN_NS)]
    assert second.start_ns == first.end_ns
    await gates.bench.pause(10)
    gates.ended("a")
    await gates.bench.pause(30)
    gates.ended("b", "c")
    went = [await task for task in tasks]
    assert [ms for ms, _ in went] == [30, 60, 60, 102, 200]
    assert went[1][1] == went[2][1] > 0
    assert went[3][1] > 0
    counts = gates.batches.counts
    assert (counts.full, counts.short, counts.late) == (2, 1, 3)


@story
async def test_frame_that_missed_batch_joins_next_batch() -> None:
    """A run of its own would put the next batch off by more than that grows by the frame; one frame
    has room in each.
    """
    gates = Gates()
    first, second, third = gates.planned(10, "a", "b"), gates.planned(52, "c", "d"), gates.planned(95, "e")
    second = replace(second, variant="v", larger_ns=RUN_NS + 7 * NS_PER_MS)
    gates.batches.plan([first, second, replace(third, variant="v")])
    comes = (("a", 5), ("b", 20, "v"), ("c", 50), ("d", 58), ("f", 25, "v"))
    *tasks, without_room = [gates.comes(*one) for one in comes]
    await gates.bench.pause(45)
    assert gates.batches.joined(("c", 7)) == {("c", 7), ("d", 7), ("b", 7)}
    grown = replace(second, members=second.members | {("b", 7)}, run_ns=RUN_NS + 7 * NS_PER_MS)
    gates.batches.plan([grown])
    await gates.bench.pause(10)
    gates.ended("a")
    went = [await task for task in tasks]
    assert [ms for ms, _ in went] == [14, 56, 56, 58], "waited for no longer than others wait"
    assert went[1][1] == went[2][1] > went[0][1]
    assert await without_room == (25, 0)
    (begun,) = gates.batches.begun()
    assert (begun.end_ns - begun.start_ns, len(begun.members)) == (47 * NS_PER_MS, 2)


@story
async def test_frame_joins_only_batch_of_same_variant_that_own_run_would_delay() -> None:
    gates = Gates()
    gates.batches.plan([replace(gates.planned(50, "a"), variant="v", larger_ns=RUN_NS)])
    times, numbers = await gates.went(("early", 5, "v"), ("other", 20, "w"), ("late", 20, "v"))
    assert times == [5, 20, 54]
    assert [number > 0 for number in numbers] == [False, False, True]


@story
async def test_next_batch_waits_for_overdue_run_within_grace_only() -> None:
    """The expected end of the run has passed: the queue knows better."""
    gates = Gates((10, "a"), (50, "b", "c"))
    assert (await gates.went(("a", 30), ("b", 45)))[0] == [30, 74]


@pytest.mark.parametrize(
    ("happens", "goes_ms"),
    [
        pytest.param(lambda gates: gates.plan((50, "a", "b")), 74, id="the processor was found busy"),
        pytest.param(lambda gates: gates.plan((30, "a")), 54, id="the other device left"),
        pytest.param(lambda gates: gates.ended("b"), 20, id="the other frame was lost or dropped"),
    ],
)
@story
async def test_waiting_frame_goes_on_as_its_batch_is_planned_then(
    happens: Callable[[Gates], None], goes_ms: float
) -> None:
    """A frame waits for another one; and when its batch has ended the box is free for the next one."""
    gates = Gates((50, "a", "b"))
    waiting = gates.comes("a", 10)
    await gates.bench.pause(20)
    happens(gates)
    assert (await waiting)[0] == goes_ms
    for name in ("a", "c"):
        gates.ended(name)
        assert gates.batches.free_ns == gates.bench.clock.now_ns()
        gates.plan((10, "c"))
        await gates.comes("c", 5)


@story
async def test_planned_batch_is_to_begin_until_it_begins_or_its_grace_ends() -> None:
    """A worker that is free for a frame that nobody planned must be free for these as well."""
    gates = Gates((10, "a"), (50, "b", "c"), (90, "d"))

    def beginning(in_ms: float) -> int:
        return gates.batches.beginning(gates.bench.clock.now_ns() + int(in_ms * NS_PER_MS))

    assert [beginning(in_ms) for in_ms in (10, 11, 50, 51, 91)] == [0, 1, 1, 2, 3]
    await gates.went(("a", 5))
    assert beginning(86) == 2
    await gates.bench.pause(49)
    assert beginning(37) == 2, "its grace ends now"
    await gates.bench.pause(1)
    assert beginning(36) == 1


@story
async def test_frame_in_no_batch_does_not_wait() -> None:
    assert await Gates((50, "a", "b")).comes("z", 1) == (1, 0)


@story
async def test_new_plan_leaves_waiting_frames_in_old_batch() -> None:
    """The tail of the old plan is the head of the new one (AR-17); a batch that is not in the new plan begins when the
    old one said.
    """
    gates = Gates()
    kept, gone = gates.planned(50, "a", "b"), gates.planned(60, "c", "d")
    gates.batches.plan([kept, gone])
    a, c = (gates.comes(name, 10) for name in ("a", "c"))
    await gates.bench.pause(20)
    gates.batches.plan([kept])
    b = await gates.comes("b", 15)
    assert await a == (35, b[1])
    assert (await c)[0] == 79, "the run of the first is expected to end at 75"


@story
async def test_cancelled_frame_leaves_no_batch_behind() -> None:
    """The frame's deadline came, at a batch that is planned no more: that batch never begins, for it has no frames."""
    gates = Gates((50, "a", "b"))
    waiting = gates.comes("a", 10)
    await gates.bench.pause(20)
    gates.plan()
    waiting.cancel()
    gates.ended("a")
    await gates.bench.pause(60)
    assert (gates.batches.free_ns, gates.batches.counts.short) == (0, 0)


@story
async def test_batch_does_not_wait_for_frame_that_waits_in_another() -> None:
    """A new plan puts a frame that waits in the old batch together with another frame, which need not wait until the
    grace is over.
    """
    gates = Gates((50, "a", "b"))
    waiting = gates.comes("a", 10)
    await gates.bench.pause(20)
    gates.plan((60, "a", "c"))
    assert (await gates.comes("c", 5))[0] == 5
    assert (await waiting)[0] == 69, "the run of that one is expected to end at 65"


@story
async def test_frames_of_planned_batch_run_together() -> None:
    """One run, though the worker was idle when the first of them was put; requests outside of the plan run apart."""
    bench = EngineBench()
    bench.add({"v": Cost(run_ms=20, run_ms_by_batch={2: 30, 3: 40, 4: 50})})
    async with bench.working():
        await bench.infer(1.0)
        runs = bench.engine.workers[0].runs
        together = [bench.infer(float(x), batch=5) for x in range(3)]
        results = await asyncio.gather(*together)
        assert [result.outputs["y"][0] for result in results] == [0.0, 2.0, 4.0]
        assert bench.engine.workers[0].runs == runs + 1
        await asyncio.gather(bench.infer(1.0, batch=6), bench.infer(2.0, batch=7))
        assert bench.engine.workers[0].runs == runs + 3
    bench.assert_quiet()


@story
async def test_planned_frames_train_no_forecaster() -> None:
    """The plan of the session says when its frames come."""
    bench = EngineBench()
    application = bench.add({"v": Cost(run_ms=20)})
    expectation = bench.core.expectations.of(application.id)
    async with bench.working(residency=True):
        await bench.infer(1.0, is_frame=True, is_planned=True)
        await bench.pause(10)
        assert not expectation.arrivals_ns
        await bench.infer(1.0)
        await bench.pause(10)
        assert len(expectation.arrivals_ns) == 1
