"""A test that leaves a task open when its event loop ends fails.

`asyncio.run`, `asyncio.Runner` and anyio's runner cancel such tasks without a word. Virtual time has its own check: see
`tests.fakes.clock.run_virtual`.
"""

import asyncio
import sys
from asyncio import runners
from collections.abc import Callable

import pytest

PATIENCE_S = 10.0
"""How long tasks may take that end by themselves. Only a test that leaks waits so long."""

_CANCEL_ALL: Callable[[asyncio.AbstractEventLoop], None] = runners._cancel_all_tasks  # type: ignore[attr-defined]


class TaskGuard:
    """Looks at what is left when a runner closes its loop."""

    def __init__(self) -> None:
        self._left: list[str] = []
        self._before = _CANCEL_ALL

    def install(self) -> None:
        """See every runner of this process from now on, in place of the guard that does so now."""
        self._before = vars(runners)[_CANCEL_ALL.__name__]
        runners._cancel_all_tasks = self._look_and_cancel  # type: ignore[attr-defined]

    def uninstall(self) -> None:
        """See no runner any more."""
        runners._cancel_all_tasks = self._before  # type: ignore[attr-defined]

    def begin(self) -> None:
        """Forget what an earlier test has left."""
        self._left.clear()

    def check(self) -> None:
        """Fail if a loop that has ended meanwhile had open tasks."""
        if self._left:
            pytest.fail(f"tasks left open by this test: {'; '.join(sorted(self._left))}", pytrace=False)

    def _look_and_cancel(self, loop: asyncio.AbstractEventLoop) -> None:
        has_failed = sys.exc_info()[0] is not None  # the error is what counts, and explains what is left
        if not has_failed and (tasks := open_tasks(loop)):
            loop.run_until_complete(asyncio.wait(tasks, timeout=PATIENCE_S))
            self._left += map(repr, tasks & open_tasks(loop))
        _CANCEL_ALL(loop)


def open_tasks(loop: asyncio.AbstractEventLoop) -> set[asyncio.Task[object]]:
    """Return the tasks that nobody has cancelled, but for those in which anyio runs tests."""
    tasks = {task for task in asyncio.all_tasks(loop) if not task.cancelling()}
    return {task for task in tasks if "TestRunner." not in repr(task.get_coro())}
