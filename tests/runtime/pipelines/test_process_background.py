"""Planning in a process of its own: the same answers, and none is lost where it ends."""

import asyncio
import os
import threading
from functools import partial
from typing import Any

import pytest

from appliance.clock import NS_PER_S, pause_s
from appliance.policies.allocation.frontier import Frontier
from appliance.policies.allocation.several import plan_several
from appliance.runtime.memory.planner_processes import PlannerProcesses
from appliance.runtime.pipelines.process_background import ProcessBackground
from appliance.runtime.pipelines.solver import LIMIT_NS, Solver, SolverSlow
from appliance.runtime.ports import NotComputed
from appliance.runtime.sessions.planner_process import PlannerEnded, PlannerNotBegun, PlannerProcess
from benchmarks.pipeline_planning import demands
from tests.fakes.clock import story
from tests.fakes.memory import MemoryBench
from tests.fakes.waiting import until

pytestmark = pytest.mark.usefixtures("processes")


async def _in_thread(compute: Any) -> Any:
    return await asyncio.to_thread(compute)


async def _for_ever(compute: Any) -> Any:
    await asyncio.Event().wait()


def test_plans_are_the_same_there() -> None:
    """Before the process is there a thread plans, then the process does, and after its end a thread again: always the
    same plans.
    """

    async def story() -> None:
        process = PlannerProcess()
        background = ProcessBackground(process, PlannerEnded, PlannerNotBegun, _in_thread)
        compute = partial(plan_several, demands(3, 2, 0.6), Frontier())
        here = compute().served
        assert (await background(compute)).served == here
        warming: Any = process._warming
        await warming
        assert process.is_ready
        assert (await background(compute)).served == here
        assert process._begun is not None
        process._begun.process.kill()
        process._begun.process.wait()
        assert (await background(compute)).served == here
        await process.close()

    asyncio.run(story())


def test_what_goes_wrong_there_is_told() -> None:
    """An error of the policy is its own, wherever it computes."""

    async def story() -> None:
        background = ProcessBackground(PlannerProcess(), PlannerEnded, PlannerNotBegun, _in_thread)
        with pytest.raises(ZeroDivisionError):
            await background(partial(divmod, 1, 0))
        process: Any = background._process
        await process.close()

    asyncio.run(story())


def test_who_gives_up_waiting() -> None:
    """What computes for ever in the process is ended with it; from then on another process computes, and no thread,
    which could not be ended.
    """

    async def story() -> None:
        process = PlannerProcess()
        in_threads: list[Any] = []

        async def otherwise(compute: Any) -> Any:
            in_threads.append(compute)
            return compute()

        background = ProcessBackground(process, PlannerEnded, PlannerNotBegun, otherwise)
        assert await background(partial(divmod, 7, 2)) == (3, 1)
        assert len(in_threads) == 1
        warming: Any = process._warming
        await warming
        assert process._begun is not None
        before = process._begun
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await background(partial(pause_s, 600))
        assert not before.is_there
        assert await background(partial(divmod, 7, 2)) == (3, 1)
        assert len(in_threads) == 1
        await process.close()

    asyncio.run(story())


def test_a_process_that_ends_every_time() -> None:
    """Once somebody has given up waiting nothing computes in a thread where a process can begin: where that ends again
    and again, nothing is computed, which is told as that.
    """

    async def story() -> None:
        process = PlannerProcess()
        background = ProcessBackground(process, PlannerEnded, PlannerNotBegun, _for_ever)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await background(partial(pause_s, 600))
        for _ in range(2):
            with pytest.raises(NotComputed):
                await background(partial(os._exit, 1))
        assert await background(partial(divmod, 7, 2)) == (3, 1)
        await process.close()

    asyncio.run(story())


def test_what_never_ends_begins_no_process() -> None:
    """Only what a computation needs is imported while a process begins: one that never ends keeps nobody waiting."""

    async def story() -> None:
        process = PlannerProcess()
        background = ProcessBackground(process, PlannerEnded, PlannerNotBegun, _for_ever)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await background(partial(pause_s, 600))
        assert await background(partial(divmod, 7, 2)) == (3, 1)
        await process.close()

    asyncio.run(story())


@story
async def test_planning_goes_on_in_threads_after_a_late_answer_where_no_process_has_room() -> None:
    """A planner of 30 has no place in 100, of which planners have a quarter; one answer comes after the limit."""
    bench = MemoryBench({}, 100)
    process = PlannerProcess(0, PlannerProcesses(bench.clock, bench.memory).process("pipelines", 30))
    takes_ns = [2 * LIMIT_NS]

    async def otherwise(compute: Any) -> Any:
        await bench.clock.sleep_until_ns(bench.clock.now_ns() + (takes_ns.pop() if takes_ns else 0))
        return compute()

    solver = Solver(bench.clock, ProcessBackground(process, PlannerEnded, PlannerNotBegun, otherwise))
    with pytest.raises(SolverSlow):
        await solver.ask(partial(divmod, 7, 2))
    for _ in range(3):
        await bench.clock.sleep_until_ns(bench.clock.now_ns() + 65 * NS_PER_S)
        assert await solver.ask(partial(divmod, 7, 2)) == (3, 1)
    await process.close()


_LET_GO = threading.Event()


def test_policy_that_computes_for_ever_holds_one_thread_where_no_process_has_room() -> None:
    """Nothing else is computed until it has ended."""

    async def story() -> None:
        bench = MemoryBench({}, 100)
        process = PlannerProcess(0, PlannerProcesses(bench.clock, bench.memory).process("pipelines", 30))
        begun = []

        async def otherwise(compute: Any) -> Any:
            begun.append(compute)
            return await asyncio.to_thread(compute)

        background = ProcessBackground(process, PlannerEnded, PlannerNotBegun, otherwise)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await background(_until_let_go)
        for _ in range(2):
            with pytest.raises(NotComputed):
                await background(partial(divmod, 7, 2))
        assert len(begun) == 1
        _LET_GO.set()
        await until(lambda: not begun[0].is_running)
        assert await background(partial(divmod, 7, 2)) == (3, 1)
        await process.close()

    asyncio.run(story())


def _until_let_go() -> None:
    _LET_GO.wait()


def test_it_yields_to_who_serves() -> None:
    """A process that plans for half a second has less of a core than what answers requests."""

    async def story() -> None:
        process = PlannerProcess(5)
        own = os.getpriority(os.PRIO_PROCESS, 0)
        assert await process.call(os.getpriority, os.PRIO_PROCESS, 0) == min(19, own + 5)
        await process.close()

    asyncio.run(story())
