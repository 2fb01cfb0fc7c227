"""When upkeep has its turn: measuring anew what is known already, which nobody waits for.

It begins when no request has come for a while, and rests as soon as one does. On a box that never has nothing to do a
piece of it is done now and then all the same: what was measured on another machine, or with another library, would
serve it badly for ever.
"""

import asyncio
import contextvars
from collections.abc import Callable, Coroutine
from typing import Any

from appliance.child import RESTS, Rests
from appliance.clock import NS_PER_MS, NS_PER_S, Clock

Asked = Callable[[], tuple[int, int]]
"""Requests since the start, and those under way."""
_LOOK_NS = 50 * NS_PER_MS
_RESTS_S_MAX = 60.0
"""What rests keeps its memory; after so long it ends, and begins anew another time."""


def nobody() -> tuple[int, int]:
    """Has asked anything."""
    return 0, 0


class Upkeep:
    """Pieces of work, one after the other. Event-loop thread only."""

    def __init__(self, clock: Clock, asked: Asked = nobody, idle_s: float = 0.0, wait_s: float = 0.0) -> None:
        """A piece begins when there has been no request for `idle_s`, or when it has waited for `wait_s`."""
        self._clock = clock
        self._asked = asked
        self._idle_ns = int(idle_s * NS_PER_S)
        self._wait_ns = int(wait_s * NS_PER_S)
        self._begun = 0
        self._busy_ns = clock.now_ns()
        """When a request was last seen; the start of the box counts as one."""
        self._since_ns: int | None = None
        """Since when a piece waits."""

    async def may_begin(self) -> bool:
        """Whether a piece may begin now; a moment later, where it may not."""
        now_ns = self._clock.now_ns()
        if self._since_ns is None:
            self._since_ns = now_ns
        if self._is_idle() or now_ns - self._since_ns >= self._wait_ns:
            return True
        await self._clock.sleep_until_ns(now_ns + _LOOK_NS)
        return False

    async def do(self, piece: Coroutine[Any, Any, None], is_in_the_way: Callable[[], bool] = lambda: False) -> bool:
        """Carry out a piece whose turn has come; its children rest while there are requests, unless it has waited for
        long enough. False: it was ended for them, or `is_in_the_way` of what does not rest.
        """
        self._since_ns = None
        if not self._is_idle():
            await piece
            return True
        rests, context = Rests(), contextvars.copy_context()
        context.run(RESTS.set, rests)
        task = asyncio.create_task(piece, context=context)
        try:
            while not task.done():
                await asyncio.wait([task], timeout=_LOOK_NS / NS_PER_S)
                if self._is_idle():
                    rests.end()
                else:
                    rests.begin()
                if rests.lasted_s and (rests.lasted_s > _RESTS_S_MAX or is_in_the_way()):
                    return False
            await task
            return True
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait([task])

    def _is_idle(self) -> bool:
        begun, running = self._asked()
        now_ns = self._clock.now_ns()
        if running or begun != self._begun:
            self._begun, self._busy_ns = begun, now_ns
        return now_ns - self._busy_ns >= self._idle_ns
