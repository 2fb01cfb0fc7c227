"""A child process that gets one JSON order and answers in lines: how it is started, bounded in time, and ended with all
that it started.

Both halves stand here. What the order means, and which limits the child puts on itself, its callers know.
"""

import asyncio
import contextlib
import ctypes
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

LINE_BYTES_MAX = 16 * 2**20
STDERR_TAIL_BYTES = 8192
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True, slots=True)
class Ended:
    """How a child ended. `status` below 0 is the signal that ended it; `stderr` is the end of what it said."""

    status: int
    stderr: str


async def run_child(
    module: str,
    arguments: Sequence[str],
    order: bytes,
    *,
    wall_s: float,
    on_line: Callable[[bytes], None],
    folder: str | Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> Ended:
    """Run `python -m module arguments` in a session of its own, with `order` on its standard input.

    `on_line` gets each line of its standard output, on the event loop. Cancelling kills the child and all it started.

    Raises: TimeoutError after `wall_s`; ValueError for a line beyond LINE_BYTES_MAX, and whatever `on_line` raises.
    """
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-s", "-m", module, *arguments),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=folder,
        env=environment,
        start_new_session=True,
        limit=LINE_BYTES_MAX,
    )
    assert process.stdin is not None and process.stdout is not None and process.stderr is not None
    try:
        async with asyncio.timeout(wall_s):
            _, _, tail = await asyncio.gather(
                _write(process.stdin, order), _read_lines(process.stdout, on_line), _read_tail(process.stderr)
            )
            status = await process.wait()
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await asyncio.shield(process.wait())
    return Ended(status, tail.decode(errors="replace"))


async def _write(stdin: asyncio.StreamWriter, order: bytes) -> None:
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it died already; its exit status says why
        stdin.write(order)
        await stdin.drain()
        stdin.close()


async def _read_lines(stdout: asyncio.StreamReader, on_line: Callable[[bytes], None]) -> None:
    while line := await stdout.readline():
        on_line(line)


async def _read_tail(stderr: asyncio.StreamReader) -> bytes:
    tail = b""
    while block := await stderr.read(STDERR_TAIL_BYTES):
        tail = (tail + block)[-STDERR_TAIL_BYTES:]
    return tail


def die_with_parent() -> None:
    """In the child: be killed when the process that started it ends. Does nothing where the system has no such call."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
