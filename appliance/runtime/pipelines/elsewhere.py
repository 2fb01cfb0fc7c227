"""Planning where it delays nobody: in a process of its own once that is there, for a thread that computes makes the
event loop late; until then, and where it has ended, in a thread.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeVar

from appliance.log import get as get_log
from appliance.runtime.ports import Background

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


class Elsewhere:
    """Port `Background`. What is computed has to be a function of a module with its arguments (`functools.partial`)."""

    def __init__(self, process: Process, ended: type[Exception], otherwise: Background) -> None:
        """`ended`: what the process raises where it ended before it answered."""
        self._process = process
        self._ended = ended
        self._otherwise = otherwise

    def __call__(self, compute: Callable[[], T], /) -> Awaitable[T]:
        if self._process.is_ready:
            return self._there(compute)
        self._process.warm_up(compute)
        return self._otherwise(compute)

    async def _there(self, compute: Callable[[], T]) -> T:
        try:
            made: T = await self._process.call(compute)
        except self._ended:
            log.warning("the process that plans pipelines ended; it is begun anew")
            made = await self._otherwise(compute)
        return made
