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
from tests.fakes.clock import story
from tests.fakes.memory import MemoryBench
from tests.fakes.planner_processes import killed
from tests.fakes.waiting import until
from tests.instances.pipelines import demands

pytestmark = pytest.mark.usefixtures("processes")


async def _in_thread(compute: Any) -> Any:
    return await asyncio.to_thread(compute)


async def _for_ever(compute: Any) -> Any:
    await asyncio.Event().wait()


def test_plans_of_a_planner_process_equal_those_of_a_thread() -> None:
    """Before the process is there a thread plans, then the process does, and after its end a thread again."""

    async def story() -> None:
        process = PlannerProcess()
        background = ProcessBackground(process, PlannerEnded, PlannerNotBegun, _in_thread)
        compute = partial(plan_several, demands(3, 2, 0.6), Frontier())
        here = compute().served
        assert (await background(compute)).served == here
        await until(lambda: process.is_ready)
        assert (await background(compute)).served == here
        await killed(process)
        assert (await background(compute)).served == here
        await process.close()

    asyncio.run(story())


def test_policy_error_reaches_the_caller_unchanged() -> None:
    """Wherever the policy computes."""

    async def story() -> None:
        process = PlannerProcess()
        background = ProcessBackground(process, PlannerEnded, PlannerNotBegun, _in_thread)
        with pytest.raises(ZeroDivisionError):
            await background(partial(divmod, 1, 0))
        await process.close()

    asyncio.run(story())


def test_planner_process_that_is_given_up_on_is_ended_and_replaced() -> None:
    """What computes for ever in the process is ended with the process; from then on another process computes, and no
    thread, which could not be ended.
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
        await until(lambda: process.is_ready)
        before = await process.call(os.getpid)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await background(partial(pause_s, 600))
        with pytest.raises(ProcessLookupError):
            os.kill(before, 0)
        assert await background(partial(divmod, 7, 2)) == (3, 1)
        assert len(in_threads) == 1
        assert await process.call(os.getpid) != before
        await process.close()

    asyncio.run(story())


def test_planner_process_that_keeps_ending_raises_not_computed() -> None:
    """Once a caller has given up waiting, nothing computes in a thread where a process can begin: where the process
    ends again and again, nothing is computed.
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


def test_endless_computation_does_not_delay_the_planner_process() -> None:
    """While a process begins, only what a computation needs is imported: one that never ends keeps no other waiting."""

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
async def test_planning_without_room_for_a_process_goes_on_in_threads() -> None:
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


def test_endless_policy_without_room_for_a_process_holds_one_thread() -> None:
    """Nothing else is computed until the policy has ended."""

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


def test_planner_process_runs_at_a_lower_priority_than_serving() -> None:
    """A process that plans for half a second has less of a core than what answers requests."""

    async def story() -> None:
        process = PlannerProcess(5)
        own = os.getpriority(os.PRIO_PROCESS, 0)
        assert await process.call(os.getpriority, os.PRIO_PROCESS, 0) == min(19, own + 5)
        await process.close()

    asyncio.run(story())
