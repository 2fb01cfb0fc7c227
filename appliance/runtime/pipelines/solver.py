"""The policy, asked for so long and no longer. Event-loop thread only."""

import asyncio
import math
from collections.abc import Callable
from typing import TypeVar

from appliance.clock import NS_PER_S, Clock
from appliance.runtime.pipelines.windows import REACH_NS
from appliance.runtime.ports import Background, NotComputed

T = TypeVar("T")
LIMIT_NS = REACH_NS
"""Of an answer about `COUNT` pipelines or fewer, and as much again for each further `COUNT`. The default policy takes a
fifth of a second for eight of three stages; an answer that took longer than this would be about frames that no window
reaches any more, and who joins waits as long."""
COUNT = 8
PAUSE_NS_MAX = 64 * NS_PER_S
"""Between two problems whose answers did not come: the first pause is `LIMIT_NS`, each further one twice the
last, so that a policy that hangs takes little of a core."""


class SolverSlow(Exception):
    """No answer came in time; or none did of late, and none is waited for again yet."""


class Solver:
    """Whoever solves problems of allocation."""

    def __init__(self, clock: Clock, background: Background) -> None:
        self._clock = clock
        self._background = background
        self._turn = asyncio.Lock()
        self._pause_ns = 0
        self._until_ns = 0

    @property
    def is_paused(self) -> bool:
        """Whether nothing is asked now, for the last answer did not come."""
        return self._clock.now_ns() < self._until_ns

    async def ask(self, compute: Callable[[], T], pipelines: int = 1) -> T:
        """The value of `compute()`, about so many pipelines. One is computed after the other, and the time that one
        waits for those before it does not count. Raises: SolverSlow, at once while it is paused.
        """
        async with self._turn:
            return await self._answer(compute, pipelines)

    async def _answer(self, compute: Callable[[], T], pipelines: int) -> T:
        if self.is_paused:
            raise SolverSlow
        try:
            async with asyncio.timeout(LIMIT_NS / NS_PER_S * max(1, math.ceil(pipelines / COUNT))) as limit:
                found = await self._background(compute)
        except (TimeoutError, NotComputed) as error:
            if isinstance(error, TimeoutError) and not limit.expired():
                raise
            self._pause_ns = min(PAUSE_NS_MAX, max(LIMIT_NS, 2 * self._pause_ns))
            self._until_ns = self._clock.now_ns() + self._pause_ns
            raise SolverSlow from None
        self._pause_ns = 0
        return found
