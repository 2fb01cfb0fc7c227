"""Planning where it delays nobody: in a process of its own once that is there, for a thread that computes makes the
event loop late; until then, and where it has ended or finds no room, in a thread. Once somebody has given up waiting it
is the process wherever that can begin, for that can be ended, and a thread that computes for ever cannot.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Generic, Protocol, TypeVar

from appliance.log import get as get_log
from appliance.runtime.pipelines.chunks import answered, order_of, read_answer
from appliance.runtime.ports import Background, NotComputed

T = TypeVar("T")
log = get_log("pipelines")


class Process(Protocol):
    """A process that computes what it is told."""

    @property
    def is_ready(self) -> bool:
        """Whether it has begun."""
        ...

    def warm_up(self, function: Callable[..., Any], *arguments: object) -> None:
        """Have it begin, in the background."""
        ...

    async def call(self, function: Callable[..., Any], *arguments: object) -> Any:
        """What a function returns there; both have to be such as can be sent."""
        ...


class ProcessBackground:
    """Port `Background`. What is computed has to be a function of a module with its arguments (`functools.partial`)."""

    def __init__(
        self, process: Process, ended: type[Exception], not_begun: type[Exception], otherwise: Background
    ) -> None:
        """`ended`: what the process raises where it ended before it answered; `not_begun`: where it could not begin."""
        self._process = process
        self._ended = ended
        self._not_begun = not_begun
        self._otherwise = otherwise
        self._was_given_up = False
        self._left: list[_InThread[Any]] = []
        """Computations in threads whose callers gave up waiting."""

    def __call__(self, compute: Callable[[], T], /) -> Awaitable[T]:
        if self._process.is_ready or self._was_given_up:
            return self._there(compute)
        # What is sent there is imported; computing it may take for ever.
        self._process.warm_up(callable, (answered, compute))
        return self._here(compute)

    async def _here(self, compute: Callable[[], T]) -> T:
        """Raises: NotComputed while a thread computes what nobody waits for any more: it may do so for ever."""
        self._left = [one for one in self._left if one.is_running]
        if self._left:
            raise NotComputed
        in_thread = _InThread(compute)
        try:
            return await self._otherwise(in_thread)
        except asyncio.CancelledError:
            self._was_given_up = True
            self._left.append(in_thread)
            raise

    async def _there(self, compute: Callable[[], T]) -> T:
        order = await order_of(compute)
        try:
            written = await self._process.call(answered, order)
        except self._not_begun:
            return await self._here(compute)
        except self._ended:
            log.warning("the process that plans pipelines ended before it had answered")
            if not self._was_given_up:
                return await self._here(compute)
            try:
                written = await self._process.call(answered, order)
            except self._not_begun:
                return await self._here(compute)
            except self._ended:
                raise NotComputed from None
        except asyncio.CancelledError:  # the process was ended with it
            self._was_given_up = True
            raise
        made: T = await read_answer(written)
        return made


class _InThread(Generic[T]):
    """A computation, and whether a thread is at it."""

    def __init__(self, compute: Callable[[], T]) -> None:
        self._compute = compute
        self.is_running = False

    def __call__(self) -> T:
        self.is_running = True
        try:
            return self._compute()
        finally:
            self.is_running = False
