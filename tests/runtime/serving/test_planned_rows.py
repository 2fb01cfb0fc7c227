"""Runs that wait for company, where a plan has reserved that: no longer than planned, and nobody waits with them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from appliance.domain.catalogue import Latency
from appliance.domain.slots import PlannedRows
from tests.fakes.clock import ms, settle, story
from tests.fakes.engine import EngineBench
from tests.fakes.processor import Cost
from tests.runtime.at_work import engine, warm

BATCHED = Cost(run_ms=10, run_ms_by_batch={2: 12, 4: 16})


@asynccontextmanager
async def waiting(wait: PlannedRows | None, **facts: Any) -> AsyncIterator[EngineBench]:
    """An engine at work, in whose memory `t/app` is, with that wait for a batch of it."""
    async with warm(engine(BATCHED, **facts)) as bench:
        if wait is not None:
            bench.queue.plan_rows({bench.build("v"): wait})
        yield bench


async def ended_ms(
    bench: EngineBench, count: int, apart_ms: float, start_ns: int | None = None, **facts: Any
) -> list[float]:
    """When each of some items was answered that were sent one after the other, from now or a start."""
    from_ns = bench.clock.now_ns() if start_ns is None else start_ns

    async def one(index: int) -> float:
        await bench.pause(index * apart_ms)
        await bench.infer(float(index), **{"is_item": True, **facts})
        return ms(bench.clock.now_ns() - from_ns)

    return await asyncio.gather(*(one(index) for index in range(count)))


@story
async def test_item_without_a_plan_does_not_wait_for_a_batch() -> None:
    """An idle worker begins with what is there."""
    async with waiting(None) as bench:
        assert await ended_ms(bench, 1, 0) == [10.0]


@story
async def test_item_waits_for_its_batch_no_longer_than_planned() -> None:
    """Four items that come within the wait share one run, which begins when the fourth is there; a single item begins
    when its wait is over.
    """
    async with waiting(PlannedRows(4, 30_000_000)) as bench:
        assert await ended_ms(bench, 4, 2) == [22.0, 22.0, 22.0, 22.0]
        assert await ended_ms(bench, 1, 0) == [40.0]
        assert await ended_ms(bench, 2, 5) == [42.0, 42.0]


@story
async def test_plain_call_does_not_wait_for_a_batch() -> None:
    """A plain call of the same build runs at once, and takes an item that waits along."""
    async with waiting(PlannedRows(4, 100_000_000)) as bench:
        assert await ended_ms(bench, 1, 0, is_item=False) == [10.0]
        start_ns = bench.clock.now_ns()
        held = asyncio.ensure_future(ended_ms(bench, 1, 0, start_ns))
        await bench.pause(20)
        assert await ended_ms(bench, 1, 0, start_ns, is_item=False) == [32.0]
        assert await held == [32.0]


@story
async def test_batch_wait_ends_early_enough_for_a_run_under_way() -> None:
    """No run is interrupted: one of 45 ms that begins before the wait is over would make the item late."""
    async with waiting(PlannedRows(4, 100_000_000, 45_000_000)) as bench:
        bench.add({"z": Cost(run_ms=45)}, name="third", tenant="u")
        await bench.infer(application="u/third", tenant="u")
        start_ns = bench.clock.now_ns()
        held = asyncio.ensure_future(ended_ms(bench, 1, 0, start_ns, within_ms=120))
        await bench.pause(30)
        assert await ended_ms(bench, 1, 0, start_ns, application="u/third", tenant="u") == [75.0]
        assert await held == [85.0]


@story
async def test_applications_beside_a_waiting_batch_do_not_wait() -> None:
    """Another application of the same tenant runs meanwhile, and so does another tenant's."""
    async with waiting(PlannedRows(4, 100_000_000)) as bench:
        for tenant, name in (("t", "other"), ("u", "third")):
            bench.add({"w": Cost(run_ms=5)}, name=name, tenant=tenant)
            await bench.infer(application=f"{tenant}/{name}", tenant=tenant)
        start_ns = bench.clock.now_ns()
        held = asyncio.ensure_future(ended_ms(bench, 1, 0, start_ns))
        await settle()
        assert await ended_ms(bench, 1, 0, start_ns, application="t/other") == [5.0]
        assert await ended_ms(bench, 1, 0, start_ns, application="u/third", tenant="u") == [10.0]
        assert await held == [110.0]


@story
async def test_item_does_not_wait_for_a_batch_beyond_its_deadline() -> None:
    """An item that would be late with the whole wait begins in time; and a plan that is gone holds no item."""
    async with waiting(PlannedRows(4, 100_000_000)) as bench:
        assert await ended_ms(bench, 1, 0, within_ms=40) == [33.0]
        start_ns = bench.clock.now_ns()
        held = asyncio.ensure_future(ended_ms(bench, 1, 0, start_ns))
        await bench.pause(20)
        bench.queue.plan_rows({})
        assert await held == [30.0]


@story
async def test_item_waits_for_its_batch_over_several_processor_groups() -> None:
    """Where a scheduler hands out the runs."""
    async with waiting(PlannedRows(2, 30_000_000), twins=((1, 1.0, 1.0),)) as bench:
        assert await ended_ms(bench, 2, 4) == [16.0, 16.0]
        assert await ended_ms(bench, 1, 0) == [40.0]


@pytest.mark.parametrize(("processors", "last_ms"), [(1, 42.0), (2, 30.0)])
@story
async def test_waiting_batch_leaves_the_idle_worker_to_others(processors: int, last_ms: float) -> None:
    """Also to items that no plan counts on: they go behind another tenant's planned items, which may not run yet."""
    others = {"application": "u/third", "tenant": "u", "beyond_plan": True, "within_ms": 50}
    async with waiting(PlannedRows(2, 100_000_000), twins=[(1, 1.0, 1.0)] * (processors - 1)) as bench:
        bench.add({"z": Cost(run_ms=5)}, name="third", tenant="u")
        await bench.infer(application="u/third", tenant="u")
        start_ns = bench.clock.now_ns()
        held = asyncio.ensure_future(ended_ms(bench, 1, 0, start_ns, beyond_plan=False))
        await settle()
        assert await ended_ms(bench, 3, 10, start_ns, **others) == [5.0, 15.0, 25.0]
        second = ended_ms(bench, 1, 0, start_ns, beyond_plan=False)
        last = ended_ms(bench, 1, 0, start_ns, **others)
        assert list(await asyncio.gather(held, second, last)) == [[37.0], [37.0], [last_ms]]


@story
async def test_batch_wait_allows_for_slower_concurrent_runs() -> None:
    """A plan counts on every worker: the wait ends so early that a run of four is in time though others run, too."""
    async with waiting(PlannedRows(4, 80_000_000), workers=2) as bench:
        times = bench.catalogue.entry("t/app").servables["v"].usual_times
        assert times is not None
        times.refer((Latency(1, 10, 10), Latency(4, 16, 16), Latency(1, 10, 10, 2), Latency(4, 40, 40, 2)))
        assert await ended_ms(bench, 1, 0, within_ms=100) == [100 - 40 - 1 + 10]
