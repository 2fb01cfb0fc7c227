"""A few threads that run blocking calls for the event loop, with as little ceremony per call as possible."""

import asyncio
import os
import queue
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any

_Call = tuple[Callable[..., Any], tuple[Any, ...], asyncio.AbstractEventLoop, asyncio.Future[Any]]


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
        self._threads = [threading.Thread(target=self._work, name=f"{name}-{i}", daemon=True) for i in range(count)]
        for thread in self._threads:
            thread.start()

    def submit(self, function: Callable[..., Any], *arguments: Any) -> asyncio.Future[Any]:
        """Run `function` on one of the threads; the future belongs to the running loop."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        self._calls.put((function, arguments, loop, future))
        return future

    def close(self) -> None:
        """Let the threads end after what is queued; does not wait."""
        for _ in self._threads:
            self._calls.put(None)

    def _work(self) -> None:
        _step_back(self._nice)
        self._begin()
        while (call := self._calls.get()) is not None:
            function, arguments, loop, future = call
            value: Any = None
            error: BaseException | None = None
            try:
                value = function(*arguments)
            except BaseException as caught:
                error = caught
            try:
                loop.call_soon_threadsafe(_settle, future, value, error)
            except RuntimeError:  # the loop closed meanwhile: nobody waits
                pass
            del call, function, arguments, future, value, error  # a held result would pin memory until the next call


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
