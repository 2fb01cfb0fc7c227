"""A child process that gets one JSON order and answers in lines: how it is started, bounded in time, and ended with all
that it started.

Both halves stand here. What the order means, and which limits the child puts on itself, its callers know. Work that
others go before has its children rest meanwhile. A child is a program of its own (`executed`), or a fork of a process
that has imported what it needs (`appliance.forkserver`).
"""

import asyncio
import contextlib
import ctypes
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path

import appliance

LINE_BYTES_MAX = 16 * 2**20
STDERR_TAIL_BYTES = 8192
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True, slots=True)
class Child:
    """A process that leads a group of its own."""

    pid: int
    stdin: asyncio.StreamWriter
    stdout: asyncio.StreamReader
    stderr: asyncio.StreamReader
    wait: Callable[[], Awaitable[int]]
    """Its exit status, or the signal that ended it below 0."""
    close: Callable[[], None] = lambda: None
    """Give back what stands for it here, once it has ended."""


@dataclass(frozen=True, slots=True)
class Ended:
    """How a child ended. `status` below 0 is the signal that ended it; `stderr` is the end of what it said."""

    status: int
    stderr: str


class Interrupted(Exception):
    """A child that times something was ended for others: it can be started again after `Rests.over`."""


@dataclass(slots=True, eq=False)
class _Resting:
    """A child that rests when it is told to."""

    pid: int
    limit: asyncio.Timeout
    is_timed: bool
    left_s: float = 0.0
    was_ended: bool = False

    def stop(self) -> None:
        """It stands still, and its limit does not come nearer; what one that times something would find is of no use,
        so it ends.
        """
        self.was_ended = self.is_timed
        self.left_s = (self.limit.when() or 0.0) - asyncio.get_running_loop().time()
        self.limit.reschedule(None)
        _signal_all(self.pid, signal.SIGKILL if self.is_timed else signal.SIGSTOP)

    def go_on(self) -> None:
        self.limit.reschedule(asyncio.get_running_loop().time() + self.left_s)
        _signal_all(self.pid, signal.SIGCONT)


class Rests:
    """Stretches in which the children of some work stand still, and do not grow older. Event-loop thread only."""

    def __init__(self) -> None:
        self._children: set[_Resting] = set()
        self._over = asyncio.Event()
        self._over.set()
        self._since_s = 0.0

    @property
    def lasted_s(self) -> float:
        """How long the one that there is has lasted; 0: there is none."""
        return 0.0 if self._over.is_set() else asyncio.get_running_loop().time() - self._since_s

    async def over(self) -> None:
        """Return when there is none now."""
        await self._over.wait()

    def begin(self) -> None:
        """All stop, with all that they have started, but those that time something: these end. Resting already: does
        nothing.
        """
        if not self._over.is_set():
            return
        self._over.clear()
        self._since_s = asyncio.get_running_loop().time()
        for child in self._children:
            child.stop()

    def end(self) -> None:
        """They go on."""
        if self._over.is_set():
            return
        self._over.set()
        for child in self._children:
            child.go_on()

    @contextlib.contextmanager
    def child(self, pid: int, limit: asyncio.Timeout, *, is_timed: bool) -> Iterator[None]:
        """While it runs. Raises: Interrupted at the end, where it was ended for others."""
        child = _Resting(pid, limit, is_timed)
        self._children.add(child)
        if not self._over.is_set():
            child.stop()
        try:
            yield
        except Exception:  # half of its last line, for example
            if not child.was_ended:
                raise
        finally:
            self._children.discard(child)
        if child.was_ended:
            raise Interrupted


RESTS: ContextVar[Rests | None] = ContextVar("RESTS", default=None)
"""Those of the work that is being done; None: it rests for nobody."""


def _signal_all(pid: int, number: signal.Signals) -> None:
    """A child and all that it has started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, number)


def scrubbed_environment() -> dict[str, str]:
    """Nothing of the service's but the way to the libraries. One thread a pool: the system calls of threads that a
    library starts when it is imported would not be filtered, and no thread may run in a process that is forked.
    """
    kept = {name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ}
    return kept | {
        "PATH": "/usr/bin:/bin",
        "LANG": "C.UTF-8",
        "PYTHONPATH": str(Path(appliance.__file__).resolve().parents[1]),
        "PYTHONDONTWRITEBYTECODE": "1",
        "MALLOC_ARENA_MAX": "2",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
    }


async def executed(
    module: str,
    *arguments: str,
    folder: str | Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> Child:
    """Begin `python -m module arguments` in a session of its own. `environment`: all of it; None: the service's."""
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
    return Child(process.pid, process.stdin, process.stdout, process.stderr, process.wait)


async def run_child(
    begin: Callable[[], Awaitable[Child]],
    order: bytes,
    *,
    wall_s: float,
    on_line: Callable[[bytes], None],
    is_timed: bool = False,
) -> Ended:
    """Run a child with `order` on its standard input, once nothing keeps it from beginning.

    `on_line` gets each line of its standard output, on the event loop. Cancelling kills the child and all it started.
    `is_timed`: it measures how long something takes.

    Raises: TimeoutError after `wall_s`, rests apart; ValueError for a line beyond LINE_BYTES_MAX, and whatever `begin`
    and `on_line` raise; Interrupted.
    """
    rests = RESTS.get()
    if rests is not None:
        await rests.over()
    child = await begin()
    try:
        async with asyncio.timeout(wall_s) as limit:
            with contextlib.nullcontext() if rests is None else rests.child(child.pid, limit, is_timed=is_timed):
                _, _, tail = await asyncio.gather(
                    _write(child.stdin, order), _read_lines(child.stdout, on_line), _read_tail(child.stderr)
                )
                status = await child.wait()
    finally:
        _signal_all(child.pid, signal.SIGKILL)
        await asyncio.shield(asyncio.ensure_future(child.wait()))
        child.close()
    return Ended(status, tail.decode(errors="replace"))


async def _write(stdin: asyncio.StreamWriter, order: bytes) -> None:
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it died already; its exit status says why
        stdin.write(order)
        await stdin.drain()
        stdin.write_eof()


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
