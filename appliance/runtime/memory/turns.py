"""Turns of loads that nobody waits for: a few at a time, in the order in which they came, so that those which requests
wait for find the processor free.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from appliance.runtime.memory.build import LoadedBuild


class Turns:
    """Event-loop thread only."""

    def __init__(self, at_once: int | None) -> None:
        """So many of them go `at_once`; None = all."""
        self._left = at_once
        self._waiting: dict[str, asyncio.Future[bool]] = {}
        """Build → whether it has a turn, once it may begin; in the order in which they came."""

    @asynccontextmanager
    async def turn(self, build: LoadedBuild) -> AsyncIterator[None]:
        """Entered at once where a request waits for the build or there is room, else when its turn has come."""
        if self._left is None or build.is_urgent:
            yield
            return
        has_turn = await self._taken(build.build_id)
        try:
            yield
        finally:
            if has_turn:
                self._give()

    async def _taken(self, build_id: str) -> bool:
        """Whether it was a turn that came, which has to be given back; else a request is in a hurry."""
        if self._left:
            self._left -= 1
            return True
        coming: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting[build_id] = coming
        try:
            return await coming
        except BaseException:
            self._waiting.pop(build_id, None)
            if coming.done() and not coming.cancelled() and coming.result():
                self._give()
            raise

    def hurry(self, build: LoadedBuild) -> None:
        """A request waits for the build now, which `is_urgent`: it goes at once."""
        coming = self._waiting.pop(build.build_id, None)
        if coming is not None and not coming.done():
            coming.set_result(False)

    def _give(self) -> None:
        assert self._left is not None
        while self._waiting:
            coming = self._waiting.pop(next(iter(self._waiting)))
            if not coming.done():
                coming.set_result(True)
                return
        self._left += 1
