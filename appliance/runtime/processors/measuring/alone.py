"""Stretches in which a child times runs while nothing else runs on its processor: it asks for each, on standard output,
and the service grants it by a file. Both halves.
"""

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager, suppress
from pathlib import Path

from appliance.clock import NS_PER_S, SystemClock

Paused = Callable[[str], AbstractAsyncContextManager[None]]
"""Nothing else runs on a processor, by its name, until its end."""
ALONE, TIMED = "alone", "timed"
"""What a child says when it is about to time runs, and when it has. Until the first is granted it waits for a file of
that name."""
_ALONE_S_MAX = 15.0
"""A child that is not left alone by then times its runs beside others."""
_CLOCK = SystemClock()


class LeftAlone:
    """The service's half. The child begins when nothing else runs there, or when it has waited for long enough."""

    def __init__(self, paused: Paused, processor: str, granted: Path, s_max: float) -> None:
        """`granted`: the file that tells the child. `s_max`: of all stretches together."""
        self._paused = paused
        self._processor = processor
        self._granted = granted
        self._left_ns = int(s_max * NS_PER_S)
        self._task: asyncio.Task[None] | None = None

    def on_asked(self, word: str) -> None:
        """What the child says."""
        if word == ALONE and self._task is None:
            self._task = asyncio.create_task(self._grant(), name="left alone")
        elif word == TIMED and self._task is not None:
            self._task.cancel()
            self._task = None

    async def end(self) -> None:
        """It says nothing more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _grant(self) -> None:
        if self._left_ns <= 0:
            self._granted.touch()
            return
        async with self._paused(self._processor):
            self._granted.touch()
            start_ns = _CLOCK.now_ns()
            try:
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._left_ns / NS_PER_S):
                        await asyncio.get_running_loop().create_future()  # until it is cancelled
            finally:
                self._granted.unlink(missing_ok=True)  # it may have come when the child no longer looked for it
                self._left_ns -= _CLOCK.now_ns() - start_ns


@contextmanager
def left_alone(path: str | None) -> Iterator[None]:
    """The child's half: time runs while nothing else runs on the processor, as soon as the service grants that by the
    file; after a while anyway, and at once where there is nobody to ask.
    """
    if path is None:
        yield
        return
    granted = Path(path)
    until_ns = _CLOCK.now_ns() + int(_ALONE_S_MAX * NS_PER_S)
    granted.unlink(missing_ok=True)  # one that came too late the time before
    print(ALONE, flush=True)
    while not granted.exists() and _CLOCK.now_ns() < until_ns:
        threading.Event().wait(0.002)
    try:
        yield
    finally:
        granted.unlink(missing_ok=True)
        print(TIMED, flush=True)
