"""An engine at work: what nearly every story of requests begins and ends with."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from tests.fakes.clock import ms
from tests.fakes.engine import EngineBench
from tests.fakes.processor import Cost


def engine(variants: Cost | Mapping[str, Cost], budget: int = 100, **facts: Any) -> EngineBench:
    """A bench with the application `t/app` of these variants, or of one that is called `v`; `facts` are the bench's."""
    bench = EngineBench(budget, **facts)
    bench.add({"v": variants} if isinstance(variants, Cost) else variants)
    return bench


@asynccontextmanager
async def at_work(bench: EngineBench, *, residency: bool = False) -> AsyncIterator[EngineBench]:
    """Its workers run, and the residency loop where that is asked for; in the end no request has left anything."""
    async with bench.working(residency=residency):
        yield bench
    bench.assert_quiet()


async def took_ms(bench: EngineBench, *calls: Awaitable[Any]) -> float:
    """Milliseconds until all of them have ended."""
    start_ns = bench.clock.now_ns()
    await asyncio.gather(*calls)
    return ms(bench.clock.now_ns() - start_ns)


@asynccontextmanager
async def warm(bench: EngineBench) -> AsyncIterator[EngineBench]:
    """A bench at work that has answered a request of `t/app`: its network is in memory."""
    async with at_work(bench):
        await bench.infer()
        yield bench


def ran(bench: EngineBench) -> list[int]:
    """Runs of each processor of the first kind."""
    return [len(one.ran) for one in (bench.processor, *bench.twins)]
