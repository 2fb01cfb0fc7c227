"""Least slack first, asked again and again: what was worked out for one decision changes no other one."""

from collections.abc import Iterator
from dataclasses import replace
from random import Random

import pytest

from appliance.policies.dispatch.base import FOREVER, DispatchInput, Job, Processor
from appliance.policies.dispatch.least_slack import LeastSlack
from appliance.policies.dispatch.outlook import Outlook
from tests.policies.dispatch.chains import chain

NAMES = ("CPU", "GPU", "NPU")
NETS = (
    chain("x", {"CPU": 4, "GPU": 4}, {"CPU": 2}, {"NPU": 1, "GPU": 7}),
    chain("y", {"CPU": 6, "NPU": 6}, {"GPU": 2}),
    chain("z", {"GPU": 3}),
)


def story(seed: int, count: int = 60) -> Iterator[DispatchInput]:
    """Decisions that follow one another: jobs come, go on and are given up, processors are busy, lost, and back."""
    random = Random(seed)
    number, now_ms = 0, 0.0
    free, jobs = dict.fromkeys(NAMES, 0.0), dict[str, Job]()
    policy = LeastSlack()
    for _ in range(count):
        while len(jobs) < random.choice((2, 8, 12)):
            number += 1
            due_ms = random.choice((FOREVER, now_ms + random.uniform(2, 80)))
            name, priority = f"j{number}", random.choice((0, 0, 0, 1))
            jobs[name] = Job(name, random.choice(NETS), now_ms, due_ms, priority=priority)
        there = [name for name in NAMES if random.random() > 0.1]
        order = list(jobs.values())
        random.shuffle(order)
        problem = DispatchInput(now_ms, tuple(Processor(one, free[one]) for one in there), tuple(order), 0.5)
        yield problem
        plan = policy.plan(problem)
        now_ms += random.uniform(0, 3)
        if plan.decision is None:
            continue
        job = jobs.pop(plan.decision.job)
        ran = next(one for one in job.partition.subgraphs if one.units == plan.decision.units)
        free[plan.decision.processor] = plan.decision.start_ms + ran.latency_ms[plan.decision.processor]
        left = replace(job, done=job.done | ran.units, at=plan.decision.processor)
        if left.done != left.partition.whole:
            jobs[left.name] = left
        for late in plan.violated:
            if random.random() < 0.5:
                jobs.pop(late, None)


@pytest.mark.parametrize("seed", range(12))
def test_least_slack_decision_does_not_depend_on_earlier_decisions(seed: int) -> None:
    """A policy that has decided all along answers as one that is asked for the first time."""
    along = LeastSlack()
    decided = 0
    for problem in story(seed):
        plan = along.plan(problem)
        assert plan == LeastSlack().plan(problem)
        decided += plan.decision is not None
    assert decided > 30


@pytest.mark.parametrize("seed", range(4))
def test_least_slack_picks_the_most_urgent_job_that_can_be_in_time(seed: int) -> None:
    """As each job's finish says that is worked out by itself, nothing left out."""
    along = LeastSlack()
    for problem in story(seed):
        finish_ms = {}
        for job in problem.jobs:
            (group,) = Outlook(replace(problem, jobs=(job,))).groups
            if group.can_run:
                finish_ms[job.name] = group.finish_ms
        plan = along.plan(problem)
        late = {job.name for job in problem.jobs if job.deadline_ms < finish_ms.get(job.name, -FOREVER) - 1e-9}
        assert set(plan.violated) == late
        able = [job for job in problem.jobs if job.name in finish_ms]
        in_time = [job for job in able if job.name not in late] or able
        urgent = [job for job in in_time if job.priority == max(one.priority for one in in_time)]
        if plan.decision is None:
            assert not able
            continue
        slack_ms = {job.name: round(job.deadline_ms - finish_ms[job.name], 6) for job in urgent}
        first = min(urgent, key=lambda job: (slack_ms[job.name], job.arrival_ms, job.name))
        assert plan.decision.job == first.name
