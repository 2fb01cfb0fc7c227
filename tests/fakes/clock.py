"""Stories in virtual time, on the lab's own event loop: minutes run in milliseconds and always the same way."""

import asyncio
import functools
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec, TypeVar

from appliance.clock import NS_PER_MS, NS_PER_S
from appliance.lab import loop
from appliance.lab.loop import VirtualLoop

__all__ = ["at_ms", "ms", "run_virtual", "settle", "story"]

P = ParamSpec("P")
T = TypeVar("T")


def run_virtual(body: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run an async function in virtual time; tasks and asynchronous generators that it leaves open are an error."""
    return loop.run_virtual(body, is_strict=True)


def story(body: Callable[P, Coroutine[None, None, None]]) -> Callable[P, None]:
    """Run an async test in virtual time. Fixtures and parameters are handed on."""

    @functools.wraps(body)
    def test(*args: P.args, **kwargs: P.kwargs) -> None:
        run_virtual(functools.partial(body, *args, **kwargs))

    return test


def ms(ns: int) -> float:
    return round(ns / NS_PER_MS, 3)


async def at_ms(start_ns: int, ms: float, now_ns: Callable[[], int]) -> None:
    """Return `ms` after `start_ns`."""
    await asyncio.sleep(max(0.0, (start_ns + ms * 1e6 - now_ns()) / NS_PER_S))  # noqa: TID251 - the fake is the clock


async def settle() -> None:
    """Let everything run that can run without time passing. Only in virtual time: a real loop waits for a condition."""
    running = asyncio.get_running_loop()
    assert isinstance(running, VirtualLoop), "a real loop cannot say that it is idle: wait for the condition itself"
    await running.idle()
