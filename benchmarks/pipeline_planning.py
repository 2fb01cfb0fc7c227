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

from appliance.policies.allocation import ALLOCATION_POLICIES, DEFAULT
from appliance.policies.allocation.several import Demand, Several, plan_several
from appliance.runtime.pipelines.process_background import ProcessBackground
from appliance.runtime.sessions.planner_process import PlannerEnded, PlannerNotBegun, PlannerProcess
from tests.instances.pipelines import demands

BATCHES = (1, 2, 4, 8, 16)
TICK_S = 0.001


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
