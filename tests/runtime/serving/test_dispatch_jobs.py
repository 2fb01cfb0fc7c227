"""Waiting jobs as a policy sees them: stated once, and anew when something of them has changed."""

import asyncio
from itertools import pairwise

import pytest

from appliance.policies.dispatch.base import DispatchInput
from appliance.policies.dispatch.base import Job as DispatchJob
from appliance.runtime.serving.dispatch_jobs import DispatchJobs
from tests.fakes.clock import settle, story
from tests.fakes.engine import EngineBench
from tests.fakes.policies import listen
from tests.fakes.processor import Cost
from tests.runtime.at_work import engine, warm


def asked(bench: EngineBench) -> list[DispatchInput]:
    """What the policy is asked from now on."""
    problems: list[DispatchInput] = []
    listen(bench.policies.dispatch, problems.append)
    return problems


def bench_of() -> EngineBench:
    bench = engine(Cost(run_ms=10, load_ms=0), twins=[(1, 3.0, 1 / 3)])
    return bench


@story
async def test_waiting_dispatch_job_is_stated_once() -> None:
    """Between decisions that are recorded, which are one a second, a job is the same object."""
    async with warm(bench_of()) as bench:
        problems = asked(bench)
        await asyncio.gather(*(bench.infer() for _ in range(12)))
    stated: dict[str, DispatchJob] = {}
    for problem in problems:
        assert 0 <= problem.now_ms < 60_000
        for job in problem.jobs:
            if len(job.name) > 2:  # those of decisions that are recorded have their places for names
                assert stated.setdefault(job.name, job) is job
    assert 0 < len(stated) <= 12
    assert sum(len(problem.jobs) for problem in problems) > 3 * len(stated)


@story
async def test_dispatch_job_is_stated_anew_when_its_time_scale_ends() -> None:
    """A job that waits for longer than a scale lasts has times on the next one; its deadline comes as much nearer as
    time has passed.
    """
    async with warm(bench_of()) as bench:
        bench.processor.slowness = bench.twins[0].slowness = 100_000.0
        waiting = [asyncio.create_task(bench.infer(within_ms=3_000_000)) for _ in range(3)]
        await settle()
        *_, job = [call.reference for call in bench.queue.scheduler.line.calls()]
        dispatch_jobs, left_ms = DispatchJobs(bench.group.groups(), {}), []
        for _ in range(4):
            now_ns = bench.clock.now_ns()
            now_ms = dispatch_jobs.now_ms(now_ns)
            stated = dispatch_jobs.of(job, (0, 1))
            assert dispatch_jobs.of(job, (0, 1)) is stated
            left_ms.append(stated.deadline_ms - now_ms)
            assert left_ms[-1] == pytest.approx(dispatch_jobs.anew("01", job, (0, 1), now_ns).deadline_ms)
            await bench.pause(45_000)
        assert [before - after for before, after in pairwise(left_ms)] == [45_000] * 3
        assert dispatch_jobs.of(job, (1,)) is not stated
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
