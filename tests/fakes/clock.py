"""Stories in virtual time, on the lab's own event loop: minutes run in milliseconds and always the same way."""

import asyncio
from collections.abc import Callable, Coroutine

from appliance.clock import NS_PER_MS, NS_PER_S
from appliance.lab.loop import run_virtual

__all__ = ["at_ms", "ms", "run_virtual", "settle", "story"]


def story(body: Callable[[], Coroutine[None, None, None]]) -> Callable[[], None]:
    """Run an async test in virtual time."""

    def test() -> None:
        run_virtual(body)

    test.__name__ = body.__name__
    test.__doc__ = body.__doc__
    return test


def ms(ns: int) -> float:
    return round(ns / NS_PER_MS, 3)


async def at_ms(start_ns: int, ms: float, now_ns: Callable[[], int]) -> None:
    """Return `ms` after `start_ns`."""
    await asyncio.sleep(max(0.0, (start_ns + ms * 1e6 - now_ns()) / NS_PER_S))  # noqa: TID251 - the fake is the clock


async def settle() -> None:
    """Let everything run that can run without time passing."""
    for _ in range(20):
        await asyncio.sleep(0)  # noqa: TID251 - the fake is the clock
