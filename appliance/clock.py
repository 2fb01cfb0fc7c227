"""The only reader of time.

Everything else receives a `Clock`, so that the same code runs on a virtual-time event loop. Durations are integer
nanoseconds.
"""

import asyncio
import datetime
import time
from typing import Protocol

NS_PER_US = 1_000
NS_PER_MS = 1_000_000
NS_PER_S = 1_000_000_000
EPOCH = datetime.datetime(2025, 1, 1, tzinfo=datetime.UTC)
"""No box is older: a clock that says so was never set."""


class Clock(Protocol):
    """What the program may know about time."""

    def now_ns(self) -> int:
        """Monotonic time in nanoseconds; never steps."""
        ...

    async def sleep_until_ns(self, deadline_ns: int) -> None:
        """Return at `deadline_ns` on the scale of `now_ns`, at once when it has passed."""
        ...

    def wall_now(self) -> datetime.datetime:
        """Civil time in UTC, for people and for storage; may step."""
        ...


class LoopClock:
    """Reads the running event loop's time, so a virtual-time loop carries the whole program with it."""

    def now_ns(self) -> int:
        try:
            return int(asyncio.get_running_loop().time() * NS_PER_S)
        except RuntimeError:  # a worker thread or a command line: the loop's scale is CLOCK_MONOTONIC
            return time.monotonic_ns()

    async def sleep_until_ns(self, deadline_ns: int) -> None:
        await asyncio.sleep(max(0.0, (deadline_ns - self.now_ns()) / NS_PER_S))

    def wall_now(self) -> datetime.datetime:
        return datetime.datetime.now(datetime.UTC)


class SystemClock(LoopClock):
    """Reads CLOCK_MONOTONIC directly: cheaper on the inference path, and usable from any thread."""

    now_ns = staticmethod(time.monotonic_ns)
    """Itself, not through a call: a request asks six times."""


async def others_first() -> None:
    """Let what else waits for the event loop go on: long work there is done in parts. No time passes."""
    await asyncio.sleep(0)


def pause_s(seconds: float) -> None:
    """Block the calling thread; for command lines, child processes and threads, never on the event loop."""
    time.sleep(seconds)
