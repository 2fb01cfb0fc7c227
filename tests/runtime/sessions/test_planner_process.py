"""The process of a planner, from its first order to its end."""

import asyncio
import contextlib
import gc
import operator
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager

import psutil
import pytest

from appliance.runtime.sessions.planner_process import PlannerProcess

pytestmark = [pytest.mark.usefixtures("processes"), pytest.mark.anyio]


class Counted:
    """How many planners are there, as the memory manager counts them."""

    is_busy: Callable[[], bool]
    end_now: Callable[[], None]

    def __init__(self) -> None:
        self.planners = 0

    def beginning(self) -> AbstractAsyncContextManager[None]:
        return self._beginning()

    @contextlib.asynccontextmanager
    async def _beginning(self) -> AsyncIterator[None]:
        self.planners += 1
        yield

    def ended(self) -> None:
        self.planners -= 1


@pytest.mark.parametrize("turns", range(6))
async def test_planner_closed_while_it_clears_up_dead_process_leaves_nothing_open(turns: int) -> None:
    """However far it has come: no socket (the garbage collector would tell of it) and nothing that is counted."""
    counted = Counted()
    planner = PlannerProcess(counting=counted)
    assert await planner.call(operator.add, 1, 2) == 3
    for child in psutil.Process().children():
        if any("planner_process" in word for word in child.cmdline()):
            child.kill()
            child.wait()
    planner.warm_up(operator.add, 1, 2)
    for _ in range(turns):
        await asyncio.sleep(0)  # noqa: TID251 - one turn of the loop
    await planner.close()
    gc.collect()
    assert counted.planners == 0
