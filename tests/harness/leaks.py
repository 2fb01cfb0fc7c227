"""A test that leaves a thread, a child process or a socket open fails.

What a fixture of a wider scope than one test sets up (a shared server, a pool) may stay until that fixture ends.
"""

import gc
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

PATIENCE_S = 10.0
"""How long threads and processes that are ending may take. Only a test that leaks waits so long."""


class LeakGuard:
    """Compares what is open before and after each test."""

    def __init__(self) -> None:
        self._shared: set[str] = set()
        """What fixtures of wider scopes hold open."""
        self._before: set[str] = set()

    @contextmanager
    def shared_by(self, fixture: pytest.FixtureDef[object]) -> Iterator[None]:
        """Let stay what the fixture's set-up opens meanwhile, if several tests share the fixture."""
        if fixture.scope == "function":
            yield
            return
        before = _open()
        yield
        self._shared |= _open() - before

    def begin(self) -> None:
        """Remember what is open before a test's set-up."""
        self._before = _open()

    def check(self) -> None:
        """Fail if something is open that was not before, and that no shared fixture holds."""
        left = self._left()
        if not left:
            return
        gc.collect()  # a socket that nothing refers to is told of by its own warning
        ends = time.monotonic() + PATIENCE_S  # noqa: TID251 - real threads and processes end in real time
        while (left := self._left()) and time.monotonic() < ends:  # noqa: TID251
            time.sleep(0.01)  # noqa: TID251
        if left:
            self._shared |= left  # the next test has not opened it
            pytest.fail(f"left open by this test: {', '.join(sorted(left))}", pytrace=False)

    def _left(self) -> set[str]:
        return _open() - self._before - self._shared


def _open() -> set[str]:
    """Return the threads, child processes and sockets of this process, each as a text that no later one has."""
    threads = {f"thread {t.name} {t.native_id}" for t in threading.enumerate() if t is not threading.main_thread()}
    return threads | set(_children()) | set(_sockets())


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
            if "multiprocessing.resource_tracker" not in command:  # one a process, until it ends
                yield f"process {child} {command.strip()[:120] or 'that nobody has waited for'}"


def _sockets() -> Iterator[str]:
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{descriptor}")
        except OSError:  # the one that listed the folder
            continue
        if target.startswith("socket:"):
            yield f"{target} (descriptor {descriptor})"
