"""Frames that are planned to run together."""

import asyncio
from dataclasses import replace

from appliance.clock import NS_PER_MS
from appliance.runtime.sessions.batches import Batches, PlannedBatch
from tests.fakes.clock import story
from tests.fakes.engine import EngineBench
from tests.fakes.processor import Cost

GRACE_NS, RUN_NS = 4 * NS_PER_MS, 40 * NS_PER_MS


def planned(bench: EngineBench, in_ms: float, *names: str) -> PlannedBatch:
    members = frozenset((name, 7) for name in names)
    return PlannedBatch(bench.clock.now_ns() + int(in_ms * NS_PER_MS), RUN_NS, GRACE_NS, members)


async def gone_after_ms(
    bench: EngineBench, batches: Batches, name: str, come_ms: float, variant: str = ""
) -> tuple[float, int]:
    """When a frame that comes then goes on, and the number of its batch."""
    start_ns = bench.clock.now_ns()
    await bench.pause(come_ms)
    number = await batches.wait((name, 7), variant)
    return (bench.clock.now_ns() - start_ns) / NS_PER_MS, number


@story
async def test_batch_with_all_frames_begins_at_once() -> None:
    """Before its planned start, too (AR-19)."""
    bench = EngineBench()
    batches = Batches(bench.clock, "t", bench.engine.reservations)
    batches.plan([planned(bench, 50, "a", "b")])
    went = await asyncio.gather(*(gone_after_ms(bench, batches, name, ms) for name, ms in (("a", 5), ("b", 20))))
    assert [ms for ms, _ in went] == [20, 20]
    assert went[0][1] == went[1][1] > 0
    assert (batches.counts.full, batches.counts.short, batches.counts.late) == (1, 0, 0)


@story
async def test_batch_waits_for_late_frame_within_grace_only() -> None:
    """Late by 5 % of the run: in its batch; by 20 %: not (AR-18)."""
    bench = EngineBench()
    batches = Batches(bench.clock, "t", bench.engine.reservations)
    batches.plan([planned(bench, 50, "a", "b"), planned(bench, 100, "c", "d")])
    comes = (("a", 40), ("b", 52), ("c", 90), ("d", 108))
    went = await asyncio.gather(*(gone_after_ms(bench, batches, name, ms) for name, ms in comes))
    assert [round(ms, 3) for ms, _ in went] == [52, 52, 104, 108]
    assert (batches.counts.full, batches.counts.short) == (1, 1)


@story
async def test_late_frame_joins_batch_while_previous_batch_runs() -> None:
    """The frame keeps no other waiting; when the run is over the next batch begins, with the frames that are there."""
    bench = EngineBench()
    batches = Batches(bench.clock, "t", bench.engine.reservations)
    batches.plan([planned(bench, 10, "a"), planned(bench, 50, "b", "c"), planned(bench, 90, "d", "e")])
    comes = (("a", 30), ("b", 45), ("c", 60), ("d", 89), ("e", 200))
    tasks = [asyncio.create_task(gone_after_ms(bench, batches, name, ms)) for name, ms in comes]
    await bench.pause(62)
    assert [(len(one.members), one.end_ns - one.start_ns) for one in batches.begun()] == [(1, RUN_NS), (2, RUN_NS)]
    assert batches.begun()[1].start_ns == batches.begun()[0].end_ns
    await bench.pause(10)
    batches.ended(("a", 7))
    await bench.pause(30)
    for name in ("b", "c"):
        batches.ended((name, 7))
    went = [await task for task in tasks]
    assert [round(ms, 3) for ms, _ in went] == [30, 60, 60, 102, 200]
    assert went[1][1] == went[2][1] > 0
    assert went[3][1] > 0
    assert (batches.counts.full, batches.counts.short, batches.counts.late) == (2, 1, 3)


@story
async def test_frame_that_missed_batch_joins_next_batch() -> None:
    """A run of its own would put the next batch off by more than that grows by the frame; one frame
    has room in each.
    """
    bench = EngineBench()
    batches = Batches(bench.clock, "t", bench.engine.reservations)
    first, second, third = planned(bench, 10, "a", "b"), planned(bench, 52, "c", "d"), planned(bench, 95, "e")
    second = replace(second, variant="v", larger_ns=RUN_NS + 7 * NS_PER_MS)
    batches.plan([first, second, replace(third, variant="v")])
    a = asyncio.create_task(gone_after_ms(bench, batches, "a", 5))
    b, f = (asyncio.create_task(gone_after_ms(bench, batches, name, ms, "v")) for name, ms in (("b", 20), ("f", 25)))
    c, d = (asyncio.create_task(gone_after_ms(bench, batches, name, ms)) for name, ms in (("c", 50), ("d", 58)))
    await bench.pause(45)
    assert batches.joined(("c", 7)) == {("c", 7), ("d", 7), ("b", 7)}
    grown = replace(second, members=second.members | {("b", 7)}, run_ns=RUN_NS + 7 * NS_PER_MS)
    batches.plan([grown])
    await bench.pause(10)
    batches.ended(("a", 7))
    went = [await task for task in (a, b, c, d)]
    assert [round(ms, 3) for ms, _ in went] == [14, 56, 56, 58], "waited for no longer than others wait"
    assert went[1][1] == went[2][1] > went[0][1]
    assert await f == (25, 0), "the batch had no room for another one"
    assert [(begun.end_ns - begun.start_ns, len(begun.members)) for begun in batches.begun()] == [(47 * NS_PER_MS, 2)]


@story
async def test_frame_joins_only_batch_of_same_variant_that_own_run_would_delay() -> None:
    bench = EngineBench()
    batches = Batches(bench.clock, "t", bench.engine.reservations)
    batches.plan([replace(planned(bench, 50, "a"), variant="v", larger_ns=RUN_NS)])
    went = await asyncio.gather(
        *(gone_after_ms(bench, batches, *come) for come in (("early", 5, "v"), ("other", 20, "w"), ("late", 20, "v")))
    )
    assert [(round(ms, 3), number > 0) for ms, number in went] == [(5, False), (20, False), (54, True)]


@story
async def test_next_batch_waits_for_overdue_run_within_grace_only() -> None:
    """The expected end of the run has passed: the queue knows better."""
    bench = EngineBench()
    batches = Batches(bench.clock, "t", bench.engine.reservations)
    batches.plan([planned(bench, 10, "a"), planned(bench, 50, "b", "c")])
    tasks = [asyncio.create_task(gone_after_ms(bench, batches, name, ms)) for name, ms in (("a", 30), ("b", 45))]
    await bench.pause(100)
    assert [round((await task)[0], 3) for task in tasks] == [30, 74]


@story
async def test_frame_waits_longer_for_batch_that_is_postponed() -> None:
    """The processor was found busy."""
    bench = EngineBench()
    batches = Batches(bench.clock, "t", bench.engine.reservations)
    batches.plan([planned(bench, 50, "a", "b")])
    waiting = asyncio.create_task(gone_after_ms(bench, batches, "a", 10))
    await bench.pause(20)
    batches.plan([planned(bench, 50, "a", "b")])
    assert round((await waiting)[0], 3) == 74


@story
async def test_batch_does_not_wait_for_frame_that_has_ended() -> None:
    """The frame was lost or dropped; and a frame in no batch does not wait."""
    bench = EngineBench()
    batches = Batches(bench.clock, "t", bench.engine.reservations)
    batches.plan([planned(bench, 50, "a", "b")])
    waiting = asyncio.create_task(gone_after_ms(bench, batches, "a", 10))
    await bench.pause(15)
    batches.ended(("b", 7))
    assert (await waiting)[0] == 15
    assert await gone_after_ms(bench, batches, "z", 1) == (1, 0)


@story
async def test_new_plan_leaves_waiting_frames_in_old_batch() -> None:
    """The tail of the old plan is the head of the new one (AR-17); a batch that is not in the new plan begins when the
    old one said.
    """
    bench = EngineBench()
    batches = Batches(bench.clock, "t", bench.engine.reservations)
    kept, gone = planned(bench, 50, "a", "b"), planned(bench, 60, "c", "d")
    batches.plan([kept, gone])
    went = [asyncio.create_task(gone_after_ms(bench, batches, name, 10)) for name in ("a", "c")]
    await bench.pause(20)
    batches.plan([kept])
    b = await gone_after_ms(bench, batches, "b", 15)
    assert [round((await one)[0], 3) for one in went] == [35, 79], "the run of the first is expected to end at 75"
    assert b[1] == (await went[0])[1]


@story
async def test_batch_dropped_from_plan_ends_with_waiting_frames() -> None:
    """A device left, and the next plan has the other's frame in a batch of its own while it waits at the old one:
    when it has ended, the box is free."""
    bench = EngineBench()
    batches = Batches(bench.clock, "t", bench.engine.reservations)
    batches.plan([planned(bench, 50, "a", "b")])
    waiting = asyncio.create_task(gone_after_ms(bench, batches, "a", 10))
    await bench.pause(20)
    batches.plan([planned(bench, 30, "a")])
    assert round((await waiting)[0], 3) == 54
    batches.ended(("a", 7))
    assert batches.free_ns == bench.clock.now_ns()
    batches.plan([planned(bench, 10, "c")])
    await gone_after_ms(bench, batches, "c", 5)
    batches.ended(("c", 7))
    assert batches.free_ns == bench.clock.now_ns()


@story
async def test_cancelled_frame_leaves_no_batch_behind() -> None:
    """The frame's deadline came, at a batch that is planned no more: that batch never begins, for it has no frames."""
    bench = EngineBench()
    batches = Batches(bench.clock, "t", bench.engine.reservations)
    batches.plan([planned(bench, 50, "a", "b")])
    waiting = asyncio.create_task(gone_after_ms(bench, batches, "a", 10))
    await bench.pause(20)
    batches.plan([])
    waiting.cancel()
    batches.ended(("a", 7))
    await bench.pause(60)
    assert (batches.free_ns, batches.counts.short) == (0, 0)


@story
async def test_batch_does_not_wait_for_frame_that_waits_in_another() -> None:
    """A new plan puts a frame that waits in the old batch together with another frame, which need not wait until the
    grace is over.
    """
    bench = EngineBench()
    batches = Batches(bench.clock, "t", bench.engine.reservations)
    batches.plan([planned(bench, 50, "a", "b")])
    waiting = asyncio.create_task(gone_after_ms(bench, batches, "a", 10))
    await bench.pause(20)
    batches.plan([planned(bench, 60, "a", "c")])
    assert (await gone_after_ms(bench, batches, "c", 5))[0] == 5
    assert round((await waiting)[0], 3) == 69, "the run of that one is expected to end at 65"


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
