"""Dispatch (Band). Decisions follow one another as on a box: each run occupies its processor, its job comes back with
what is left, a new job takes the place of one that is done, and some deadlines are missed.

As the scheduler of a box asks, a job is stated once for all decisions through which it waits, with times on one scale.
The same decisions five times; of each the least counts, so that what else the machine does says little.
"""

import argparse
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from random import Random

from appliance.policies.dispatch import DISPATCH_POLICIES
from appliance.policies.dispatch.base import DispatchInput, Job, Processor
from appliance.policies.dispatch.partition import Operator, Partition, partition
from benchmarks import _results as results

SEEDS, QUICK, FIRST = 1, 1, 1
DECISIONS, ROUNDS = 2000, 5
PROCESSORS = ("cpu-0", "cpu-1", "gpu", "npu")
JOBS, NETWORKS, UNITS = 40, 4, 6
KINDS = (frozenset(PROCESSORS), frozenset(("cpu-0", "cpu-1", "gpu")), frozenset(("cpu-0", "cpu-1")))
SPEED = {"cpu-0": 1.0, "cpu-1": 1.0, "gpu": 0.5, "npu": 0.25}
TRANSFERS_MS = (0.0, 0.5)
DUE_AFTER_MS = (100.0, 900.0)


def network(name: str, random: Random) -> Partition:
    """A chain of units whose neighbours differ in their processors."""
    kinds: list[frozenset[str]] = []
    while len(kinds) < UNITS:
        kinds.append(random.choice([kind for kind in KINDS if kinds[-1:] != [kind]]))
    names = [f"{name}-{index}" for index in range(UNITS)]
    operators = [
        Operator(op, kind, tuple(names[index - 1 : index]) if index else ())
        for index, (op, kind) in enumerate(zip(names, kinds, strict=True))
    ]
    work_ms = {op: random.uniform(2.0, 20.0) for op in names}
    return partition(name, operators, {p: {op: ms * SPEED[p] for op, ms in work_ms.items()} for p in PROCESSORS})


def problems(count: int, seed: int, transfer_ms: float) -> Iterator[DispatchInput]:
    """One after another, as `least-slack` decides; what is late anyway leaves, as on a box."""
    random = Random(seed)
    networks = [network(f"net-{index}", random) for index in range(NETWORKS)]
    number, now_ms = 0, 0.0
    free = dict.fromkeys(PROCESSORS, 0.0)

    def arrival() -> Job:
        nonlocal number
        number += 1
        return Job(f"job-{number}", random.choice(networks), now_ms, now_ms + random.uniform(*DUE_AFTER_MS))

    jobs = {job.name: job for job in (arrival() for _ in range(JOBS))}
    policy = DISPATCH_POLICIES["least-slack"]()
    for _ in range(count):
        processors = tuple(Processor(name, until) for name, until in free.items())
        problem = DispatchInput(now_ms, processors, tuple(jobs.values()), transfer_ms)
        yield problem
        plan = policy.plan(problem)
        decision = plan.decision
        assert decision is not None
        job = jobs.pop(decision.job)
        ran = next(one for one in job.partition.subgraphs if one.units == decision.units)
        free[decision.processor] = decision.start_ms + ran.latency_ms[decision.processor]
        left = replace(job, done=job.done | decision.units, at=decision.processor)
        if left.done == left.partition.whole:
            left = arrival()
        jobs[left.name] = left
        for late in plan.violated:
            if late in jobs:
                del jobs[late]
                new = arrival()
                jobs[new.name] = new
        now_ms = max(now_ms, decision.start_ms)


def _times(options: argparse.Namespace, seeds: Sequence[int]) -> None:
    results.head("policy", "transfer, ms", "mean, ms", "median, ms", "P99, ms", title="Processor time of a decision")
    for transfer_ms in TRANSFERS_MS:
        for name, make in DISPATCH_POLICIES.items():
            rounds: list[list[float]] = []
            for _ in range(ROUNDS):
                policy = make()
                asked = (problem for seed in seeds for problem in problems(DECISIONS, seed, transfer_ms))
                rounds.append([results.spent(partial(policy.plan, problem))[1] for problem in asked])
            least = [min(decision) for decision in zip(*rounds, strict=True)]
            figures = (statistics.mean(least), statistics.median(least), results.percentile(least, 99))
            results.cells(name, transfer_ms, *figures)


TABLES = {"times": _times}
