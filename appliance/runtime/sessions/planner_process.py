"""A process that computes decisions of sessions or plans of pipelines, and nothing else: both halves of it.

It imports the planners only, and reads pickled orders from its standard input and writes pickled answers to its
standard output, which are one socket. Both ends are ours.
"""

import asyncio
import contextlib
import os
import pickle
import socket
import struct
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, BinaryIO, Protocol

from appliance.child import die_with_parent

_LENGTH = struct.Struct("!Q")
IDLE_S = 60.0
"""A process that was asked nothing for so long ends: a new one begins within a second."""
_WARM_S = 30.0
"""A process that has not begun by then is ended: whoever asks waits behind that."""
PLANNER_BYTES = 30_000_000
"""That one takes by itself: 25 MB once it has begun, 27 when it has planned (Pss)."""


class PlannerEnded(Exception):
    """The process ended before it answered, or could not be begun."""


class PlannerNotBegun(PlannerEnded):
    """The process could not be begun: there is no room for it, or no process is left."""


@dataclass(frozen=True, slots=True)
class _Begun:
    """A process that runs, and the socket to it."""

    process: subprocess.Popen[bytes]
    answers: asyncio.StreamReader
    orders: asyncio.StreamWriter

    @property
    def is_there(self) -> bool:
        return self.process.poll() is None

    async def end(self) -> None:
        self.process.kill()
        await asyncio.to_thread(self.process.wait)
        self.orders.close()
        with contextlib.suppress(OSError):
            await self.orders.wait_closed()


class Counting(Protocol):
    """Port to the memory manager: when the planner begins and ends, and how the manager ends a planner."""

    is_busy: Callable[[], bool]
    """Whether the planner computes."""
    end_now: Callable[[], None]
    """End the planner at once, because its memory is needed; the planner counts as ended then."""

    def beginning(self) -> AbstractAsyncContextManager[None]:
        """Within it the process begins; there is room for it. Raises: OSError where there is none."""

    def ended(self) -> None:
        """Say that the planner has ended."""


class Uncounted:
    """Port `Counting` where nobody counts."""

    is_busy: Callable[[], bool]
    end_now: Callable[[], None]

    def beginning(self) -> AbstractAsyncContextManager[None]:
        return contextlib.nullcontext()

    def ended(self) -> None:
        pass


class PlannerProcess:
    """The box's half. One decision at a time; it is started with the first one, and anew when it has ended."""

    def __init__(self, nice: int = 0, counting: Counting | None = None, idle_s: float = IDLE_S) -> None:
        """`nice`: by how much it yields to the box where both want a core. `idle_s`: it ends when it was asked nothing
        for so long.
        """
        self._nice = nice
        self._idle_s = idle_s
        self._begun: _Begun | None = None
        self._turn = asyncio.Lock()
        self._warming: asyncio.Task[None] | None = None
        self._idle: asyncio.TimerHandle | None = None
        self._ending: set[asyncio.Task[None]] = set()
        self._counting = counting or Uncounted()
        self._counting.is_busy = self._turn.locked
        self._counting.end_now = self._end_now

    @property
    def is_ready(self) -> bool:
        """Whether it has begun, and imported what it needs."""
        is_warm = self._warming is not None and self._warming.done()
        return is_warm and self._begun is not None and self._begun.is_there

    def warm_up(self, function: Callable[..., Any], *arguments: object) -> None:
        """Have it begin, in the background, with a call for which nobody waits."""
        if self._warming is None or (self._warming.done() and not self.is_ready):
            self._warming = asyncio.create_task(self._warm(function, arguments), name="planner")

    async def has_begun(self, limit_s: float, function: Callable[..., Any], *arguments: object) -> bool:
        """As `warm_up`, and whether it is there by the limit: it may take seconds on a busy machine."""
        if not self.is_ready:
            self.warm_up(function, *arguments)
            assert self._warming is not None
            await asyncio.wait([self._warming], timeout=limit_s)
        return self.is_ready

    async def _warm(self, function: Callable[..., Any], arguments: tuple[object, ...]) -> None:
        with contextlib.suppress(PlannerEnded, TimeoutError):
            async with asyncio.timeout(_WARM_S):
                await self.call(function, *arguments)

    async def call(self, function: Callable[..., Any], *arguments: object) -> Any:
        """What a function of a module returns there. Raises: PlannerEnded, PlannerNotBegun."""
        self._rests_no_more()
        async with self._turn:
            begun = self._begun
            if begun is not None and not begun.is_there:
                self._begun = None
                await self._end(begun)
            if self._begun is None:
                try:
                    await self._start()
                except OSError:  # no memory, no process, no file is left
                    raise PlannerNotBegun from None
            begun = self._begun
            if begun is None:  # others needed its memory before it was asked anything
                raise PlannerEnded
            try:
                begun.orders.write(_written((function, arguments)))
                await begun.orders.drain()
                length = _LENGTH.unpack(await begun.answers.readexactly(_LENGTH.size))[0]
                answer = pickle.loads(await begun.answers.readexactly(length))
            except (asyncio.IncompleteReadError, BrokenPipeError, ConnectionResetError):
                await self.close()
                raise PlannerEnded from None
            except asyncio.CancelledError:  # half an answer may be on its way
                await asyncio.shield(self.close())
                raise
        self._rests()
        return answer

    def _rests(self) -> None:
        """It is asked nothing from now on."""
        self._rests_no_more()
        self._idle = asyncio.get_running_loop().call_later(self._idle_s, self._end_idle)

    def _rests_no_more(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None

    def _end_idle(self) -> None:
        """It was asked nothing for long: a new one begins when it is needed."""
        if self._turn.locked():
            self._rests()
            return
        self._end_now()
        self._counting.ended()

    def _end_now(self) -> None:
        begun, self._begun = self._begun, None
        if begun is not None:
            self._kill(begun)

    def _kill(self, begun: _Begun) -> "asyncio.Task[None]":
        """Kill a process, and clear up in a task of its own: a caller that is cancelled leaves nothing open."""
        begun.process.kill()
        task = asyncio.get_running_loop().create_task(begun.end(), name="end a planner")
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)
        return task

    async def close(self) -> None:
        """End it."""
        self._rests_no_more()
        if self._warming is not None and self._warming is not asyncio.current_task():
            self._warming.cancel()
            await asyncio.wait([self._warming])
        begun, self._begun = self._begun, None
        if begun is not None:
            await self._end(begun)
        if self._ending:
            await asyncio.wait(self._ending)

    async def _end(self, begun: _Begun) -> None:
        ending = self._kill(begun)
        self._counting.ended()
        await asyncio.shield(ending)

    async def _start(self) -> None:
        """Begin it; when it is counted, memory may end it at once. Whoever is cancelled meanwhile leaves none. Raises:
        OSError.
        """
        async with self._counting.beginning():
            starting = asyncio.ensure_future(_started(self._nice))
            try:
                self._begun = await asyncio.shield(starting)
            except asyncio.CancelledError:
                with contextlib.suppress(OSError):
                    await (await starting).end()
                raise


async def _started(nice: int) -> _Begun:
    """By a thread: uvloop's own way copies the tables of the box's memory, which holds the event loop for 11 ms where
    that is 400 MB. Raises: OSError.
    """
    ours, theirs = socket.socketpair()
    with theirs:
        try:
            process = await asyncio.to_thread(_begin, theirs, nice)
        except OSError:
            ours.close()
            raise
    return _Begun(process, *await asyncio.open_connection(sock=ours))


def _begin(theirs: socket.socket, nice: int) -> "subprocess.Popen[bytes]":
    command, fd = (sys.executable, "-P", "-s", "-m", __name__, str(nice)), theirs.fileno()
    return subprocess.Popen(command, stdin=fd, stdout=fd)


def serve(orders: BinaryIO, answers: BinaryIO) -> None:
    """The other half: answer until there are no more orders."""
    while head := orders.read(_LENGTH.size):
        function, arguments = pickle.loads(orders.read(_LENGTH.unpack(head)[0]))
        answers.write(_written(function(*arguments)))
        answers.flush()


def _written(value: object) -> bytes:
    body = pickle.dumps(value)
    return _LENGTH.pack(len(body)) + body


def main(nice: int) -> None:
    """With standard output for answers alone: what else is printed goes to standard error."""
    die_with_parent()
    os.nice(nice)
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    with contextlib.suppress(KeyboardInterrupt):
        serve(sys.stdin.buffer, answers)


if __name__ == "__main__":
    main(int(sys.argv[1]))
