"""Requests for builds that sleep: cold, told what waking took, and woken while their body is still being read."""

import pytest

from tests.fakes.clock import ms, settle, story
from tests.fakes.engine import EngineBench
from tests.fakes.processor import Cost
from tests.runtime.at_work import at_work, engine

SLEEPER = Cost(60, 60, load_ms=100, run_ms=10, asleep_bytes=5, sleep_ms=2, wake_ms=4)
EVICTIONS = ("expected-utility", "iws-bfe", "ws-bfe", "bfe", "lfe", "lru", "none")


async def asleep(bench: EngineBench, variant: str = "v", application: str = "t/app") -> None:
    """Let go of a build, and wait until it sleeps."""
    bench.memory.release(bench.build(variant, application))
    await bench.pause(50)
    assert bench.memory.is_asleep(bench.build(variant, application))


@story
async def test_request_that_wakes_a_build_is_cold_and_has_the_wake_time() -> None:
    """`load` is what loads take."""
    async with at_work(engine(SLEEPER, 100)) as bench:
        first = await bench.infer()
        await asleep(bench)
        woken = await bench.infer()
        warm = await bench.infer()
    assert [(r.warm, ms(r.load_ns), ms(r.wake_ns)) for r in (first, woken, warm)] == [
        (False, 100, 0),
        (False, 0, 4),
        (True, 0, 0),
    ]
    statistics = bench.telemetry.of_application("t/app")["v"]
    assert (statistics.cold, statistics.warm) == (2, 1)
    assert statistics.histograms["load"].sum_ns == 104_000_000


@pytest.mark.parametrize(("pause_ms", "rest_ms"), [(4, 0), (3, 1)])
@story
async def test_wake_begins_at_admission(pause_ms: int, rest_ms: int) -> None:
    """While the body is read: the request finds its build awake, or waits for the rest of the wake, and was cold all
    the same.
    """
    async with at_work(EngineBench(100)) as bench:
        application = bench.add({"v": SLEEPER})
        await bench.infer()
        await asleep(bench)
        began_cold = bench.engine.wake_ahead(application, None)
        assert began_cold
        await bench.pause(pause_ms)
        result = await bench.infer(began_cold=began_cold)
    assert (result.warm, ms(result.wake_ns), bench.memory.wakes) == (False, rest_ms, 1)


@story
async def test_request_heads_begin_one_wake_and_no_load() -> None:
    """An absent build is loaded when the request is there; a build in memory is left as it is. A head whose body never
    comes leaves nothing behind.
    """
    async with at_work(EngineBench(100)) as bench:
        application = bench.add({"v": SLEEPER})
        assert bench.engine.wake_ahead(application, None)
        await settle()
        assert bench.processor.memory == {}
        await bench.infer()
        assert not bench.engine.wake_ahead(application, None)
        assert bench.memory.wakes == 0
        await asleep(bench)
        for _ in range(5):
            bench.engine.wake_ahead(application, None)
            await settle()
        await bench.pause(10)
    assert bench.memory.wakes == 1


@story
async def test_victims_sleep_under_every_eviction_policy() -> None:
    """Two applications that do not fit together take turns by waking: each is loaded once."""
    for eviction in EVICTIONS:
        bench = EngineBench(70, eviction=eviction, wait_ms_max=200)
        for name in ("a", "b"):
            bench.add({"v": Cost(60, 60, load_ms=100, run_ms=10, asleep_bytes=5, wake_ms=4)}, name=name)
        async with at_work(bench):
            if eviction == "none":
                await bench.infer(application="t/a")
                continue
            for _ in range(3):
                for name in ("a", "b"):
                    await bench.infer(application=f"t/{name}")
                    await bench.pause(500)
        assert (bench.memory.loads, bench.memory.wakes) == (2, 4), eviction


@story
async def test_sleeping_build_with_a_coming_window_is_read_ahead_from_disk() -> None:
    """Predicted, asleep, and not in the page cache: its file is read twice as long before its window as that takes,
    once; a file that is in the page cache is not.
    """
    async with at_work(engine(SLEEPER, 100), residency=True) as bench:
        bench.add({"v": Cost(60)}, name="other")
        build = bench.build("v")
        for _ in range(9):
            start_ns = bench.clock.now_ns()
            await bench.infer()
            await bench.clock.sleep_until_ns(start_ns + 5_000_000_000)
        await bench.infer()
        bench.processor.disk_ms[build] = 300
        held = await bench.memory.pin(bench.build("v", "t/other"), 60, 60, None)  # or it would be woken at once
        assert bench.memory.is_asleep(build)
        await bench.pause(3500)
        assert bench.processor.read[build] == 0
        await bench.pause(1000)
        assert bench.processor.read[build] == 1
        bench.memory.unpin(held)
        await bench.infer()
        await bench.pause(100)
    assert bench.processor.read[build] == 1
