"""Coroutines driven to their first wait by a plain call: what never waits is over then, and needed no task.

What `asyncio` calls an eager start (from Python 3.12), without the task: to make one and to wake it costs as much as a
quick model's run.
"""

import asyncio
from collections.abc import Callable, Coroutine, Generator
from functools import partial
from types import coroutine
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Begun(Generic[T]):
    """A coroutine that waits for something: `await` it, once, in a task, to go on from there; or `go_on` without one,
    where what it waits for has come.
    """

    __slots__ = ("_awaited", "_coroutine")

    def __init__(self, coroutine: Coroutine[Any, Any, T], awaited: Any) -> None:
        self._coroutine = coroutine
        self._awaited = awaited

    def __await__(self) -> Generator[Any, Any, T]:
        awaited = self._awaited
        while True:
            step: Callable[[], Any]
            try:
                step = partial(self._coroutine.send, (yield awaited))
            except BaseException as error:  # a cancellation: it is the coroutine's, too
                step = partial(self._coroutine.throw, error)
            try:
                awaited = step()
            except StopIteration as end:
                value: T = end.value
                return value

    def go_on(self) -> "T | Begun[T]":
        """As `begin`, from where it waits."""
        return begin(self._coroutine)

    def when_ready(self, call: Callable[[], None]) -> bool:
        """Have `call` called when it can `go_on`; False: it does not wait for a future, but for a task."""
        future, self._awaited = self._awaited, None
        if not isinstance(future, asyncio.Future):
            return False
        future._asyncio_future_blocking = False  # as a task does with what it is given to wait for
        future.add_done_callback(lambda _: call())
        return True

    def close(self) -> None:
        """End it where it waits: what it holds is given back."""
        self._coroutine.close()


def begin(coroutine: Coroutine[Any, Any, T]) -> "T | Begun[T]":
    """Run a coroutine as far as it goes without waiting: its value, or what is left of it.

    On the event-loop thread, outside any task.

    Whatever needs a task (a timeout does) must come after `in_task`. Raises: what the coroutine raises.
    """
    try:
        awaited = coroutine.send(None)
    except StopIteration as end:
        value: T = end.value
        return value
    return Begun(coroutine, awaited)


async def in_task() -> None:
    """Return inside a task: at once where one runs the caller already, else when whoever began the caller awaits it
    in one.
    """
    if asyncio.current_task() is None:
        await gone_on_with()


@coroutine
def gone_on_with() -> Generator[None, None, None]:
    """Return when whoever began the caller goes on with it; where that is a task, with its next turn."""
    yield
