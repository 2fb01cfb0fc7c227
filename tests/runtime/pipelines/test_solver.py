"""The policy is asked for so long and no longer."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

import pytest

from appliance.clock import NS_PER_S, LoopClock
from appliance.runtime.pipelines.solver import LIMIT_NS, PAUSE_NS_MAX, Solver, SolverSlow
from appliance.runtime.ports import NotComputed
from tests.fakes.clock import story

T = TypeVar("T")


@story
async def test_solver_without_an_answer_gives_up_and_pauses_ever_longer() -> None:
    """Given up after the limit, and not asked for again for as long, then twice as long, and so on; an answer that
    comes ends that.
    """
    clock = LoopClock()
    asked = 0
    takes_s = 1e6

    async def background(compute: Callable[[], T]) -> T:
        nonlocal asked
        asked += 1
        await asyncio.sleep(takes_s)  # noqa: TID251 - virtual time
        return compute()

    solver = Solver(clock, background)
    for pause_s in (5, 10, 20, 40, PAUSE_NS_MAX / NS_PER_S, PAUSE_NS_MAX / NS_PER_S):
        begun_ns = clock.now_ns()
        with pytest.raises(SolverSlow):
            await solver.ask(lambda: 1)
        assert clock.now_ns() - begun_ns == LIMIT_NS
        before = asked
        with pytest.raises(SolverSlow):
            await solver.ask(lambda: 1)
        assert asked == before
        await asyncio.sleep(pause_s - 0.001)  # noqa: TID251 - virtual time
        assert solver.is_paused
        await asyncio.sleep(0.001)  # noqa: TID251 - virtual time
        assert not solver.is_paused
    takes_s = 1.0
    assert await solver.ask(lambda: 1) == 1
    takes_s = 1e6
    with pytest.raises(SolverSlow):
        await solver.ask(lambda: 1)
    await asyncio.sleep(5)  # noqa: TID251 - virtual time
    assert not solver.is_paused
    takes_s = 12.0
    assert await solver.ask(lambda: 1, 24) == 1
    takes_s = 1.0
    assert await solver.ask(lambda: 1, 0) == 1


@story
async def test_solver_answer_behind_a_long_answer_has_the_whole_limit() -> None:
    """One process computes all answers: a quick one behind a long one is not given up for that."""
    turn, takes_s = asyncio.Lock(), iter((30.0, 1.0))

    async def background(compute: Callable[[], T]) -> T:
        async with turn:
            await asyncio.sleep(next(takes_s))  # noqa: TID251 - virtual time
            return compute()

    solver = Solver(LoopClock(), background)
    long = asyncio.create_task(solver.ask(lambda: "long", 64))
    quick = asyncio.create_task(solver.ask(lambda: "quick"))
    assert (await long, await quick) == ("long", "quick")
    assert not solver.is_paused


@story
async def test_solver_pauses_where_no_process_computes() -> None:
    """The process has ended before, and there is no other: as with an answer that does not come."""
    clock = LoopClock()

    async def background(compute: Callable[[], T]) -> T:
        raise NotComputed

    solver = Solver(clock, background)
    with pytest.raises(SolverSlow):
        await solver.ask(lambda: 1)
    assert solver.is_paused


@story
async def test_policy_error_is_raised_and_does_not_pause_the_solver() -> None:
    """Whatever the error is called, also `TimeoutError`."""

    async def background(compute: Callable[[], T]) -> T:
        return compute()

    def fail() -> int:
        raise TimeoutError

    solver = Solver(LoopClock(), background)
    with pytest.raises(TimeoutError):
        await solver.ask(fail)
    assert not solver.is_paused
