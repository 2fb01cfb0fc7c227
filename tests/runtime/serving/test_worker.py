"""A worker: one run at a time, every job answered, its time counted."""

import asyncio
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from appliance.clock import NS_PER_S, LoopClock
from appliance.domain.errors import NoRoomToRun, RunFailed, ShuttingDown
from appliance.domain.request import Tensors
from appliance.domain.states import RequestState
from appliance.policies.batching.by_profile import ByProfile
from appliance.runtime.memory.build import LoadedBuild
from appliance.runtime.memory.runs import RunMemory
from appliance.runtime.ports import RunGroup
from appliance.runtime.serving.batching import Batching
from appliance.runtime.serving.job import Job
from appliance.runtime.serving.queue import Queue
from appliance.runtime.serving.spending import SingleCallSpending
from appliance.runtime.serving.worker import Worker
from tests.fakes.clock import settle, story
from tests.fakes.processor import Cost, FakeProcessor, Handle
from tests.runtime.serving.jobs import job


class WorkerBench:
    """A worker with a queue and a processor on which build `b` is resident."""

    def __init__(self, processor_of: type[FakeProcessor] = FakeProcessor) -> None:
        self.clock = LoopClock()
        self.processor = processor_of(self.clock, {"b": Cost(run_ms=10)})
        self.queue = Queue(self.clock, 100, 100)
        self.released: list[LoadedBuild] = []
        batching = Batching(self.clock, self.queue, ByProfile(), RunMemory(lambda: 0, lambda: 0), 1)
        group = RunGroup("p", 1, self.processor, {"cpu": ""})
        self.worker = Worker(self.clock, group, self.queue, self.released.append, batching, SingleCallSpending())

    def put(self) -> Job:
        each = job()
        each.request.inputs = {"x": np.ones(1, np.float32)}
        each.build.handle = Handle("b")
        self.queue.put(each)
        return each


class Failing(FakeProcessor):
    """Refuses every run."""

    async def run(
        self, handle: Handle, inputs: Tensors, outputs: object, *, deadline_ns: int | None = None
    ) -> dict[str, object]:
        raise RunFailed(variant_id="b", reason="no")


@story
async def test_worker_serves_jobs_one_after_another() -> None:
    """Three jobs take three times the run time; runs and busy time are counted, and each request knows its begin."""
    bench = WorkerBench()
    jobs = [bench.put() for _ in range(3)]
    work = asyncio.create_task(bench.worker.work())
    answers = await asyncio.gather(*(each.answer for each in jobs))
    assert [a["y"].tolist() for a in answers] == [[2.0]] * 3
    assert [each.state for each in jobs] == [RequestState.DONE] * 3
    assert jobs[2].started_ns - jobs[0].started_ns == pytest.approx(20e6, abs=1000)
    assert [each.request.started_ns for each in jobs] == [each.started_ns for each in jobs]
    assert bench.worker.runs == 3
    assert bench.worker.busy_ns == pytest.approx(30e6, abs=1000)
    assert bench.released == []
    work.cancel()


@story
async def test_worker_answers_a_failed_run_and_goes_on() -> None:
    """The processor's refusal is the job's answer; the worker serves on."""
    bench = WorkerBench(Failing)
    jobs = [bench.put() for _ in range(2)]
    work = asyncio.create_task(bench.worker.work())
    for each in jobs:
        with pytest.raises(RunFailed):
            await each.answer
        assert each.state is RequestState.FAILED
    assert not work.done()
    work.cancel()


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
    bench = WorkerBench(Strange)
    first, second = bench.put(), bench.put()
    work = asyncio.create_task(bench.worker.work())
    with pytest.raises(TypeError, match="no array"):
        await first.answer
    assert (await second.answer)["y"].tolist() == [2.0]
    assert (first.state, bench.queue.flows.line.is_busy) == (RequestState.FAILED, False)
    work.cancel()


@story
async def test_abandoned_run_releases_its_build_when_it_ends() -> None:
    """The caller left the build to the worker: it is not released before."""
    bench = WorkerBench()
    each = bench.put()
    work = asyncio.create_task(bench.worker.work())
    await settle()
    each.answer.cancel()
    each.is_abandoned = True
    await settle()
    assert bench.released == []
    await bench.clock.sleep_until_ns(bench.clock.now_ns() + 11_000_000)
    assert bench.released == [each.build]
    work.cancel()


@story
async def test_caller_that_cancels_as_its_run_ends_releases_the_build_itself() -> None:
    """The caller went away in the very moment of the answer and has not woken: the worker leaves the build to it."""
    bench = WorkerBench()
    each = bench.put()
    work = asyncio.create_task(bench.worker.work())
    await settle()
    each.answer.cancel()
    await bench.clock.sleep_until_ns(bench.clock.now_ns() + 11_000_000)
    assert bench.released == []
    assert each.state is RequestState.DONE
    work.cancel()


@story
async def test_stopped_worker_answers_its_job() -> None:
    """The box stops during a run: the caller has ShuttingDown."""
    bench = WorkerBench()
    each = bench.put()
    work = asyncio.create_task(bench.worker.work())
    await settle()
    work.cancel()
    with pytest.raises(ShuttingDown):
        await each.answer
    with pytest.raises(asyncio.CancelledError):
        await work


@story
async def test_run_that_may_go_on_after_its_deadline_is_not_overdue() -> None:
    """A request that is answered late, or shares a run with such a one, may go on for as long as it takes: where that
    is more than was expected, its owner must not have the whole box begun anew for it.
    """
    bench = WorkerBench()
    bench.processor.costs["b"].run_ms = 100_000
    each = bench.put()
    each.request.deadline_ns, each.request.runs_late = bench.clock.now_ns() + 2 * NS_PER_S, True
    work = asyncio.create_task(bench.worker.work())
    await bench.clock.sleep_until_ns(bench.clock.now_ns() + 90 * NS_PER_S)
    assert bench.queue.under_way.overdue_ns(bench.clock.now_ns()) == 0
    await each.answer
    work.cancel()


@story
async def test_run_past_its_expected_end_is_overdue() -> None:
    """By its deadline and by what is expected of an unknown run; never a run in a guard, which ends with it."""
    bench = WorkerBench()
    bench.processor.costs["b"].run_ms = 100_000
    each = bench.put()
    each.request.deadline_ns = bench.clock.now_ns() + 2 * NS_PER_S
    work = asyncio.create_task(bench.worker.work())
    await bench.clock.sleep_until_ns(bench.clock.now_ns() + 1 * NS_PER_S)
    assert bench.queue.under_way.overdue_ns(bench.clock.now_ns()) == 0
    await bench.clock.sleep_until_ns(bench.clock.now_ns() + 62 * NS_PER_S)
    assert bench.queue.under_way.overdue_ns(bench.clock.now_ns()) == pytest.approx(61 * NS_PER_S, abs=1000)
    each.servable = replace(each.servable, is_guarded=True)
    assert bench.queue.under_way.overdue_ns(bench.clock.now_ns()) == 0
    await each.answer
    assert bench.queue.under_way.overdue_ns(bench.clock.now_ns()) == 0
    work.cancel()


@story
async def test_run_without_memory_is_refused_and_charged_nothing() -> None:
    """Its memory was taken meanwhile: its tenant owes nothing for it, and the next job is served."""
    bench = WorkerBench()
    refused, served = bench.put(), bench.put()
    refused.run_bytes = 10
    work = asyncio.create_task(bench.worker.work())
    with pytest.raises(NoRoomToRun):
        await refused.answer
    await served.answer
    assert (bench.worker.runs, bench.queue.flows.line.is_busy) == (1, False)
    work.cancel()
