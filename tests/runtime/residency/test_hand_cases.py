"""Cases with answers found by hand: who gets which variant, and who leaves memory for whom."""

import asyncio

import pytest

from appliance.domain.errors import OutOfMemory
from appliance.policies.residency.base import ResidencyProblem
from tests.fakes.clock import story
from tests.fakes.engine import EngineBench
from tests.fakes.processor import Cost
from tests.runtime.at_work import at_work, engine

KB = 1000
warm_start = pytest.mark.parametrize("eviction", ["iws-bfe", "ws-bfe"])


@warm_start
@story
async def test_request_whose_variant_no_longer_fits_gets_smaller_variant(eviction: str) -> None:
    async with at_work(EngineBench(32_000 * KB, workers=3, eviction=eviction), residency=True) as bench:
        bench.add({"fp32": Cost(12_600 * KB, 17_920 * KB), "int8": Cost(3_200 * KB, 10_000 * KB)}, name="a1")
        bench.add({"fp32": Cost(12_600 * KB, 16_800 * KB), "int8": Cost(4_290 * KB)}, name="a2")
        bench.add({"fp32": Cost(16_800 * KB, 29_400 * KB), "int8": Cost(4_290 * KB, 14_000 * KB)}, name="a5")
        names = ("a1", "a2", "a5")
        results = await asyncio.gather(*(bench.infer(application=f"t/{name}") for name in names))
    assert [result.variant for result in results] == ["fp32", "int8", "int8"]
    assert bench.memory.evictions == 0


@story
async def test_plan_that_needs_two_replacements_makes_both() -> None:
    """10.826 MB are free and two replacements free 9.380 MB each: 29.586 MB, and the requested build needs 29.364 MB.
    Each of the two needs 13.710 MB while it loads, for which there is room only one after the other.
    """
    bench = EngineBench(36_000 * KB, workers=3, eviction="iws-bfe")
    for name in ("a1", "a2"):
        bench.add({"fp32": Cost(12_587 * KB), "int8": Cost(3_207 * KB, 13_710 * KB)}, name=name)
    bench.add({"fp32": Cost(16_800 * KB, 29_364 * KB), "int8": Cost(4_290 * KB, 14_000 * KB)}, name="a5")
    async with at_work(bench, residency=True):
        for pause_ms, name in ((0, "a1"), (200, "a2"), (3_800, "a1"), (3_200, "a2")):
            await bench.pause(pause_ms)
            assert (await bench.infer(application=f"t/{name}")).variant == "fp32"
        await bench.pause(5_750)
        assert (await bench.infer(application="t/a5")).variant == "fp32"
        for name in ("a1", "a2"):
            result = await bench.infer(application=f"t/{name}")
            assert (result.warm, result.variant) == (True, "int8")


@story
async def test_request_after_wait_for_memory_gets_best_variant_that_fits() -> None:
    """Nothing fits beside the build that runs; when that has ended the large variant does, though the small one needs
    less. A request whose deadline comes before was not too slow: it is refused for memory.
    """
    async with at_work(EngineBench(20, workers=3)) as bench:
        bench.add({"v": Cost(20, load_ms=0, run_ms=300)}, name="busy")
        bench.add({"fp32": Cost(15), "int8": Cost(5)})
        running = asyncio.create_task(bench.infer(application="t/busy"))
        await bench.pause(1)
        start_ns = bench.clock.now_ns()
        waiting = [asyncio.create_task(bench.infer()) for _ in range(3)]
        with pytest.raises(OutOfMemory) as refused:
            await bench.infer(within_ms=100)
        assert bench.clock.now_ns() - start_ns == 100_000_000
        assert [(one["application"], one["why"]) for one in refused.value.blockers] == [("t/busy", "pinned")]
        assert {result.variant for result in await asyncio.gather(*waiting)} == {"fp32"}
        await running
    assert bench.memory.loads == 2


@pytest.mark.parametrize("eviction", ["iws-bfe", "ws-bfe", "bfe", "lfe", "expected-utility"])
@story
async def test_expected_application_gets_smaller_variant_rather_than_none(eviction: str) -> None:
    """Two fill memory and are in their windows when a third is asked for, whose smallest variant lacks 2 MB: it waits
    for the windows, then one of the two is replaced, and both are warm afterwards.
    """
    bench = EngineBench(30_000 * KB, workers=3, eviction=eviction, patience_ms=500, delta_ms=3000, delta_share_max=9)
    for name in ("a1", "a2"):
        bench.add({"fp32": Cost(13_000 * KB), "int8": Cost(3_200 * KB)}, name=name)
    bench.add({"fp32": Cost(16_800 * KB), "int8": Cost(6_000 * KB)}, name="a4")
    async with at_work(bench, residency=True):
        for _ in range(4):
            for name in ("a1", "a2"):
                await bench.infer(application=f"t/{name}")
            await bench.pause(1_000)
        sets = {row["application"]: row["set"] for row in bench.core.residency.rows()}
        assert (sets["t/a1"], sets["t/a2"]) == ("maximalist", "maximalist")
        assert (await bench.infer(application="t/a4")).variant == "int8"
        results = [await bench.infer(application=f"t/{name}") for name in ("a1", "a2")]
        assert [result.warm for result in results] == [True, True]


@story
async def test_expected_load_time_learns_from_loads_for_requests() -> None:
    """The profile says 10.6 ms; two loads for requests took 1,194 and 142 ms: 668 ms from then on (EM-08)."""
    async with at_work(engine({"fp32": Cost(10, load_ms=10.6), "int8": Cost(5)}, 20)) as bench:
        known_ms: list[float] = []
        for load_ms in (1_194, 142, 10):
            bench.processor.costs[bench.build("fp32")].load_ms = load_ms
            await bench.infer()
            problem = bench.decisions.told[-1][1]["problem"]
            assert isinstance(problem, ResidencyProblem)
            known_ms.append(problem.by_name["t/app"].best.load_ns / 1e6)
            await bench.memory.unload(bench.build("fp32"))
    assert known_ms == [10.6, 1_194, 668]


@pytest.mark.parametrize("eviction", ["iws-bfe", "ws-bfe", "expected-utility"])
@story
async def test_application_that_left_for_the_peak_of_a_load_gets_its_smallest_variant_back(eviction: str) -> None:
    """EM-11: beside the load, which needs 23.1 of 24.5 MB, there is no room for 3.2 MB of the other one; beside the
    16.8 MB that stay there is, so the next request is warm.
    """
    async with at_work(EngineBench(24_500 * KB, workers=3, eviction=eviction), residency=True) as bench:
        bench.add({"fp32": Cost(12_600 * KB, 23_100 * KB), "int8": Cost(3_200 * KB, 4_300 * KB)}, name="a1")
        a4 = bench.add({"fp32": Cost(16_800 * KB, 23_100 * KB)}, name="a4")
        bench.core.residency.leave_out(a4.id)
        assert (await bench.infer(application="t/a1")).variant == "fp32"
        await bench.pause(20_000)
        bench.core.residency.take_in(a4.id)
        await bench.availability.load(a4, "fp32")
        assert bench.memory.resident_set() == [bench.build("fp32", "t/a4")]
        await bench.pause(2_000)
        assert bench.memory.used_bytes == 20_000 * KB
        result = await bench.infer(application="t/a1")
        assert (result.warm, result.variant) == (True, "int8")
