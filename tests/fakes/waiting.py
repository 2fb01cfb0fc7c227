"""Waiting on a real event loop: for a condition, never for a time or a number of turns."""

import asyncio
from collections.abc import Callable

PATIENCE_S = 120.0
"""How long a condition may take on the slowest machine. Only a test that fails waits so long."""


async def until(is_so: Callable[[], object], timeout_s: float = PATIENCE_S, *, every_s: float = 0.005) -> None:
    """Return once `is_so()` is true.

    `every_s` = 0 looks at each turn of the loop, for what may be true for a few turns only. A condition that another
    condition follows (an answer that arrives and is taken) has to be asked for with the later one.

    Raises: AssertionError after `timeout_s`.
    """
    loop = asyncio.get_running_loop()
    ends_s = loop.time() + timeout_s
    while not is_so():
        assert loop.time() < ends_s, f"not so within {timeout_s} s: {is_so}"
        await asyncio.sleep(every_s)  # noqa: TID251 - a real loop goes on in real time
