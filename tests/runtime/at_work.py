"""An engine at work: what nearly every story of requests begins and ends with."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tests.fakes.engine import EngineBench
from tests.fakes.processor import Cost


def engine(cost: Cost, **facts: Any) -> EngineBench:
    """A bench with the application `t/app`, whose network has one variant, `v`; `facts` are those of the bench."""
    bench = EngineBench(**facts)
    bench.add({"v": cost})
    return bench


@asynccontextmanager
async def at_work(bench: EngineBench, *, residency: bool = False) -> AsyncIterator[EngineBench]:
    """Its workers run, and the residency loop where that is asked for; in the end no request has left anything."""
    async with bench.working(residency=residency):
        yield bench
    bench.assert_quiet()
