"""Word from the kernel that processes stand for want of memory (PSI), also while no request comes.

The word comes from a trigger where the kernel lets this process set a trigger. Elsewhere the kernel's file is read
every two seconds. A trigger reports within its window, once for each window in which processes stood long enough.
"""

import asyncio
import os
import select
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path

from appliance.clock import NS_PER_S, NS_PER_US, Clock
from appliance.resources.cgroups import MACHINE, own_cgroups

_WINDOW_S = 2
"""Seconds of a trigger's window. The kernel gives a process without privileges only triggers of such windows."""
_SHARE = 0.1
"""Share of a window for which at least one process must stand before that counts as a stall."""


class MemoryStalls:
    """Listener for stalls of the processes of the box's cgroup, else of the machine's; `run` listens."""

    def __init__(self, clock: Clock, root: Path = MACHINE) -> None:
        self._clock = clock
        own = (cgroup.folder / "memory.pressure" for cgroup in own_cgroups("", root)[:1])
        self.file = next(filter(_is_readable, (*own, root / "proc/pressure/memory")), None)
        """File in which the kernel tells of stalls; None where the kernel does not tell of them."""

    async def run(self, heard: Callable[[], None]) -> None:
        """Call `heard` at each word, until cancelled, or until the kernel tells nothing any more."""
        if self.file is None:
            return
        try:
            trigger = StallTrigger(self.file)
        except OSError:  # the kernel takes no trigger here, or none of this process
            pass
        else:
            with closing(trigger):
                await trigger.listen(heard)
        await self._look(self.file, heard)

    async def _look(self, file: Path, heard: Callable[[], None]) -> None:
        try:
            before, since_ns = stalled_ns(file), self._clock.now_ns()
            while True:
                await self._clock.sleep_until_ns(since_ns + _WINDOW_S * NS_PER_S)
                now, now_ns = stalled_ns(file), self._clock.now_ns()
                if now - before >= _SHARE * (now_ns - since_ns):
                    heard()
                before, since_ns = now, now_ns
        except OSError:  # the cgroup has gone
            return


class StallTrigger:
    """Trigger for stalls at a file of the kernel's; `close` takes it away."""

    def __init__(self, file: Path) -> None:
        """Set the trigger. Raises: OSError where the file takes none."""
        with ExitStack() as opened:
            descriptor = os.open(file, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
            opened.callback(os.close, descriptor)
            self._events = opened.enter_context(select.epoll())
            # A file that is not the kernel's refuses this, before anything is written to it.
            self._events.register(descriptor, select.EPOLLPRI)
            self._events.unregister(descriptor)  # without a trigger there was nothing to wait for
            os.write(descriptor, f"some {int(_SHARE * _WINDOW_S * 1e6)} {_WINDOW_S * 1_000_000}\0".encode())
            self._events.register(descriptor, select.EPOLLPRI)
            self._opened = opened.pop_all()

    async def listen(self, heard: Callable[[], None]) -> None:
        """Call `heard` at each event, until cancelled, or until the file has gone."""
        loop, ended = asyncio.get_running_loop(), asyncio.Event()

        def happened() -> None:
            # The event loop's own poll has taken the event; an error stays.
            if any(mask & select.EPOLLERR for _file, mask in self._events.poll(0)):
                loop.remove_reader(self._events.fileno())
                ended.set()
            else:
                heard()

        # Event loops wait for what can be read. An epoll can be read when what it waits for has happened.
        loop.add_reader(self._events.fileno(), happened)
        try:
            await ended.wait()
        finally:
            loop.remove_reader(self._events.fileno())

    def close(self) -> None:
        """Take the trigger away."""
        self._opened.close()


def stalled_ns(file: Path) -> int:
    """Return for how many ns at least one process stood, since the machine or the cgroup began. Raises: OSError."""
    some = next((line for line in file.read_text().splitlines() if line.startswith("some ")), "")
    return int(some.rpartition("total=")[2] or 0) * NS_PER_US


def _is_readable(file: Path) -> bool:
    try:
        return bool(file.read_bytes())
    except OSError:  # there is no such file, or the kernel was started without PSI
        return False
