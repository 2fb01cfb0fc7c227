"""The threads that turn media into tensors and outputs into answers.

Few and bounded: a burst of pictures waits in a short line instead of in memory, and one whose deadline passes in the
line is answered without being decoded.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from appliance.clock import NS_PER_MS, NS_PER_S, Clock
from appliance.domain.errors import DeadlineExceeded, QueueFull

T = TypeVar("T")


class MediaPool:
    """Runs short blocking functions in threads, at most `waiting_max` at once in line or under way."""

    def __init__(self, clock: Clock, *, threads: int, waiting_max: int) -> None:
        self._clock = clock
        self._waiting_max = waiting_max
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix="media")
        self.waiting = 0

    async def run(self, application_id: str, deadline_ns: int | None, work: Callable[[], T]) -> T:
        """The value of `work()`.

        Raises: QueueFull, DeadlineExceeded (work that has begun is left to end unheard), and what `work` raises.
        """
        if self.waiting >= self._waiting_max:
            raise QueueFull(application_id=application_id, queue_len_max=self._waiting_max)
        start_ns = self._clock.now_ns()
        future = self._executor.submit(work)
        self.waiting += 1
        loop = asyncio.get_running_loop()
        future.add_done_callback(lambda _: loop.call_soon_threadsafe(self._count_out))
        left_s = None if deadline_ns is None else max(0.0, (deadline_ns - start_ns) / NS_PER_S)
        try:
            async with asyncio.timeout(left_s):
                return await asyncio.wrap_future(future)
        except TimeoutError:
            decoding_ms = (self._clock.now_ns() - start_ns) / NS_PER_MS
            raise DeadlineExceeded(waited_ms=decoding_ms, decoded_ms=decoding_ms) from None

    def close(self) -> None:
        """Let go of the threads; what waits is cancelled."""
        self._executor.shutdown(cancel_futures=True)

    def _count_out(self) -> None:
        self.waiting -= 1
