"""Dispatch (Band): processor time of a decision, 40 jobs of 4 networks of 6 units on 4 processors.

Asked: mean at most 0.05 ms (the paper: 0.049), P99 at most 0.2 ms. The decisions follow one another as on a box: each
run occupies its processor, its job comes back with what is left, and a new job takes the place of one that is done;
deadlines are drawn so that some are missed. The next decision is asked for when the run of the one before has begun;
`--ahead`: before that, so that processors are taken for half a second ahead, and half of the jobs are late, drop out
and are new each time. `--decisions`: so many, each policy.

As the scheduler of a box asks, a job is stated once for all decisions through which it waits, with times on one scale.
`--anew`: all of them for each decision, with times from now on, as in the decisions that a box records; no policy takes
another time for those. What a box needs beside the policy: `dispatch_box`. The same decisions `--rounds` times; of each
the least counts, so that what else the machine does says little.
"""

import argparse
import statistics
import time
from collections.abc import Iterator
from dataclasses import replace
from random import Random

from appliance.policies.dispatch import DISPATCH_POLICIES
from appliance.policies.dispatch.base import DispatchInput, Job, Processor
from appliance.policies.dispatch.partition import Operator, Partition, partition

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


def problems(
    count: int, seed: int, transfer_ms: float, drops: bool = True, *, ahead: bool = False
) -> Iterator[DispatchInput]:
    """One after another, as `least-slack` decides; `drops`: who is late anyway leaves, as on a box. `ahead`: runs need
    not have begun.
    """
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
        for late in plan.violated if drops else ():
            if late in jobs:
                del jobs[late]
                new = arrival()
                jobs[new.name] = new
        now_ms = max(now_ms, min(free.values()) if ahead else decision.start_ms)


def made_anew(problem: DispatchInput) -> DispatchInput:
    """The same problem as a box records it: at time 0, of jobs that no policy has seen."""
    now_ms = problem.now_ms
    return replace(
        problem,
        now_ms=0.0,
        processors=tuple(Processor(one.name, max(0.0, one.busy_until_ms - now_ms)) for one in problem.processors),
        jobs=tuple(
            replace(
                job,
                arrival_ms=job.arrival_ms - now_ms,
                deadline_ms=job.deadline_ms - now_ms,
                queued_ms=None if job.queued_ms is None else job.queued_ms - now_ms,
            )
            for job in problem.jobs
        ),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--decisions", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--ahead", action="store_true")
    parser.add_argument("--anew", action="store_true")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    for transfer_ms in TRANSFERS_MS:
        for name, make in DISPATCH_POLICIES.items():
            rounds: list[list[float]] = []
            for _ in range(options.rounds):
                policy, took = make(), list[float]()
                for problem in problems(options.decisions, options.seed, transfer_ms, ahead=options.ahead):
                    stated = made_anew(problem) if options.anew else problem
                    start_ns = time.process_time_ns()
                    policy.plan(stated)
                    took.append((time.process_time_ns() - start_ns) / 1e6)
                rounds.append(took)
            took_ms = [min(decision) for decision in zip(*rounds, strict=True)]
            p99_ms = statistics.quantiles(took_ms, n=100)[98]
            print(
                f"{name:16} transfer {transfer_ms:3.1f} ms: "
                f"mean {statistics.mean(took_ms):.4f} ms, median {statistics.median(took_ms):.4f}, P99 {p99_ms:.4f}"
            )


if __name__ == "__main__":
    main()
