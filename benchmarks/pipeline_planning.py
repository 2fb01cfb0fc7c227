"""How long it takes to plan the pipelines of a box, and what an event loop notices of it.

`pipeline_planning.py [--pipelines 8] [--workers 2] [--rounds 20]`. Each pipeline finds, crops and reads, with a fork of
two classifications at every third; two kinds of processors on the same cores, batches 1 … 16, measured as on a CPU.
Asked: 8 pipelines ≤ 150 ms; the event loop's P99 meanwhile ≤ 1.05 of that without.
"""

import argparse
import asyncio
import statistics
import time
from collections.abc import Sequence
from functools import partial

from appliance.domain.pipeline import CostBy
from appliance.policies.allocation import ALLOCATION_POLICIES, DEFAULT
from appliance.policies.allocation.base import AllocationInput, BatchWait, Module, Profile, WorkerType
from appliance.policies.allocation.several import Demand, Several, plan_several
from appliance.runtime.pipelines.process_background import ProcessBackground
from appliance.runtime.sessions.planner_process import PlannerEnded, PlannerNotBegun, PlannerProcess

BATCHES = (1, 2, 4, 8, 16)
TICK_S = 0.001


def demands(count: int, workers: int, load: float) -> list[Demand]:
    """Pipelines that want so many times what the workers can do, all together."""
    found = [_problems(index, workers) for index in range(count)]
    per_frame = [
        sum(m.rate_rps * min(p.latency_ms / p.batch for p in m.profiles) for m in one[0].modules) for one in found
    ]
    return [
        Demand(f"p{index}", load * workers * 1000.0 / count / per_frame[index], levels, 1.0 + index % 3)
        for index, levels in enumerate(found)
    ]


def _least_ms(module: Module) -> float:
    return module.rate_rps * min(profile.latency_ms / profile.batch for profile in module.profiles)


def _problems(index: int, workers: int) -> tuple[AllocationInput, ...]:
    types = tuple(WorkerType(name, 0.0, workers, "cores") for name in ("cpu", "openvino", "host"))
    return tuple(_problem(index, types, speed) for speed in (1.0, 1.4, 1.9))


def _problem(index: int, types: tuple[WorkerType, ...], speed: float) -> AllocationInput:
    items = 1.0 + index % 8
    modules = [
        _network("find", 1.0, (24.0 + 3.0 * index) / speed),
        Module("lines", 1.0, (Profile("host", 1, 1, 0.4),)),
        _network("read", items, (8.0 + index) / speed),
    ]
    edges = [("find", "lines"), ("lines", "read")]
    if index % 3 == 0:
        modules.append(_network("side", items, 3.0 / speed))
        edges += [("lines", "side"), ("side", "read")]
    return AllocationInput(
        600.0, types, tuple(modules), tuple(edges), cost_by=CostBy.SECONDS, batch_wait=BatchWait.REST
    )


def _network(name: str, rate_rps: float, run_ms: float) -> Module:
    """Batches gain a little on one of the kinds, and nothing on the other."""
    rows = [Profile("cpu", batch, 1, run_ms * batch * (1.0 + 0.02 * batch)) for batch in BATCHES]
    rows += [Profile("openvino", batch, 1, 0.8 * run_ms * (0.15 + 0.85 * batch)) for batch in BATCHES]
    return Module(name, rate_rps, tuple(rows))


def measure(title: str, wanted: Sequence[Demand], rounds: int, policy: str, *, is_kept: bool = False) -> None:
    """A row: wall and CPU milliseconds of a planning, and how it ended."""
    asked = ALLOCATION_POLICIES[policy]()
    kept = {}
    if is_kept:
        first = plan_several(wanted, asked)
        kept = {name: one.plan.placement for name, one in list(first.served.items())[1:]}
    walls, spent = [], []
    for _ in range(rounds):
        wall, cpu = time.perf_counter(), time.process_time()
        found: Several = plan_several(wanted, asked, kept)
        walls.append(1e3 * (time.perf_counter() - wall))
        spent.append(1e3 * (time.process_time() - cpu))
    feasible = sum(one.plan.feasible for one in found.served.values())
    degraded = sum(one.level > one.first for one in found.served.values())
    p50, worst = statistics.median(spent), max(spent)
    print(
        f"| {title} | {found.solved} | {p50:.1f} | {worst:.1f} | {statistics.median(walls):.1f} "
        f"| {feasible} of {len(found.served)}, {degraded} on cheaper variants |"
    )


async def loop_lag(wanted: Sequence[Demand], seconds: float, policy: str, where: str) -> float:
    """P99 of how late a timer of a millisecond is, milliseconds; with a planning twice a second in a thread, or in the
    process that a box has for it, or with none.
    """
    asked = ALLOCATION_POLICIES[policy]()
    process = PlannerProcess()
    background = ProcessBackground(process, PlannerEnded, PlannerNotBegun, asyncio.to_thread)
    if where == "process":
        await process.call(partial(plan_several, wanted, asked))
    late: list[float] = []
    end = time.perf_counter() + seconds

    async def plan() -> None:
        while time.perf_counter() < end:
            if where == "process":
                await background(partial(plan_several, wanted, asked))
            elif where == "thread":
                await asyncio.to_thread(plan_several, wanted, asked)
            await asyncio.sleep(0.5)

    task = asyncio.create_task(plan())
    while time.perf_counter() < end:
        begun = time.perf_counter()
        await asyncio.sleep(TICK_S)
        late.append(1e3 * (time.perf_counter() - begun - TICK_S))
    await task
    await process.close()
    return statistics.quantiles(late, n=100)[98]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pipelines", type=int, default=8)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--policy", default=DEFAULT)
    given = parser.parse_args()
    count, workers, rounds, policy = given.pipelines, given.workers, given.rounds, given.policy
    print(f"{count} pipelines, {workers} workers, {policy}\n")
    print("| what | problems | CPU ms | worst | wall ms | came of it |")
    print("| --- | --- | --- | --- | --- | --- |")
    measure("warm-up", demands(count, workers, 0.5), 1, policy)
    measure("one changed, at 50 %", demands(count, workers, 0.5), rounds, policy, is_kept=True)
    measure("all anew, at 50 %", demands(count, workers, 0.5), rounds, policy)
    measure("all anew, at 70 %", demands(count, workers, 0.7), rounds, policy)
    measure("too much, at 110 %", demands(count, workers, 1.1), rounds, policy)
    measure("too much, at 300 %", demands(count, workers, 3.0), rounds, policy)
    wanted = demands(count, workers, 0.7)
    for where in ("nowhere", "thread", "process") * 2:
        lag = asyncio.run(loop_lag(wanted, given.seconds, policy, where))
        print(f"\nplanned {where}, twice a second: event loop P99 {lag:.2f} ms late")


if __name__ == "__main__":
    main()
