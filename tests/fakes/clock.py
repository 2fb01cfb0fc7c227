"""Virtual time: an event loop whose clock jumps to the next timer, so that a story of minutes runs in milliseconds and always the same way."""

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from appliance.clock import NS_PER_S

T = TypeVar("T")


class Deadlock(Exception):
    """Everything waits and no timer is set: nothing could ever happen again."""


class _Jump(selectors.SelectSelector):
    """Instead of sleeping until the next timer, moves the loop's clock there."""

    now_ns = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise Deadlock
        if timeout > 0:
            self.now_ns += max(1, round(timeout * NS_PER_S))
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """Starts at second 1000. Serves timers and futures only: no sockets, no threads, no children."""

    def __init__(self) -> None:
        self._jump = _Jump()
        self._jump.now_ns = 1000 * NS_PER_S
        super().__init__(self._jump)
        self._clock_resolution = 1e-9

    def time(self) -> float:
        return self._jump.now_ns / NS_PER_S


def run_virtual(story: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run `story()` to its end in virtual time. Raises: Deadlock when it hangs."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(story())


async def at_ms(start_ns: int, ms: float, now_ns: Callable[[], int]) -> None:
    """Return `ms` after `start_ns`."""
    await asyncio.sleep(max(0.0, (start_ns + ms * 1e6 - now_ns()) / NS_PER_S))  # noqa: TID251 - the fake is the clock


async def settle() -> None:
    """Let everything run that can run without time passing."""
    for _ in range(20):
        await asyncio.sleep(0)  # noqa: TID251 - the fake is the clock
