"""A few threads that run blocking calls for the event loop, with as little ceremony per call as possible."""

import asyncio
import os
import queue
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any

from appliance.clock import NS_PER_S, SystemClock

_CLOCK = SystemClock()
_Call = tuple[Callable[..., Any], tuple[Any, ...], asyncio.AbstractEventLoop, asyncio.Future[Any]]


class StagedCall:
    """A call that one of the threads begins with as soon as it has ended another, without a turn of the event loop."""

    __slots__ = ("_fate", "_threads", "begin_by_ns", "call", "run")

    def __init__(self, call: _Call, threads: "WorkerThreads", begin_by_ns: int | None) -> None:
        self.call = call
        self.run = call[-1]
        self.begin_by_ns = begin_by_ns
        self._threads = threads
        self._fate: dict[str, tuple[int, asyncio.Future[Any] | None]] = {}
        """Decided once: when it began and after which run, or `_REVOKED`. `setdefault` is one step under the
        interpreter's lock: whoever comes second sees all of what the first has written.
        """

    @property
    def begun_ns(self) -> int:
        return self._fate.get("is", _REVOKED)[0]

    @property
    def after(self) -> asyncio.Future[Any] | None:
        return self._fate.get("is", _REVOKED)[1]

    def begin(self, now_ns: int, ended: asyncio.Future[Any]) -> bool:
        """Whether the calling thread, which has ended a run, is to go on with it."""
        if self.begin_by_ns is not None and now_ns > self.begin_by_ns:
            return False
        mine = now_ns, ended
        return self._fate.setdefault("is", mine) is mine

    def revoke(self) -> bool:
        """See the port `StagedRun`. Event-loop thread only."""
        self._threads.staged = None
        if self._fate.setdefault("is", _REVOKED) is not _REVOKED:
            return False
        self.run.cancel()
        return True


_REVOKED: tuple[int, asyncio.Future[Any] | None] = 0, None


class WorkerThreads:
    """`count` daemon threads over one queue.

    About half the overhead of `run_in_executor`, which wraps every call in two futures.
    """

    def __init__(self, name: str, count: int, nice: int = 0, begin: Callable[[], None] = lambda: None) -> None:
        """`nice`: how much the threads step back behind the others of the process where cores are short; `begin`: what
        each does first.
        """
        self._nice = nice
        self._begin = begin
        self._calls: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
        self.staged: StagedCall | None = None
        """Written by the event loop's thread only."""
        self._threads = [threading.Thread(target=self._work, name=f"{name}-{i}", daemon=True) for i in range(count)]
        for thread in self._threads:
            thread.start()

    @property
    def waiting(self) -> int:
        """Calls that no thread has begun."""
        return self._calls.qsize()

    def submit(self, function: Callable[..., Any], *arguments: Any) -> asyncio.Future[Any]:
        """Run `function` on one of the threads; the future belongs to the running loop."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        self._calls.put((function, arguments, loop, future))
        return future

    def stage(self, begin_by_ns: int | None, function: Callable[..., Any], *arguments: Any) -> StagedCall:
        """Whichever thread ends a call begins with this one, but not after `begin_by_ns` (None: whenever that is)."""
        assert self.staged is None
        loop = asyncio.get_running_loop()
        self.staged = StagedCall((function, arguments, loop, loop.create_future()), self, begin_by_ns)
        return self.staged

    def close(self) -> None:
        """Let the threads end after what is queued; does not wait."""
        for _ in self._threads:
            self._calls.put(None)

    def _work(self) -> None:
        _step_back(self._nice)
        self._begin()
        call: _Call | None = None
        while (call := call or self._calls.get()) is not None:
            function, arguments, loop, future = call
            value: Any = None
            error: BaseException | None = None
            try:
                value = function(*arguments)
            except BaseException as caught:
                error = caught
            staged = self.staged
            call = staged.call if staged is not None and staged.begin(_CLOCK.now_ns(), future) else None
            try:
                loop.call_soon_threadsafe(_settle, future, value, error)
            except RuntimeError:  # the loop closed meanwhile: nobody waits
                pass
            del function, arguments, future, value, error, staged  # a held result would pin memory until the next call


def stop_at(deadline_ns: int, run: asyncio.Future[Any], stop: Any) -> None:
    """End a run at its deadline, by `terminate` of what it was given to be stopped by."""
    left_s = max(0.0, (deadline_ns - _CLOCK.now_ns()) / NS_PER_S)
    timer = asyncio.get_running_loop().call_later(left_s, setattr, stop, "terminate", True)
    run.add_done_callback(lambda _: timer.cancel())


def pin(cores: Sequence[int]) -> None:
    """Keep the calling thread, and those that it makes from now on, to these cores; empty: leave it where it is."""
    if cores and sys.platform == "linux":
        os.sched_setaffinity(0, cores)


def _step_back(nice: int) -> None:
    """Lower the priority of the calling thread: on Linux a priority is a thread's, elsewhere it would be the whole
    process's.
    """
    if nice and sys.platform == "linux":
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), os.getpriority(os.PRIO_PROCESS, 0) + nice)


def _settle(future: asyncio.Future[Any], value: Any, error: BaseException | None) -> None:
    if future.cancelled():
        return
    if error is None:
        future.set_result(value)
    else:
        future.set_exception(error)
