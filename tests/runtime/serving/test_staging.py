"""The job that is staged: a thread goes on with it by itself, and it stays who is next in line until then.

Real threads, whose runs end when the test says so.
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from appliance.clock import NS_PER_MS, SystemClock
from appliance.domain.catalogue import Latency
from appliance.domain.errors import DeadlineExceeded
from appliance.domain.request import Tensors
from appliance.domain.states import RequestState
from appliance.policies.batching.none import NoBatching
from appliance.runtime.memory.build import LoadedBuild
from appliance.runtime.memory.runs import RunMemory
from appliance.runtime.ports import RunGroup
from appliance.runtime.processors.cpu.threads import StagedCall, WorkerThreads
from appliance.runtime.profiles.estimate import SETTLING
from appliance.runtime.profiles.times import RunTimes
from appliance.runtime.serving.job import Job
from appliance.runtime.serving.queue import Queue
from appliance.runtime.serving.spending import SpendingByTenant
from appliance.runtime.serving.staging import StagedJob
from appliance.runtime.serving.worker import Worker
from tests.runtime.serving.jobs import SERVABLE, job

PATIENCE_S = 240.0
LOOKS = 48_000
"""Of 5 ms."""


class GatedProcessor:
    """Runs end one by one, when they are let."""

    def __init__(self, workers: int) -> None:
        self.threads = WorkerThreads("gated", workers)
        self.begun: list[int] = []
        self.gates: dict[int, threading.Event] = {}

    def _compute(self, number: int) -> dict[str, Any]:
        self.begun.append(number)
        assert self.gates[number].wait(PATIENCE_S)
        return {"y": np.array([number])}

    def run(
        self, handle: Any, inputs: Tensors, outputs: Sequence[str] | None, *, deadline_ns: int | None = None
    ) -> asyncio.Future[dict[str, Any]]:
        return self.threads.submit(self._compute, int(inputs["x"][0]))

    async def run_rows(self, *_: Any, **__: Any) -> list[dict[str, Any]]:
        raise AssertionError("nobody shares a run here")

    def stage(
        self,
        handle: Any,
        inputs: Tensors,
        outputs: Sequence[str] | None,
        *,
        deadline_ns: int | None,
        begin_by_ns: int | None,
    ) -> StagedCall:
        return self.threads.stage(begin_by_ns, self._compute, int(inputs["x"][0]))


class Bench:
    """Workers that serve a queue from that processor."""

    def __init__(self, workers: int = 1, memory_bytes: int = 0) -> None:
        self.clock = SystemClock()
        self.processor = GatedProcessor(workers)
        self.memory = RunMemory(lambda: memory_bytes, lambda: memory_bytes)
        group = RunGroup("p", workers, self.processor, {"cpu": ""}, stage=self.processor.stage)
        self.queue = Queue(self.clock, [group], self.memory, batching=NoBatching())
        self.released: list[LoadedBuild] = []
        self.workers = [
            Worker(self.clock, group, self.queue, self.memory, self.released.append, SpendingByTenant())
            for _ in range(workers)
        ]
        self.tasks = [asyncio.ensure_future(worker.work()) for worker in self.workers]
        self.jobs: dict[int, Job] = {}

    def put(self, number: int, run_bytes: int = 0, **changes: Any) -> Job:
        each = self.jobs[number] = job(**changes)
        each.run_bytes = run_bytes
        each.request.inputs = {"x": np.array([number])}
        each.times = RunTimes((Latency(1, 5.0, 6.0),), 0.1, lambda *_: None, is_measured=True)
        each.expected_ns = 5 * NS_PER_MS
        each.build.handle = object()
        self.processor.gates[number] = threading.Event()
        self.queue.put(each)
        return each

    def put_all(self, *run_bytes: int) -> None:
        """Jobs 0, 1 and so on, whose runs take so much memory."""
        for number, each in enumerate(run_bytes):
            self.put(number, each)

    async def end(self, *numbers: int) -> None:
        """Let runs end one after the other, which have begun or soon do."""
        for number in numbers:
            self.processor.gates[number].set()
            await asyncio.wait_for(asyncio.wait([self.jobs[number].answer]), PATIENCE_S)

    async def begins(self, number: int) -> None:
        """Wait until a thread is at it."""
        await self.until(lambda: number in self.processor.begun)

    def begins_unheard(self, number: int) -> None:
        """Wait until a thread is at it, while the event loop has no turn."""
        for _ in range(LOOKS):
            if number in self.processor.begun:
                return
            threading.Event().wait(0.005)
        raise AssertionError(self.processor.begun)

    async def until(self, is_so: Callable[[], bool]) -> None:
        """Let the loop turn until something is so."""
        for _ in range(LOOKS):
            if is_so():
                return
            await self.pause(5)
        raise AssertionError(self.processor.begun)

    async def pause(self, ms: int) -> None:
        """Let the loop turn for a while."""
        await self.clock.sleep_until_ns(self.clock.now_ns() + ms * NS_PER_MS)


@asynccontextmanager
async def working(workers: int = 1, memory_bytes: int = 0) -> AsyncIterator[Bench]:
    """In the end no job waits or runs, and no run's memory is counted."""
    bench = Bench(workers, memory_bytes)
    try:
        yield bench
        await bench.until(lambda: not bench.queue.scheduler.runs)
        assert (len(bench.queue), bench.memory.running_bytes) == (0, 0)
    finally:
        for task in bench.tasks:
            task.cancel()
        for gate in bench.processor.gates.values():
            gate.set()
        bench.processor.threads.close()


@pytest.mark.anyio
async def test_staged_job_begins_without_the_event_loop() -> None:
    """It begins while the event loop is held, on the thread whose run has ended."""
    async with working() as bench:
        bench.put_all(0, 0, 0)
        await bench.begins(0)
        bench.processor.gates[0].set()
        bench.begins_unheard(1)
        assert bench.processor.begun == [0, 1]
        assert bench.jobs[1].state is RequestState.QUEUED
        await bench.end(0)
        await bench.pause(1)
        assert bench.queue.is_running(bench.jobs[1])
        await bench.end(1, 2)
        assert [int(each.answer.result()["y"][0]) for each in bench.jobs.values()] == [0, 1, 2]
        assert bench.jobs[0].finished_ns == bench.jobs[1].started_ns <= bench.jobs[1].finished_ns
        assert len(bench.queue) == 0
        assert not bench.queue.scheduler.runs


@pytest.mark.anyio
async def test_staged_job_gives_way_to_a_more_urgent_job() -> None:
    """A job that comes later and goes before it takes its place; it keeps its own in line."""
    async with working() as bench:
        bench.put(0)
        await bench.begins(0)
        bench.put(1)
        bench.put(2, priority=5)
        await bench.end(0, 2, 1)
        assert bench.processor.begun == [0, 2, 1]


@pytest.mark.anyio
async def test_staged_job_leaves_with_its_caller() -> None:
    """A staged job whose caller goes away is not run; a job that has begun by then is, and its build released after."""
    async with working() as bench:
        bench.put(0)
        await bench.begins(0)
        gone, begun = bench.put(1), bench.put(2)
        gone.answer.cancel()
        assert not bench.queue.is_running(gone)
        bench.queue.leave(gone)
        bench.processor.gates[0].set()
        while 2 not in bench.processor.begun:
            if bench.queue.staged is not None and bench.queue.staged.job is None:
                bench.queue.look()
            threading.Event().wait(0.005)
        begun.answer.cancel()
        assert bench.queue.is_running(begun)
        begun.is_abandoned = True
        await bench.end(0)
        assert bench.released == []
        bench.processor.gates[2].set()
        await bench.until(lambda: bool(bench.released))
        assert bench.released == [begun.build]
        assert 1 not in bench.processor.begun


@pytest.mark.anyio
async def test_staged_job_is_not_begun_too_late() -> None:
    """A thread leaves a staged job that can no longer end in time; the queue answers its caller."""
    async with working() as bench:
        bench.put(0)
        await bench.begins(0)
        late = bench.put(1, deadline_ns=bench.clock.now_ns() + 30 * NS_PER_MS)
        await bench.pause(100)
        await bench.end(0)
        with pytest.raises(DeadlineExceeded):
            await asyncio.wait_for(late.answer, PATIENCE_S)
        assert bench.processor.begun == [0]
        assert late.state is RequestState.EXPIRED


@pytest.mark.parametrize("is_left", [False, True])
@pytest.mark.anyio
async def test_staged_job_that_has_begun_is_not_replaced(is_left: bool) -> None:
    """Another job comes before the event loop has heard of the begin, and by then the staged job would be late if it
    began, or its caller has gone: no other job is staged before its worker has taken it over, so it is answered, and
    its build released.
    """
    async with working(memory_bytes=100) as bench:
        bench.put_all(10, 10, 10)
        await bench.begins(0)
        bench.processor.gates[0].set()
        bench.begins_unheard(1)
        if is_left:
            bench.jobs[1].answer.cancel()
            bench.jobs[1].is_abandoned = True
        else:
            bench.jobs[1].request.deadline_ns = bench.clock.now_ns() + NS_PER_MS
        bench.put(3, run_bytes=10)
        await bench.end(0, 1, 2, 3)
        await bench.until(lambda: not bench.queue.scheduler.runs)
        assert bench.released == ([bench.jobs[1].build] if is_left else [])
        assert bench.jobs[1].state is RequestState.DONE
        assert bench.memory.running_bytes == 0


@pytest.mark.anyio
async def test_staged_jobs_never_exceed_the_workers_and_are_answered_once() -> None:
    """Many jobs of several tenants, some given up at random: no thread runs two, and all jobs that stay are
    answered.
    """
    async with working(workers=2) as bench:
        rng = np.random.default_rng(1)
        for number in range(200):
            bench.put(number, tenant=f"t{number % 3}", priority=int(rng.integers(3)))
            bench.processor.gates[number].set()
        gone = {int(n) for n in rng.choice(200, 40, replace=False)}
        for number in gone:
            each = bench.jobs[number]
            each.answer.cancel()
            if bench.queue.is_running(each):
                each.is_abandoned = True
            else:
                bench.queue.leave(each)
            await bench.pause(0)
        stay = [each for number, each in bench.jobs.items() if number not in gone]
        await asyncio.wait_for(asyncio.gather(*(each.answer for each in stay)), PATIENCE_S)
        await bench.until(lambda: not bench.queue.scheduler.runs)
        assert len(bench.queue) == 0
        assert len(bench.processor.begun) == len(set(bench.processor.begun))
        assert sum(worker.runs for worker in bench.workers) == len(bench.processor.begun)


@pytest.mark.anyio
async def test_job_with_counted_memory_is_staged_where_there_is_room() -> None:
    """Its memory is counted as for any other run; where it is short, the next job asks for it when a worker is free."""
    async with working(memory_bytes=25) as bench:
        bench.put_all(10, 10, 20)
        await bench.begins(0)
        assert bench.memory.running_bytes == 10
        assert bench.queue.staged is not None
        assert bench.queue.staged.job is bench.jobs[1]
        await bench.end(0)
        await bench.until(lambda: bench.queue.is_running(bench.jobs[1]))
        assert bench.memory.running_bytes == 10
        assert bench.queue.staged.job is None, "two of them do not fit beside one another"
        await bench.end(1)
        await bench.begins(2)
        assert bench.memory.running_bytes == 20
        await bench.end(2)


@pytest.mark.anyio
async def test_staged_job_counts_its_memory_from_the_moment_it_begins() -> None:
    """Another worker that is free before the first has heard of it begins with nothing for which there is no room any
    more.
    """
    async with working(workers=2, memory_bytes=100) as bench:
        bench.put_all(10, 10, 60, 30)
        await bench.begins(1)
        bench.processor.gates[0].set()
        bench.begins_unheard(2)
        assert bench.queue.is_running(bench.jobs[2])
        assert bench.memory.room_bytes == 100 - 10 - 10 - 60
        await bench.end(0)
        assert bench.memory.running_bytes == 10 + 60
        await bench.end(1, 2, 3)


SHARED = {"a third less": 6.6, "a seventh less": 8.6, "as long": 10.0}
"""What two rows take, ms, where one takes 5."""


@pytest.mark.parametrize(
    ("two_ms", "waiting", "may_share", "is_staged"),
    [
        (SHARED["a third less"], 1, True, False),  # who comes meanwhile may share its run
        (SHARED["a third less"], 14, False, True),
        (SHARED["a seventh less"], 1, True, True),
        (SHARED["a seventh less"], 2, True, True),  # one for each worker
        (SHARED["a seventh less"], 14, True, False),  # seven for each: the last is done sooner, and the mean one, too
        (SHARED["as long"], 14, True, True),
    ],
)
@pytest.mark.anyio
async def test_job_that_is_done_sooner_in_a_shared_run_is_not_staged(
    two_ms: float, waiting: int, may_share: bool, is_staged: bool
) -> None:
    """It could not share a run then; by as many as wait now, and what shared runs take while both workers have one."""
    assert was_staged(times_of(two_ms), waiting, may_share=may_share) is is_staged


@pytest.mark.anyio
async def test_shared_run_times_are_learnt_before_a_job_is_staged() -> None:
    """Of inputs of another size than the import's they are unknown, until they were seen with both workers at work."""
    times = RunTimes((Latency(1, 5.0, 6.0),), 0.1, lambda *_: None, is_measured=False)
    for _ in range(SETTLING):
        assert not was_staged(times, 2)
        times.ran(2, 2, int(SHARED["as long"] * NS_PER_MS), 0)
    assert was_staged(times, 2)


def times_of(two_ms: float) -> RunTimes:
    """Of a network that runs two rows in so many milliseconds where both workers have a run, and alone no quicker than
    one by one.
    """
    rows = (Latency(1, 5.0, 6.0), Latency(2, 10.0, 12.0), Latency(1, 5.0, 6.0, 2), Latency(2, two_ms, 12.0, 2))
    return RunTimes(rows, 0.1, lambda *_: None)


def was_staged(times: RunTimes, waiting: int, *, may_share: bool = True) -> bool:
    """With two workers."""
    each = job(servable=replace(SERVABLE, together_max=2))
    each.times, each.expected_ns, each.build.handle = times, 5 * NS_PER_MS, object()
    threads = WorkerThreads("none", 1)
    try:
        memory = RunMemory(lambda: 0, lambda: 0)
        staged = StagedJob(
            lambda *_, begin_by_ns, **__: threads.stage(begin_by_ns, int, 0), memory, 2, may_share=may_share
        )
        staged.put(each, waiting)
        return staged.job is not None
    finally:
        threads.close()
