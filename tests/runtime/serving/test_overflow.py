"""A network whose own kind of processor is taken for too long runs on further kinds, too, while there is memory."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from appliance.domain.catalogue import Quota
from appliance.domain.slots import PlannedRows
from appliance.runtime.serving.overflow import IDLE_NS
from tests.fakes.clock import ms, story
from tests.fakes.engine import EngineBench
from tests.fakes.processor import Cost
from tests.runtime.at_work import at_work, took_ms, warm
from tests.runtime.serving.floods import flood
from tests.runtime.serving.two_kinds import CPU_MS, NPU_MS, add, bench_of, cpu_build


async def flooded(bench: EngineBench, callers: int, for_ms: float) -> int:
    """How many answers so many callers get in that time."""
    async with flood(bench, "t/app", callers) as found:
        await bench.pause(for_ms)
    await bench.pause(100)
    return len(found.answers_ns)


@asynccontextmanager
async def overflowing(*others: Cost, **facts: Any) -> AsyncIterator[EngineBench]:
    """A bench at work whose network has been flooded: it is in memory for both kinds."""
    bench = bench_of(**facts)
    for cost in others:
        bench.add({"w": cost}, name="other", tenant="u")
    async with warm(bench):
        await flooded(bench, 6, 300)
        assert bench.memory.is_resident(cpu_build(bench))
        yield bench


@story
async def test_answer_names_the_processor_kind_that_computed_it() -> None:
    """Of two at once, one ran on the kind that it was not placed on."""
    async with overflowing() as bench:
        there, here = len(bench.other.ran), len(bench.processor.ran)
        tasks = [asyncio.create_task(bench.infer()) for _ in range(6)]
        named = Counter([(await task).build_id for task in tasks])
        assert named == {
            bench.build("v"): len(bench.other.ran) - there,
            cpu_build(bench): len(bench.processor.ran) - here,
        }
        assert len(named) == 2


@story
async def test_complete_batch_begins_at_once_where_two_kinds_may_run_it() -> None:
    async with overflowing() as bench:
        bench.queue.plan_rows({bench.build("v"): PlannedRows(2, 300_000_000)})
        start_ns = bench.clock.now_ns()
        tasks = [asyncio.create_task(bench.infer(is_item=True)) for _ in range(2)]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        assert ms(bench.clock.now_ns() - start_ns) < 100
        await asyncio.gather(*tasks)  # this network gains nothing by larger runs: the other one goes on waiting


@story
async def test_wait_for_a_batch_loads_no_overflow_build() -> None:
    """However long a plan has reserved it for: the processor was idle. Nor does a burst: what a few requests at once
    would gain is less than loads that are over when the burst is.
    """
    async with warm(bench_of()) as bench:
        await asyncio.gather(*(bench.infer() for _ in range(3)))
        await bench.pause(100)
        assert not bench.memory.is_resident(cpu_build(bench))
        bench.queue.plan_rows({bench.build("v"): PlannedRows(2, 50_000_000)})
        for _ in range(20):
            assert await took_ms(bench, bench.infer(is_item=True)) == 55
        assert not bench.memory.is_resident(cpu_build(bench))


@pytest.mark.parametrize("beyond_plan", [True, None])
@story
async def test_wait_behind_planned_items_loads_no_overflow_build(beyond_plan: bool | None) -> None:
    """An item beyond its plan would begin no sooner on any kind; an item without a plan would."""
    async with at_work(bench_of()) as bench:
        add(bench, "planned", "u", cpu_ms=1000)
        await bench.infer()
        await bench.infer(application="u/planned", tenant="u")
        for _ in range(10):
            planned = [
                bench.infer(application="u/planned", tenant="u", beyond_plan=False, is_item=True) for _ in range(8)
            ]
            await asyncio.gather(*planned, *(bench.infer(beyond_plan=beyond_plan, is_item=True) for _ in range(4)))
            await bench.pause(20)
        assert bench.memory.is_resident(cpu_build(bench)) is not bool(beyond_plan)


@story
async def test_requests_waiting_for_a_busy_processor_kind_run_on_an_idle_kind() -> None:
    """As many as both kinds can do together; a lone caller goes on having the quick kind."""
    async with warm(bench_of()) as bench:
        assert await flooded(bench, 1, 201) == 200 // NPU_MS
        assert not bench.memory.is_resident(cpu_build(bench))
        await flooded(bench, 6, 200)
        assert bench.memory.is_resident(cpu_build(bench))
        before = len(bench.processor.ran)
        answers = await flooded(bench, 6, 600)
        assert answers >= 0.95 * (600 // NPU_MS + 600 // CPU_MS)
        assert len(bench.processor.ran) - before >= 0.9 * 600 // CPU_MS
        before = len(bench.processor.ran)
        assert (await bench.infer()).compute_ns == NPU_MS * 10**6
        assert len(bench.processor.ran) == before


@story
async def test_overflow_build_leaves_when_it_has_idled_for_a_while() -> None:
    """The build that the network serves on stays."""
    async with overflowing() as bench:
        for _ in range(5):
            await bench.pause(IDLE_NS / 2e6)
            await bench.infer()
        assert not bench.memory.is_resident(cpu_build(bench))
        assert bench.memory.is_resident(bench.build("v"))


@story
async def test_overflow_build_gives_way_to_a_network_that_needs_memory() -> None:
    """Under the same load: another network finds the room that it took, though runs are always under way."""
    async with overflowing(Cost(run_ms=1, load_ms=1, resident_bytes=15, peak_bytes=15), budget=30) as bench:
        async with flood(bench, "t/app", 6):
            await bench.pause(50)
            result = await bench.infer(application="u/other", tenant="u")
            assert not result.warm
            assert result.load_ns < 50e6
            await bench.pause(250)
        assert not bench.memory.is_resident(cpu_build(bench))


@pytest.mark.parametrize(
    ("facts", "quota"), [({"budget": 20}, None), ({}, Quota(memory_ceiling_bytes=50))], ids=["no room", "a ceiling"]
)
@story
async def test_overflow_build_takes_free_memory_only(facts: dict[str, float], quota: Quota | None) -> None:
    """No build gives way for it, and a tenant with a ceiling has what it may have."""
    async with warm(bench_of(quota, **facts)) as bench:
        await flooded(bench, 6, 300)
        assert not bench.memory.is_resident(cpu_build(bench))


@story
async def test_overflow_build_serves_at_once_when_the_networks_kind_is_lost() -> None:
    """Without a load."""
    async with overflowing() as bench:
        loads = bench.memory.loads
        bench.member.lose("gone")
        assert bench.build("v").endswith("@cpu")
        result = await bench.infer()
        assert result.warm
        assert bench.memory.loads == loads
