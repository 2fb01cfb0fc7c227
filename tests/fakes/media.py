"""The threads that decode and encode, in virtual time: one after another, each taking as long as told."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from appliance.clock import NS_PER_MS, Clock
from appliance.domain.errors import DeadlineExceeded

T = TypeVar("T")


class FakeMedia:
    """Port `MediaRunner` on the clock, with one thread that is not there."""

    def __init__(self, clock: Clock, work_ms: float) -> None:
        self._clock = clock
        self._turn = asyncio.Lock()
        self.work_ms = work_ms

    async def run(self, application_id: str, tenant: str, deadline_ns: int | None, work: Callable[[], T]) -> T:
        start_ns = self._clock.now_ns()
        async with self._turn:
            end_ns = self._clock.now_ns() + int(self.work_ms * NS_PER_MS)
            await self._clock.sleep_until_ns(end_ns if deadline_ns is None else min(end_ns, deadline_ns))
            if deadline_ns is not None and end_ns > deadline_ns:
                raise DeadlineExceeded(waited_ms=(self._clock.now_ns() - start_ns) / NS_PER_MS)
            return work()
