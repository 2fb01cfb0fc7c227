"""Mapped files that other programs leave alone: whoever opens one for writing, or cuts it short, has to wait until the
box has let it go, for the kernel asks the box first.

Reading a page that a file has no longer ends the process (SIGBUS), and what is written into a mapped file changes the
weights of a build that runs. Read leases of fcntl(2): the writer waits, at most for what
/proc/sys/fs/lease-break-time says (45 s). They hold for everybody on this machine, root too, but not for writers on
other machines.
"""

import asyncio
import fcntl
import os
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

_ASKED = signal.SIGURG
"""The kernel sends it when a file is asked for; a process that does not listen ignores it."""


class Lease:
    """One file, until `end`."""

    def __init__(self, build_id: str, descriptor: int) -> None:
        """`build_id`: who has mapped it."""
        self.build_id = build_id
        self._descriptor = descriptor

    @property
    def is_asked_for(self) -> bool:
        """Whether another program waits for it."""
        return self._descriptor >= 0 and fcntl.fcntl(self._descriptor, fcntl.F_GETLEASE) != fcntl.F_RDLCK

    def end(self) -> None:
        """Nobody maps the file any more: a writer may go on."""
        if self._descriptor >= 0:
            with suppress(OSError):  # else a child that has just been forked would keep it
                fcntl.fcntl(self._descriptor, fcntl.F_SETLEASE, fcntl.F_UNLCK)
            os.close(self._descriptor)
            self._descriptor = -1


class Leases:
    """All of a processor's. Event-loop thread only."""

    def __init__(self) -> None:
        self._held: set[Lease] = set()
        self._listens = False
        self.on_asked: Callable[[str], None] = lambda build_id: None
        """Told of each build whose file another program waits for, by id; perhaps more than once."""

    def take(self, build_id: str, path: Path) -> Lease | None:
        """None where there can be none: a file that is open for writing, or somebody else's; a file system without
        leases; an event loop that hears no signals.
        """
        try:
            self._listen()
            descriptor = os.open(path, os.O_RDONLY)
        except (OSError, RuntimeError, ValueError):
            return None
        try:
            fcntl.fcntl(descriptor, fcntl.F_SETSIG, _ASKED)
            fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        except OSError:
            os.close(descriptor)
            return None
        lease = Lease(build_id, descriptor)
        self._held.add(lease)
        return lease

    def give(self, lease: Lease | None) -> None:
        """The file is not mapped any more."""
        if lease is not None:
            self._held.discard(lease)
            lease.end()

    def close(self) -> None:
        """End all."""
        for lease in self._held:
            lease.end()
        self._held.clear()

    def _listen(self) -> None:
        """Raises: RuntimeError or ValueError outside of the main thread."""
        if not self._listens:
            asyncio.get_running_loop().add_signal_handler(_ASKED, self._look)
            self._listens = True

    def _look(self) -> None:
        for lease in [lease for lease in self._held if lease.is_asked_for]:
            self.on_asked(lease.build_id)
