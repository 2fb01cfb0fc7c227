"""Frames with promises of latency wait for their planned worker."""

import asyncio
from dataclasses import replace

from appliance.clock import NS_PER_MS
from appliance.runtime.sessions.worker_queues import PlannedWorker, WorkerQueues
from tests.fakes.clock import story
from tests.fakes.engine import EngineBench

RUN_MS = 30


def worker(number: int, batch_max: int, *sessions: str) -> PlannedWorker:
    """A run takes as long whatever its batch."""
    runs = dict.fromkeys(range(1, batch_max + 1), RUN_MS * NS_PER_MS)
    return PlannedWorker(number, runs, batch_max, frozenset(sessions))


class Stage:
    """Frames that come at their times and run for `RUN_MS` each, wherever they begin."""

    def __init__(self, bench: EngineBench, *workers: PlannedWorker) -> None:
        self.bench = bench
        self.queues = WorkerQueues(bench.clock)
        self.queues.plan("pool", workers)
        self.start_ns = bench.clock.now_ns()

    async def frame(self, session: str, number: int, come_ms: float, slo_ms: float = 1000.0) -> tuple[float, int]:
        """When it begins, and the number of its batch."""
        await self.bench.pause(come_ms)
        deadline_ns = self.bench.clock.now_ns() + int(slo_ms * NS_PER_MS)
        batch = await self.queues.wait((session, number), deadline_ns)
        began_ms = round((self.bench.clock.now_ns() - self.start_ns) / NS_PER_MS, 3)
        await self.bench.pause(RUN_MS)
        self.queues.ended((session, number))
        return began_ms, batch


@story
async def test_worker_runs_frames_that_came_meanwhile_together() -> None:
    """The first frame begins at once; frames that come while it runs go together when it is over,
    as far as batches go.
    """
    stage = Stage(EngineBench(), worker(0, 2, "a", "b", "c"))
    frames = (("a", 1, 0), ("b", 1, 10), ("c", 1, 20), ("a", 2, 25))
    began = await asyncio.gather(*(stage.frame(*one) for one in frames))
    assert [ms for ms, _ in began] == [0, 30, 30, 60]
    assert began[1][1] == began[2][1] > 0
    assert (began[0][1], began[3][1]) == (0, 0)


@story
async def test_worker_queues_do_not_wait_for_each_other() -> None:
    """Nor does a frame for which no worker is planned. Where one frame is run at a time the next one waits all the
    same: on another worker it would be in the way of those that are planned there.
    """
    stage = Stage(EngineBench(), worker(0, 2, "a"), worker(1, 4, "b"), worker(2, 1, "c"))
    frames = (("a", 1, 0), ("b", 1, 5), ("c", 1, 5), ("c", 2, 10), ("d", 1, 10), ("d", 2, 12))
    began = await asyncio.gather(*(stage.frame(*one) for one in frames))
    assert [ms for ms, _ in began] == [0, 5, 5, 35, 10, 12]


@story
async def test_waiting_frames_run_in_batch_only_where_batch_ends_sooner() -> None:
    """Four cameras at one instant: the three that wait go at once where that takes less than two runs, and one by one
    where batches gain nothing."""
    for fixed_ms, each_ms, expected in ((29, 1, [0, 30, 30, 30]), (0, 30, [0, 30, 60, 90])):
        runs = {batch: (fixed_ms + each_ms * batch) * NS_PER_MS for batch in (1, 2, 4)}
        stage = Stage(EngineBench(), PlannedWorker(0, runs, 4, frozenset("abcd")))
        began = await asyncio.gather(*(stage.frame(name, 1, 0) for name in "abcd"))
        assert [ms for ms, _ in began] == expected


@story
async def test_worker_run_takes_no_more_frames_than_planned_batch() -> None:
    """Runs of four are measured and are over sooner; the plan counts on two. With the next plan, of four, they are."""
    stage = Stage(EngineBench(), replace(worker(0, 4, *"abcde"), batch=2))
    began = await asyncio.gather(*(stage.frame(name, 1, 0) for name in "abcde"))
    assert [ms for ms, _ in began] == [0, 30, 30, 60, 60]
    stage.queues.plan("pool", [worker(0, 4, *"abcde")])
    began = await asyncio.gather(*(stage.frame(name, 2, 0) for name in "abcde"))
    assert [ms - began[0][0] for ms, _ in began] == [0, 30, 30, 30, 30]


@story
async def test_worker_run_exceeds_planned_batch_where_frames_would_be_late() -> None:
    """The last two would end at 90 ms in runs of two, and end at 60 in one of four."""
    stage = Stage(EngineBench(), replace(worker(0, 4, *"abcde"), batch=2))
    began = await asyncio.gather(*(stage.frame(name, 1, 0, 80) for name in "abcde"))
    assert [ms for ms, _ in began] == [0, 30, 30, 30, 30]


@story
async def test_worker_queue_serves_earliest_deadline_and_skips_hopeless_frame() -> None:
    """A frame that cannot be in time any more goes on, to be answered so, and keeps no place."""
    stage = Stage(EngineBench(), worker(0, 2, "a", "b", "c", "d"))
    frames = (("a", 1, 0, 500), ("b", 1, 5, 500), ("c", 1, 6, 100), ("d", 1, 7, 100), ("b", 2, 8, 40))
    began = await asyncio.gather(*(stage.frame(*one) for one in frames))
    assert [ms for ms, _ in began] == [0, 60, 30, 30, 18]
    assert began[4][1] == 0


@story
async def test_new_plan_leaves_no_waiting_frame_behind() -> None:
    """A frame that waits goes when its worker is free, also where that is planned no more; newer frames follow the new
    plan.
    """
    bench = EngineBench()
    stage = Stage(bench, worker(0, 2, "a", "b"))
    tasks = [asyncio.create_task(stage.frame(*one)) for one in (("a", 1, 0), ("b", 1, 10), ("a", 2, 20), ("b", 2, 22))]
    await bench.pause(15)
    stage.queues.plan("other", [worker(0, 2, "x")])
    stage.queues.plan("pool", [worker(1, 3, "a", "b")])
    assert [ms for ms, _ in [await task for task in tasks]] == [0, 30, 20, 50]
    stage.queues.plan("pool", ())
    began = await asyncio.gather(stage.frame("a", 3, 0), stage.frame("b", 3, 1))
    assert began[1][0] - began[0][0] == 1


@story
async def test_cancelled_frame_keeps_no_other_waiting() -> None:
    """As when the box stops."""
    bench = EngineBench()
    stage = Stage(bench, worker(0, 2, "a", "b"))
    first, second = (asyncio.create_task(stage.frame("a", 1, 0)), asyncio.create_task(stage.frame("b", 1, 5)))
    await bench.pause(10)
    second.cancel()
    await asyncio.gather(first, second, return_exceptions=True)
    assert (await stage.frame("b", 2, 0))[0] == 30
