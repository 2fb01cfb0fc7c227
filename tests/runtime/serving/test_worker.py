"""A worker: one run at a time, every job answered, its time counted."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from appliance.clock import NS_PER_S, LoopClock
from appliance.domain.errors import NoRoomToRun
from appliance.domain.request import Tensors
from appliance.domain.states import RequestState
from appliance.runtime.memory.build import LoadedBuild
from appliance.runtime.memory.runs import RunMemory
from appliance.runtime.ports import RunGroup
from appliance.runtime.serving.job import Job
from appliance.runtime.serving.queue import Queue
from appliance.runtime.serving.spending import SpendingByTenant
from appliance.runtime.serving.worker import Worker
from tests.fakes.clock import settle, story
from tests.fakes.processor import Cost, FakeProcessor, Handle
from tests.runtime.serving.jobs import job


class WorkerBench:
    """A worker with a queue and a processor on which build `b` is resident."""

    def __init__(self, processor_of: type[FakeProcessor] = FakeProcessor) -> None:
        self.clock = LoopClock()
        self.processor = processor_of(self.clock, {"b": Cost(run_ms=10)})
        self.released: list[LoadedBuild] = []
        group, memory = RunGroup("p", 1, self.processor, {"cpu": ""}), RunMemory(lambda: 0, lambda: 0)
        self.queue = Queue(self.clock, [group], memory)
        self.worker = Worker(self.clock, group, self.queue, memory, self.released.append, SpendingByTenant())

    def put(self) -> Job:
        each = job()
        each.request.inputs = {"x": np.ones(1, np.float32)}
        each.build.handle = Handle("b")
        self.queue.put(each)
        return each

    async def pause_s(self, seconds: float) -> None:
        await self.clock.sleep_until_ns(self.clock.now_ns() + int(seconds * NS_PER_S))

    def overdue_ns(self) -> int:
        """How long ago the run under way should have ended."""
        return self.queue.overdue_ns(self.clock.now_ns())


@asynccontextmanager
async def at_work(processor_of: type[FakeProcessor] = FakeProcessor) -> AsyncIterator[WorkerBench]:
    """The bench with its worker, which is stopped in the end."""
    bench = WorkerBench(processor_of)
    work = asyncio.create_task(bench.worker.work())
    yield bench
    work.cancel()


@story
async def test_worker_serves_jobs_one_after_another() -> None:
    """Three jobs take three times the run time; runs and busy time are counted, and each request knows its begin."""
    async with at_work() as bench:
        jobs = [bench.put() for _ in range(3)]
        answers = await asyncio.gather(*(each.answer for each in jobs))
    assert [a["y"].tolist() for a in answers] == [[2.0]] * 3
    assert [each.state for each in jobs] == [RequestState.DONE] * 3
    assert jobs[2].started_ns - jobs[0].started_ns == pytest.approx(20e6, abs=1000)
    assert [each.request.started_ns for each in jobs] == [each.started_ns for each in jobs]
    assert bench.worker.runs == 3
    assert bench.worker.busy_ns == pytest.approx(30e6, abs=1000)
    assert bench.released == []


class Strange(FakeProcessor):
    """Raises what nobody foresaw before its first run has begun, as inputs do that are no arrays."""

    def run(
        self, handle: Handle, inputs: Tensors, outputs: object, *, deadline_ns: int | None = None
    ) -> Coroutine[Any, Any, dict[str, Any]]:
        if not self.ran:
            self.ran.append(inputs)
            raise TypeError("no array")
        return super().run(handle, inputs, None, deadline_ns=deadline_ns)


@story
async def test_job_that_cannot_be_handed_over_is_answered() -> None:
    """Whatever is raised: its caller has the error, and the worker takes the next job."""
    async with at_work(Strange) as bench:
        first, second = bench.put(), bench.put()
        with pytest.raises(TypeError, match="no array"):
            await first.answer
        assert (await second.answer)["y"].tolist() == [2.0]
        assert (first.state, bench.queue.scheduler.is_expecting) == (RequestState.FAILED, False)


@pytest.mark.parametrize("is_left", [True, False], ids=["long before", "in that very moment"])
@story
async def test_build_of_a_cancelled_run_is_released_by_its_worker_if_that_was_left_to_it(is_left: bool) -> None:
    """When the run ends, and not before. A caller that went away in the very moment of the answer has not woken: it
    releases the build itself.
    """
    async with at_work() as bench:
        each = bench.put()
        await settle()
        each.answer.cancel()
        each.is_abandoned = is_left
        await settle()
        assert bench.released == []
        await bench.pause_s(0.011)
    assert bench.released == ([each.build] if is_left else [])
    assert each.state is RequestState.DONE


@pytest.mark.parametrize(("runs_late", "overdue_s"), [(False, 61), (True, 0)])
@story
async def test_run_past_its_expected_end_is_overdue_unless_it_may_go_on(runs_late: bool, overdue_s: int) -> None:
    """By its deadline and by what is expected of an unknown run. A run in a guard never is, for it ends with its guard,
    nor is one whose request may be answered late: its owner must not have the whole box begun anew for it.
    """
    async with at_work() as bench:
        bench.processor.costs["b"].run_ms = 100_000
        each = bench.put()
        each.request.deadline_ns, each.request.runs_late = bench.clock.now_ns() + 2 * NS_PER_S, runs_late
        await bench.pause_s(1)
        assert bench.overdue_ns() == 0
        await bench.pause_s(62)
        assert bench.overdue_ns() == pytest.approx(overdue_s * NS_PER_S, abs=1000)
        each.servable = replace(each.servable, is_guarded=True)
        assert bench.overdue_ns() == 0
        await each.answer
        assert bench.overdue_ns() == 0


@story
async def test_run_without_memory_is_refused_and_charged_nothing() -> None:
    """Its memory was taken meanwhile: its tenant owes nothing for it, and the next job is served."""
    async with at_work() as bench:
        refused, served = bench.put(), bench.put()
        refused.run_bytes = 10
        with pytest.raises(NoRoomToRun):
            await refused.answer
        await served.answer
        assert (bench.worker.runs, bench.queue.scheduler.is_expecting) == (1, False)
