"""Waiting for memory: until something of the ledger changes, until a limit, or until a request's deadline."""

import asyncio
from collections.abc import Awaitable

from appliance.clock import NS_PER_MS, NS_PER_S, Clock
from appliance.domain.errors import DeadlineExceeded


class Changes:
    """Wakes all who wait, at every change; each looks for itself whether it was the one. Event-loop thread only."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waiting: list[asyncio.Future[None]] = []
        self.count = 0

    def announce(self) -> None:
        """Something has changed."""
        self.count += 1
        if not self._waiting:
            return
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(None)

    async def next(self, limit_ns: int | None = None) -> None:
        """Return with the next change. Raises: TimeoutError at the limit."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        async with asyncio.timeout(self._seconds_to(limit_ns)):
            await future

    async def within(self, awaitable: Awaitable[object], deadline_ns: int | None, start_ns: int) -> None:
        """Wait for something else. Raises: DeadlineExceeded, saying how long it has been since `start_ns`."""
        try:
            async with asyncio.timeout(self._seconds_to(deadline_ns)):
                await awaitable
        except TimeoutError:
            raise DeadlineExceeded(waited_ms=(self._clock.now_ns() - start_ns) / NS_PER_MS) from None

    def _seconds_to(self, limit_ns: int | None) -> float | None:
        return None if limit_ns is None else max((limit_ns - self._clock.now_ns()) / NS_PER_S, 0.0)
