"""A process that computes decisions of sessions or plans of pipelines, and nothing else: both halves of it.

It imports the planners only, reads pickled orders from its standard input and writes pickled answers to its standard
output. Both ends are ours.
"""

import asyncio
import contextlib
import os
import pickle
import struct
import sys
from collections.abc import Callable
from typing import Any, BinaryIO

from appliance.child import die_with_parent

_LENGTH = struct.Struct("!Q")
_WARM_S = 30.0
"""A process that has not begun by then is ended: whoever asks waits behind that."""


class PlannerEnded(Exception):
    """The process ended before it answered, or could not be begun."""


class PlannerProcess:
    """The box's half. One decision at a time; it is started with the first one, and anew when it has ended."""

    def __init__(self, nice: int = 0) -> None:
        """`nice`: by how much it yields to the box where both want a core."""
        self._nice = nice
        self._process: asyncio.subprocess.Process | None = None
        self._turn = asyncio.Lock()
        self._warming: asyncio.Task[None] | None = None

    @property
    def is_ready(self) -> bool:
        """Whether it has begun, and imported what it needs."""
        is_warm = self._warming is not None and self._warming.done()
        return is_warm and self._process is not None and self._process.returncode is None

    def warm_up(self, function: Callable[..., Any], *arguments: object) -> None:
        """Have it begin, in the background, with a call for which nobody waits."""
        if self._warming is None or (self._warming.done() and not self.is_ready):
            self._warming = asyncio.create_task(self._warm(function, arguments), name="planner")

    async def _warm(self, function: Callable[..., Any], arguments: tuple[object, ...]) -> None:
        with contextlib.suppress(PlannerEnded, TimeoutError):
            async with asyncio.timeout(_WARM_S):
                await self.call(function, *arguments)

    async def call(self, function: Callable[..., Any], *arguments: object) -> Any:
        """What a function of a module returns there. Raises: PlannerEnded."""
        async with self._turn:
            process = self._process
            if process is None or process.returncode is not None:
                try:
                    process = self._process = await self._started()
                except OSError:  # no memory, no process, no file is left
                    raise PlannerEnded from None
            assert process.stdin is not None and process.stdout is not None
            try:
                process.stdin.write(_written((function, arguments)))
                await process.stdin.drain()
                length = _LENGTH.unpack(await process.stdout.readexactly(_LENGTH.size))[0]
                return pickle.loads(await process.stdout.readexactly(length))
            except (asyncio.IncompleteReadError, BrokenPipeError, ConnectionResetError):
                await self.close()
                raise PlannerEnded from None
            except asyncio.CancelledError:  # half an answer may be in the pipe
                await asyncio.shield(self.close())
                raise

    async def close(self) -> None:
        """End it."""
        if self._warming is not None and self._warming is not asyncio.current_task():
            self._warming.cancel()
            await asyncio.wait([self._warming])
        process, self._process = self._process, None
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.communicate()

    async def _started(self) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-s", "-m", __name__, str(self._nice)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )


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
