"""Whose turn it is among imports: those that begin go before those that continue, and tenants that begin alternate.

A model is servable after the first part of its import. So a job that has come so far gives way to jobs that have not:
ten models uploaded at once all serve soon, then all are measured, and their other variants follow, part by part in
rounds. Event-loop thread only.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

_Line = deque[asyncio.Future[None]]


class FairSlots:
    """At most `count` slots at once."""

    def __init__(self, count: int) -> None:
        self._free = count
        self._beginning: dict[str, _Line] = {}
        self._continuing: _Line = deque()
        self._served_at: dict[str, int] = {}
        self._served = 0

    @asynccontextmanager
    async def turn(self, tenant: str) -> AsyncIterator["Turn"]:
        """Wait for a turn behind the tenant's other beginners; whoever was served longest ago is next among tenants."""
        turn = Turn(self)
        await turn.take(self._beginning.setdefault(tenant, deque()))
        try:
            yield turn
        finally:
            turn.end()

    def release(self) -> None:
        """One turn is free again."""
        self._free += 1
        self.grant()

    def grant(self) -> None:
        """Hand out free slots."""
        while self._free and (future := self._next()) is not None:
            self._free -= 1
            future.set_result(None)

    @property
    def somebody_waits(self) -> bool:
        """Whether a job waits for a turn, its first or its next."""
        lines = (*self._beginning.values(), self._continuing)
        return any(not future.done() for line in lines for future in line)

    @property
    def continuing(self) -> _Line:
        """The line of those who gave way, first come first served."""
        return self._continuing

    def _next(self) -> asyncio.Future[None] | None:
        for tenant in sorted(self._beginning, key=lambda name: (self._served_at.get(name, 0), name)):
            future = _first(self._beginning[tenant])
            if not self._beginning[tenant]:
                del self._beginning[tenant]
            if future is not None:
                self._served += 1
                self._served_at[tenant] = self._served
                return future
        return _first(self._continuing)


class Turn:
    """A job's right to work, which it may hand on for a while."""

    def __init__(self, slots: FairSlots) -> None:
        self._slots = slots
        self._is_held = False

    async def give_way(self) -> None:
        """Let all others have their turn who wait for it; returns when it is ours again."""
        if self._slots.somebody_waits:
            self.end()
            await self.take(self._slots.continuing)

    async def take(self, line: _Line) -> None:
        """Stand in line for the turn."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        line.append(future)
        self._slots.grant()
        try:
            await future
        except asyncio.CancelledError:
            if not future.cancelled():  # it was granted at this very moment
                self._slots.release()
            raise
        self._is_held = True

    def end(self) -> None:
        """Hand the turn back; once."""
        if self._is_held:
            self._is_held = False
            self._slots.release()


def _first(line: _Line) -> asyncio.Future[None] | None:
    """The first of a line who still waits."""
    while line:
        future = line.popleft()
        if not future.done():
            return future
    return None
