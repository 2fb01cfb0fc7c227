"""An engine at work: what nearly every story of requests begins and ends with."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Mapping
from contextlib import asynccontextmanager
from dataclasses import fields, replace
from typing import Any

from appliance.domain.catalogue import Latency
from tests.fakes.clock import ms
from tests.fakes.engine import EngineBench
from tests.fakes.processor import Cost


def engine(variants: Cost | Mapping[str, Cost], budget: int = 100, **facts: Any) -> EngineBench:
    """Return a bench with the application `t/app` of these variants; a single `Cost` is the variant `v`.

    `facts` are the bench's.
    """
    bench = EngineBench(budget, **facts)
    bench.add({"v": variants} if isinstance(variants, Cost) else variants)
    return bench


def change(bench: EngineBench, application: str = "t/app", **changes: Any) -> None:
    """Give these values to the only variant of a network, or to its profile, as a new import would."""
    model = bench.catalogue.entry(application).model
    (variant,) = model.variants
    assert variant.profile is not None
    of_profile = {one.name for one in fields(variant.profile)} & changes.keys()
    profile = replace(variant.profile, **{name: changes.pop(name) for name in of_profile})
    bench.catalogue.put_model(replace(model, variants=(replace(variant, profile=profile, **changes),)))


def also_on(bench: EngineBench, kind: str, run_ms: float, application: str = "t/app", **facts: Any) -> None:
    """Let the only variant of a network serve on another kind, too, where a run takes `run_ms`.

    `facts` are further values of its cost there.
    """
    (variant,) = bench.catalogue.entry(application).model.variants
    assert variant.profile is not None
    there = replace(variant.profile, processor=kind, kind=kind, latencies=(Latency(1, run_ms, run_ms),))
    change(bench, application, other_profiles=(there,))
    bench.other.costs[bench.build(variant.name, application)] = Cost(**{"run_ms": run_ms, **facts})


@asynccontextmanager
async def at_work(bench: EngineBench, *, residency: bool = False) -> AsyncIterator[EngineBench]:
    """Run the workers, and with `residency` the residency loop; check at the end that no request has left anything."""
    async with bench.working(residency=residency):
        yield bench
    bench.assert_quiet()


async def took_ms(bench: EngineBench, *calls: Awaitable[Any]) -> float:
    """Return the milliseconds until all calls have ended."""
    start_ns = bench.clock.now_ns()
    await asyncio.gather(*calls)
    return ms(bench.clock.now_ns() - start_ns)


@asynccontextmanager
async def warm(bench: EngineBench) -> AsyncIterator[EngineBench]:
    """Put the bench to work and let it answer a request of `t/app`: its network is in memory."""
    async with at_work(bench):
        await bench.infer()
        yield bench


def ran(bench: EngineBench) -> list[int]:
    """Return the number of runs of each processor of the first kind."""
    return [len(one.ran) for one in (bench.processor, *bench.twins)]
