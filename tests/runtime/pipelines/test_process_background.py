"""Planning in a process of its own: the same answers, and none is lost where it ends."""

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
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


Otherwise = Callable[[Any], Coroutine[Any, Any, Any]]


def background_of(process: PlannerProcess, otherwise: Otherwise) -> ProcessBackground:
    return ProcessBackground(process, PlannerEnded, PlannerNotBegun, otherwise)


@pytest.fixture
async def process() -> AsyncIterator[PlannerProcess]:
    made = PlannerProcess()
    yield made
    await made.close()


async def give_up_on(background: ProcessBackground, compute: Any) -> None:
    """The caller waits a tenth of a second for what computes for ever."""
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await background(compute)


@pytest.mark.anyio
async def test_plans_of_a_planner_process_equal_those_of_a_thread(process: PlannerProcess) -> None:
    """Before the process is there a thread plans, then the process does, and after its end a thread again."""
    background = background_of(process, _in_thread)
    compute = partial(plan_several, demands(3, 2, 0.6), Frontier())
    here = compute().served
    assert (await background(compute)).served == here
    await until(lambda: process.is_ready)
    assert (await background(compute)).served == here
    await killed(process)
    assert (await background(compute)).served == here


@pytest.mark.anyio
async def test_policy_error_reaches_the_caller_unchanged(process: PlannerProcess) -> None:
    """Wherever the policy computes."""
    with pytest.raises(ZeroDivisionError):
        await background_of(process, _in_thread)(partial(divmod, 1, 0))


@pytest.mark.anyio
async def test_planner_process_that_is_given_up_on_is_ended_and_replaced(process: PlannerProcess) -> None:
    """What computes for ever in the process is ended with the process; from then on another process computes, and no
    thread, which could not be ended.
    """
    in_threads: list[Any] = []

    async def otherwise(compute: Any) -> Any:
        in_threads.append(compute)
        return compute()

    background = background_of(process, otherwise)
    assert await background(partial(divmod, 7, 2)) == (3, 1)
    assert len(in_threads) == 1
    await until(lambda: process.is_ready)
    before = await process.call(os.getpid)
    await give_up_on(background, partial(pause_s, 600))
    with pytest.raises(ProcessLookupError):
        os.kill(before, 0)
    assert await background(partial(divmod, 7, 2)) == (3, 1)
    assert len(in_threads) == 1
    assert await process.call(os.getpid) != before


@pytest.mark.anyio
async def test_planner_process_that_keeps_ending_raises_not_computed(process: PlannerProcess) -> None:
    """Once a caller has given up waiting, nothing computes in a thread where a process can begin: where the process
    ends again and again, nothing is computed. What never ended keeps no other computation waiting.
    """
    background = background_of(process, _for_ever)
    await give_up_on(background, partial(pause_s, 600))
    assert await background(partial(divmod, 7, 2)) == (3, 1)
    for _ in range(2):
        with pytest.raises(NotComputed):
            await background(partial(os._exit, 1))
    assert await background(partial(divmod, 7, 2)) == (3, 1)


def without_room() -> tuple[MemoryBench, PlannerProcess]:
    """A planner of 30 has no place in 100, of which planners have a quarter."""
    bench = MemoryBench({}, 100)
    return bench, PlannerProcess(0, PlannerProcesses(bench.clock, bench.memory).process("pipelines", 30))


@story
async def test_planning_without_room_for_a_process_goes_on_in_threads() -> None:
    """One answer comes after the limit."""
    bench, process = without_room()
    takes_ns = [2 * LIMIT_NS]

    async def otherwise(compute: Any) -> Any:
        await bench.clock.sleep_until_ns(bench.clock.now_ns() + (takes_ns.pop() if takes_ns else 0))
        return compute()

    solver = Solver(bench.clock, background_of(process, otherwise))
    with pytest.raises(SolverSlow):
        await solver.ask(partial(divmod, 7, 2))
    for _ in range(3):
        await bench.clock.sleep_until_ns(bench.clock.now_ns() + 65 * NS_PER_S)
        assert await solver.ask(partial(divmod, 7, 2)) == (3, 1)
    await process.close()


@pytest.mark.anyio
async def test_endless_policy_without_room_for_a_process_holds_one_thread() -> None:
    """Nothing else is computed until the policy has ended."""
    _, process = without_room()
    let_go, begun = threading.Event(), []

    async def otherwise(compute: Any) -> Any:
        begun.append(compute)
        return await asyncio.to_thread(compute)

    background = background_of(process, otherwise)
    await give_up_on(background, let_go.wait)
    for _ in range(2):
        with pytest.raises(NotComputed):
            await background(partial(divmod, 7, 2))
    assert len(begun) == 1
    let_go.set()
    await until(lambda: not begun[0].is_running)
    assert await background(partial(divmod, 7, 2)) == (3, 1)
    await process.close()


@pytest.mark.anyio
async def test_planner_process_runs_at_a_lower_priority_than_serving() -> None:
    """A process that plans for half a second has less of a core than what answers requests."""
    process = PlannerProcess(5)
    own = os.getpriority(os.PRIO_PROCESS, 0)
    assert await process.call(os.getpriority, os.PRIO_PROCESS, 0) == min(19, own + 5)
    await process.close()
