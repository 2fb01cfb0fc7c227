"""A processor is throttled: it has what the others have no time for, and all of its part again when it has cooled."""

import asyncio
from typing import Any

from appliance.clock import NS_PER_MS
from appliance.domain.slots import PlannedBatch
from appliance.policies.dispatch import DISPATCH_POLICIES
from appliance.runtime.serving.overflow import IDLE_NS
from tests.fakes.clock import ms, story
from tests.fakes.engine import EngineBench
from tests.fakes.processor import Cost
from tests.runtime.at_work import at_work, engine, ran, took_ms, warm
from tests.runtime.serving.dispatch_records import replayed
from tests.runtime.serving.two_kinds import LOAD_MS, bench_of, cpu_build, measured

ALIKE = (1, 1.0, 1.0)


def bench_on_two(**facts: Any) -> EngineBench:
    """Two equal processors of a worker each; runs take 10 ms."""
    return engine(Cost(run_ms=10, load_ms=0), twins=[ALIKE], **facts)


@story
async def test_throttled_processor_is_spared_while_another_has_time() -> None:
    """Two requests at a time: all on the other one; and on both again when it has cooled. So under every policy."""
    for dispatch in sorted(DISPATCH_POLICIES):
        async with warm(bench_on_two(dispatch=dispatch)) as bench:
            before = ran(bench)
            bench.throttled = {"twin-0"}
            for _ in range(3):
                await asyncio.gather(bench.infer(), bench.infer())
            assert ran(bench)[1] == before[1], dispatch
            bench.throttled = set()
            await asyncio.gather(*(bench.infer() for _ in range(4)))
            assert ran(bench)[1] > before[1] or dispatch == "fixed", dispatch


@story
async def test_model_fixed_to_a_throttled_processor_stays_there() -> None:
    """The operator has said so."""
    async with at_work(bench_on_two(dispatch="fixed", fixed={"t/app": "twin-0"})) as bench:
        bench.throttled = {"twin-0"}
        await asyncio.gather(bench.infer(), bench.infer())
        assert ran(bench) == [0, 2]


@story
async def test_throttled_processor_runs_requests_that_another_has_no_time_for() -> None:
    """Of eight requests at once two are left to the other processor, where the second waits for one run; the rest is
    not kept waiting for it, and no request is late that would not be.
    """
    async with warm(bench_on_two()) as bench:
        bench.throttled = {"twin-0"}
        assert await took_ms(bench, *(bench.infer() for _ in range(8))) <= 50
        assert ran(bench)[1] >= 3
        await asyncio.gather(bench.infer(within_ms=12), bench.infer(within_ms=12))


@story
async def test_throttled_processor_serves_where_there_is_no_other() -> None:
    """All are throttled, or the other one is lost: nothing is refused."""
    async with warm(bench_on_two()) as bench:
        bench.throttled = {"fake", "twin-0"}
        await asyncio.gather(*(bench.infer() for _ in range(4)))
        before = ran(bench)
        assert min(before) >= 2
        bench.throttled = {"fake"}
        bench.clusters[0].lose("its core is offline")
        await bench.infer()
        assert ran(bench) == [before[0] + 1, before[1]]


@story
async def test_processor_that_has_cooled_serves_waiting_requests_at_once() -> None:
    """A request that was left to the other processor waits for it no longer than it must."""
    async with warm(bench_on_two()) as bench:
        bench.throttled = {"twin-0"}
        start_ns = bench.clock.now_ns()
        both = [asyncio.create_task(bench.infer()) for _ in range(2)]
        await bench.pause(2)
        bench.throttled = set()
        bench.engine.look_again()
        await asyncio.gather(*both)
        assert ms(bench.clock.now_ns() - start_ns) == 12
        assert ran(bench)[1] == 1


@story
async def test_dispatch_decision_beside_a_throttled_processor_is_replayable() -> None:
    """The decision names only the processors that the request was weighed for."""
    async with at_work(bench_on_two()) as bench:
        bench.throttled = {"fake"}
        await bench.infer()
    assert replayed(bench)[-1]["decision"]["processor"] == "twin-0"


@story
async def test_throttled_device_has_a_build_loaded_for_another_kind() -> None:
    """A network that only the throttled device has in memory: the build for another kind is loaded beside it, at once,
    and runs what it has time for. Its own build does again when the device has cooled.
    """
    async with warm(bench_of()) as bench:
        bench.throttled = {bench.other.describe().name}
        await bench.infer()
        await bench.pause(2 * LOAD_MS)
        assert bench.memory.is_resident(cpu_build(bench))
        there = len(bench.other.ran)
        found = [await bench.infer() for _ in range(3)]
        assert {one.build_id for one in found} == {cpu_build(bench)}
        assert len(bench.other.ran) == there
        bench.throttled = set()
        assert (await bench.infer()).build_id == bench.build("v")


@story
async def test_overflow_build_loaded_in_vain_is_loaded_ever_more_seldom() -> None:
    """Requests so far apart that the build has left again when the next one comes: it is not brought with
    each of them.
    """
    async with warm(bench_of()) as bench:
        bench.throttled = {bench.other.describe().name}
        loads = bench.memory.loads
        for _ in range(20):
            await bench.infer()
            await bench.pause(1.5 * IDLE_NS / NS_PER_MS)
        assert len(bench.processor.ran) <= 1
        assert bench.memory.loads - loads <= 5


@story
async def test_overflow_build_that_was_evicted_is_not_loaded_again_at_once() -> None:
    """Others need the memory again and again: the build comes once a minute, though it was of use each time."""
    async with at_work(bench_of(budget=30)) as bench:
        bench.add({"w": Cost(run_ms=1, load_ms=1, resident_bytes=15, peak_bytes=15)}, name="other", tenant="u")
        await bench.infer()
        bench.throttled = {bench.other.describe().name}
        brought = 0
        for _ in range(60):
            before = bench.memory.is_resident(cpu_build(bench))
            await bench.infer()
            await bench.pause(2 * LOAD_MS)
            brought += bench.memory.is_resident(cpu_build(bench)) > before
            await bench.infer()
            await bench.infer(application="u/other", tenant="u")
            await bench.memory.unload(bench.build("w", "u/other"))
            await bench.pause(2000)
        assert brought == 2
        assert len(bench.processor.ran) == 2 + 60


@story
async def test_overflow_build_whose_runs_would_be_late_is_not_loaded() -> None:
    """The CPU takes 12 ms, and there are 8: the throttled device goes on."""
    async with warm(bench_of()) as bench:
        bench.throttled = {bench.other.describe().name}
        for _ in range(5):
            await bench.infer(within_ms=8)
        await bench.pause(2 * LOAD_MS)
        assert not bench.memory.is_resident(cpu_build(bench))
        assert len(bench.other.ran) == 6


@story
async def test_request_barred_from_a_concurrent_run_has_the_throttled_processor() -> None:
    """On the other one a second run of the build would wait for the first, though a worker idles, and end too late."""
    async with at_work(engine(Cost(run_ms=10, load_ms=0), workers=2, twins=[(1, 1.5, 1 / 1.5)])) as bench:
        measured(bench, 25.0)
        await bench.infer()
        await asyncio.gather(*(bench.infer() for _ in range(3)))
        before = ran(bench)[1]
        bench.throttled = {"twin-0"}
        await asyncio.gather(bench.infer(), bench.infer(within_ms=17))
        assert ran(bench)[1] == before + 1
        await asyncio.gather(bench.infer(), bench.infer(within_ms=25))


@story
async def test_request_beside_a_reserved_worker_has_the_throttled_processor() -> None:
    """The idle worker of the other processor is kept for planned work: the throttled one runs the request at once."""
    async with warm(bench_on_two()) as bench:
        bench.throttled = {"twin-0"}
        start_ns = bench.clock.now_ns() + 5 * NS_PER_MS
        takes_ns = {0: 10 * NS_PER_MS}
        batch = PlannedBatch(start_ns, 10 * NS_PER_MS, 500 * NS_PER_MS, frozenset({("s", 1)}), takes_ns)
        bench.queue.plan("lane", "t", [batch])
        assert await took_ms(bench, bench.infer()) == 10
        assert ran(bench)[1] == 1
        bench.queue.plan("lane", "t", [])
