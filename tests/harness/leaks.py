"""A test that leaves a thread, a child process or a socket open fails.

What a fixture of a wider scope than one test sets up (a shared server, a pool) may stay until that fixture ends, and so
may the threads that its threads start.
"""

import gc
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from weakref import WeakSet

import pytest

from tests.harness.lanes import fixtures_of

THREADS_OF_THE_PROCESS = ("MainThread", "log")
PROCESSES_OF_THE_PROCESS = ("multiprocessing.resource_tracker",)
"""Threads and processes that are there once, from when they are first needed until the process ends."""
PATIENCE_S = 10.0
"""How long threads and processes that are ending may take. Only a test that leaks waits so long."""


class LeakGuard:
    """Compares what is open before and after each test."""

    def __init__(self) -> None:
        self._shared: set[str] = set()
        """What fixtures of wider scopes hold open, and what an earlier test was blamed for."""
        self._shared_threads: WeakSet[threading.Thread] = WeakSet()
        """The same of threads, with all threads that these have started."""
        self._hosts: set[str] = set()
        """Fixtures that started threads: a box in this process."""
        self._before: set[str] = set()
        self._start = threading.Thread.start

    def install(self) -> None:
        """See every thread that is started from now on."""

        def start(thread: threading.Thread, *arguments: Any) -> None:
            if threading.current_thread() in self._shared_threads:
                self._shared_threads.add(thread)
            self._start(thread, *arguments)

        threading.Thread.start = start  # type: ignore[method-assign, assignment]

    def uninstall(self) -> None:
        """See no thread any more."""
        threading.Thread.start = self._start  # type: ignore[method-assign]

    @contextmanager
    def shared_by(self, fixture: pytest.FixtureDef[object]) -> Iterator[None]:
        """Let stay what the fixture's set-up opens meanwhile, if several tests share the fixture."""
        if fixture.scope == "function":
            yield
            return
        before, threads = self._open(), set(threading.enumerate())
        yield
        started, opened = set(threading.enumerate()) - threads, self._open() - before
        self._shared_threads |= started
        self._shared |= opened
        if started:
            self._hosts.add(fixture.argname)

    def begin(self) -> None:
        """Remember what is open before a test's set-up."""
        self._before = self._open()

    def check(self, item: pytest.Item) -> None:
        """Fail if something is open that was not before, and that no shared fixture holds."""
        fixtures = set(fixtures_of(item))
        left = self._left()
        if left and "chromium" in fixtures:
            # The browser's driver has its event loop in this thread, with a pool that ends when the driver does.
            self._shared |= {name for name in left if name.startswith("thread asyncio_")}
        if left and self._hosts & fixtures:
            # The box may open a connection or start a child whenever it likes.
            self._shared |= {name for name in left if not name.startswith("thread")}
        if not self._left():
            return
        gc.collect()  # a socket that nothing refers to is told of by its own warning
        ends = time.monotonic() + PATIENCE_S  # noqa: TID251 - real threads and processes end in real time
        while (left := self._left()) and time.monotonic() < ends:  # noqa: TID251
            time.sleep(0.01)  # noqa: TID251
        if left:
            self._shared |= left  # the next test has not opened it
            pytest.fail(f"left open by this test: {', '.join(sorted(left))}", pytrace=False)

    def _left(self) -> set[str]:
        opened = self._open()
        left = opened - self._before - self._shared
        ended = {_program(name) for name in self._shared - opened} - {""}
        again = {name for name in left if _program(name) in ended}
        self._shared |= again  # a shared server that a test has started again
        return left - again

    def _open(self) -> set[str]:
        """Return the threads, child processes and sockets of this process, each as a text that no later one has."""
        return set(self._threads()) | set(_children()) | set(_sockets())

    def _threads(self) -> Iterator[str]:
        for thread in threading.enumerate():
            if thread.name not in THREADS_OF_THE_PROCESS and thread not in self._shared_threads:
                yield f"thread {thread.name} {thread.native_id}"


def _children() -> Iterator[str]:
    for task in os.listdir("/proc/self/task"):
        try:
            children = Path(f"/proc/self/task/{task}/children").read_text().split()
        except OSError:  # the thread has ended, or this kernel does not tell
            continue
        for child in children:
            try:
                command = Path(f"/proc/{child}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            if not any(name in command for name in PROCESSES_OF_THE_PROCESS):
                yield f"process {child} {command.strip()[:120] or 'whose end was not waited for'}"


def _program(name: str) -> str:
    """Return the command of a process, without its number; empty for anything else."""
    return name.split(" ", 2)[2] if name.startswith("process ") else ""


def _sockets() -> Iterator[str]:
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{descriptor}")
        except OSError:  # the one that listed the folder
            continue
        if target.startswith("socket:"):
            yield f"{target} (descriptor {descriptor})"
