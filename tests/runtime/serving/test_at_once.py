"""Runs at once only where they pay: by what the import measured, on one device and beside others."""

import asyncio
from typing import Any

import pytest

from appliance.clock import NS_PER_MS
from appliance.domain.catalogue import Tenant
from appliance.domain.request import Result
from tests.fakes.clock import settle, story
from tests.fakes.engine import EngineBench
from tests.fakes.processor import Cost
from tests.runtime.at_work import at_work, engine, took_ms, warm
from tests.runtime.serving.two_kinds import CPU_MS, NPU_MS, bench_of, measured


def one_by_one(several_ms: float = 25.0, **facts: Any) -> EngineBench:
    """Two workers; a run alone takes 10 ms, and two at once so long each."""
    bench = engine(Cost(run_ms=10, load_ms=0), workers=2, **facts)
    measured(bench, several_ms)
    return bench


async def overrunning(bench: EngineBench) -> asyncio.Task[Result]:
    """A request whose run has begun, and takes two seconds."""
    cost = bench.processor.costs[bench.build("v")]
    cost.run_ms = 2000
    first = asyncio.create_task(bench.infer())
    await settle()
    cost.run_ms = 10
    return first


@pytest.mark.parametrize(("several_ms", "most"), [(25.0, 1), (12.0, 2)])
@story
async def test_runs_of_a_build_go_one_by_one_where_concurrency_gains_nothing(several_ms: float, most: int) -> None:
    """Two runs at once take 25 ms each, one alone 10: on two workers the second waits, and both are done sooner in the
    mean.
    """
    async with warm(one_by_one(several_ms)) as bench:
        tasks = [asyncio.create_task(bench.infer()) for _ in range(4)]
        seen = set()
        while not all(task.done() for task in tasks):
            await bench.pause(1)
            seen.add(bench.processor.running)
        assert max(seen) == most


@story
async def test_second_worker_serves_another_network_while_runs_go_one_by_one() -> None:
    """Another network's request runs beside the first network's run, though its turn comes later; the first network's
    second request waits for that run to end.
    """
    async with at_work(one_by_one()) as bench:
        bench.add({"w": Cost(run_ms=10, load_ms=0)}, name="other")
        await bench.infer()
        await bench.infer(application="t/other")
        assert await took_ms(bench, bench.infer(), bench.infer(), bench.infer(application="t/other")) == 20


@story
async def test_requests_waiting_for_a_run_share_the_next_run() -> None:
    """Four requests that wait for one run at a time are put together where that gains, though another worker idles."""
    async with at_work(engine(Cost(run_ms=10, load_ms=0, run_ms_by_batch={2: 11, 4: 12}), workers=2)) as bench:
        measured(bench, 25.0)
        await bench.infer()
        assert await took_ms(bench, *(bench.infer(x) for x in range(5))) == 22
        assert [len(each) for each in bench.processor.ran_for] == [1, 1, 4]


@story
async def test_run_of_a_cancelled_request_is_still_waited_for() -> None:
    """The run goes on, and the request that waits for it begins after it; a request that is cancelled while it waits
    leaves nothing.
    """
    async with warm(one_by_one()) as bench:
        first = asyncio.create_task(bench.infer())
        await settle()
        waiting, last = (asyncio.create_task(bench.infer()) for _ in range(2))
        await bench.pause(2)
        first.cancel()
        waiting.cancel()
        assert await took_ms(bench, last) == 18


@story
async def test_request_barred_from_a_concurrent_run_takes_a_slower_device() -> None:
    """It goes to the slower device where it is done sooner there: the second of three, which would be done after two
    runs in its turn. A request that would not be done sooner waits.
    """
    async with at_work(bench_of(workers=2)) as bench:
        measured(bench, 4 * NPU_MS)
        await bench.infer()
        there = len(bench.other.ran)
        assert await took_ms(bench, bench.infer(), bench.infer()) == 2 * NPU_MS
        assert (len(bench.other.ran) - there, len(bench.processor.ran)) == (2, 0)
        servable = bench.catalogue.entry("t/app").servables["v"]
        (other,) = servable.overflow
        bench.memory.unpin(await bench.memory.pin(other.build_id, 10, 12, None))
        there = len(bench.other.ran)
        await asyncio.gather(*(bench.infer() for _ in range(4)))
        assert CPU_MS < 4 * NPU_MS
        assert (len(bench.other.ran) - there, len(bench.processor.ran)) == (2, 2)


@pytest.mark.parametrize("twins", [[], [(1, 3.0, 1 / 3)]], ids=["an idle worker", "a slower processor"])
@story
async def test_overrunning_run_leaves_what_idles_to_waiting_requests(twins: list[tuple[int, float, float]]) -> None:
    """The run should have ended after 10 ms: a request that waits for it begins elsewhere when it is done sooner there,
    though no request comes and no run ends meanwhile.
    """
    async with warm(one_by_one(twins=twins)) as bench:
        first = await overrunning(bench)
        assert await took_ms(bench, bench.infer()) < 100
        await first


@story
async def test_last_free_worker_is_kept_for_active_tenants_for_a_minute() -> None:
    """A tenant's second long run leaves the last free worker to a tenant that asked of late; after that minute it
    begins, though no request comes and no run ends.
    """
    async with at_work(engine(Cost(run_ms=300_000, load_ms=0), workers=2, timeout_ms=1e6)) as bench:
        bench.add({"w": Cost(run_ms=1, load_ms=0)}, name="other", tenant="u")
        await bench.infer(application="u/other", tenant="u")
        both = [asyncio.create_task(bench.infer()) for _ in range(2)]
        await bench.pause(50_000)
        assert bench.processor.running == 1
        await bench.pause(12_000)
        assert bench.processor.running == 2
        await asyncio.gather(*both)


@story
async def test_long_run_keeps_no_short_run_of_its_build_waiting() -> None:
    """A tenant sends large inputs to a network that all may call: others gain nothing by waiting for that run."""
    bench = EngineBench(workers=2)
    bench.add({"v": Cost(run_ms=10, load_ms=0)}, shared=True)
    bench.catalogue.put_tenant(Tenant("u"))
    measured(bench, 25.0)
    async with warm(bench):
        first = await overrunning(bench)
        (under_way,) = bench.queue.scheduler.runs
        under_way.holds_ns = 2000 * NS_PER_MS  # as of free sizes is known before
        assert await took_ms(bench, bench.infer(tenant="u")) == 10
        await first
