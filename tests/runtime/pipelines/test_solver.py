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


class Policy:
    """Takes its time for an answer."""

    def __init__(self, takes_s: float = 1e6) -> None:
        self.takes_s = takes_s
        self.asked = 0

    async def __call__(self, compute: Callable[[], T]) -> T:
        self.asked += 1
        await asyncio.sleep(self.takes_s)  # noqa: TID251 - virtual time
        return compute()


async def not_answered(solver: Solver) -> None:
    with pytest.raises(SolverSlow):
        await solver.ask(lambda: 1)


@story
async def test_solver_without_an_answer_gives_up_and_pauses_ever_longer() -> None:
    """Given up after the limit, and not asked for again for as long, then twice as long, and so on; an answer that
    comes ends that.
    """
    clock, policy = LoopClock(), Policy()
    solver = Solver(clock, policy)
    for pause_s in (5, 10, 20, 40, PAUSE_NS_MAX / NS_PER_S, PAUSE_NS_MAX / NS_PER_S):
        begun_ns = clock.now_ns()
        await not_answered(solver)
        assert clock.now_ns() - begun_ns == LIMIT_NS
        before = policy.asked
        await not_answered(solver)
        assert policy.asked == before
        await asyncio.sleep(pause_s - 0.001)  # noqa: TID251 - virtual time
        assert solver.is_paused
        await asyncio.sleep(0.001)  # noqa: TID251 - virtual time
        assert not solver.is_paused
    policy.takes_s = 1.0
    assert await solver.ask(lambda: 1) == 1
    policy.takes_s = 1e6
    await not_answered(solver)
    await asyncio.sleep(5)  # noqa: TID251 - virtual time
    assert not solver.is_paused
    policy.takes_s = 12.0
    assert await solver.ask(lambda: 1, 24) == 1
    policy.takes_s = 1.0
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


@pytest.mark.parametrize(
    ("error", "seen", "is_paused"),
    [(NotComputed, SolverSlow, True), (TimeoutError, TimeoutError, False), (ValueError, ValueError, False)],
)
@story
async def test_solver_pauses_where_no_process_computes_and_not_for_errors_of_a_policy(
    error: type[Exception], seen: type[Exception], is_paused: bool
) -> None:
    """The process has ended before, and there is no other: as with an answer that does not come. What a policy raises
    is raised, whatever it is called.
    """

    async def background(compute: Callable[[], T]) -> T:
        raise error

    solver = Solver(LoopClock(), background)
    with pytest.raises(seen):
        await solver.ask(lambda: 1)
    assert solver.is_paused is is_paused
