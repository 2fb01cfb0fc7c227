"""What runs take corrects what is expected of them, and with it what is refused, dropped and computed on the loop."""

import asyncio
from contextlib import suppress
from typing import Any

import pytest

from appliance.clock import NS_PER_MS
from appliance.domain.catalogue import Quota, Tenant
from appliance.domain.errors import DeadlineExceeded, RunCrashed, RunFailed, RunStopped
from appliance.domain.request import Result, Tensors
from appliance.runtime.profiles.estimate import TRUSTED_NS
from tests.fakes.clock import settle, story
from tests.fakes.engine import EngineBench
from tests.fakes.processor import Cost
from tests.runtime.at_work import at_work, engine


def expected_ms(bench: EngineBench, running: int = 1, variant: str = "v") -> float:
    times = bench.catalogue.entry("t/app").servables[variant].times
    assert times is not None
    return times.usual.expected_ns(1, running, bench.clock.now_ns()) / NS_PER_MS


def counts(bench: EngineBench) -> dict[int, int]:
    """Runs that were learnt from, by how many were under way."""
    seen = bench.core.profiles.seen(bench.build("v"), "")
    return {row.concurrency: row.count for runs in seen for row in runs.latencies}


@story
async def test_slow_core_is_learnt_within_fifty_runs() -> None:
    """Half as quick as at import: the expected time is within a tenth of the truth; a request that cannot be in time
    then costs the processor nothing.
    """
    async with at_work(engine(Cost(load_ms=0, run_ms=20))) as bench:
        bench.processor.costs[bench.build("v")].run_ms = 40
        for _ in range(50):
            await bench.infer()
        assert expected_ms(bench) == pytest.approx(40, rel=0.1)
        before = len(bench.processor.ran)
        with pytest.raises(DeadlineExceeded):
            await bench.infer(within_ms=30)
        assert len(bench.processor.ran) == before
        assert bench.telemetry.recent()[-1].event == "run times drifted"


@story
async def test_core_that_is_quick_again_is_learnt_without_runs() -> None:
    """Requests that were refused because the processor was slow are served soon after it is quick again, although none
    of theirs has run meanwhile.
    """
    async with at_work(engine(Cost(load_ms=0, run_ms=20))) as bench:
        cost = bench.processor.costs[bench.build("v")]
        cost.run_ms = 40
        for _ in range(50):
            await bench.infer()
        cost.run_ms = 20
        served = 0
        for _ in range(int(2 * TRUSTED_NS / NS_PER_MS / 100)):
            await bench.pause(100)
            try:
                await bench.infer(within_ms=30)
                served += 1
            except DeadlineExceeded:
                pass
        assert served >= 0.4 * 2 * TRUSTED_NS / NS_PER_MS / 100


@story
async def test_slow_runs_of_a_caller_do_not_get_other_callers_refused() -> None:
    """What a run takes may depend on values. A caller that sends slow ones to a shared application now and then does
    not have the requests of others, whose runs are quick, refused as late for as long as that goes on.
    """
    bench = EngineBench(workers=2, wait_ms_max=60_000)
    bench.add({"v": Cost(load_ms=0, run_ms=10)}, shared=True)
    for name in ("slow", "quick"):
        bench.catalogue.put_tenant(Tenant(name, Quota()))
    cost = bench.processor.costs[bench.build("v")]

    async def ask_slow() -> asyncio.Task[Result]:
        cost.run_ms = 1000
        task = asyncio.create_task(bench.infer(tenant="slow"))
        await settle()
        cost.run_ms = 10
        return task

    async with at_work(bench):
        for _ in range(60):
            await (await ask_slow())
        served = 0
        for i in range(300):
            if i % 20 == 0:
                asking = await ask_slow()
            with suppress(DeadlineExceeded):
                await bench.infer(tenant="quick", within_ms=300)
                served += 1
            await bench.pause(200)
        await asking
    assert served >= 200


@pytest.mark.parametrize(
    ("facts", "run_ms", "under_way"), [({}, 20, 1), ({"quick_ms_max": 0.25}, 0.1, 0)], ids=["on a worker", "inline"]
)
@story
async def test_failed_runs_are_not_learnt_from(facts: dict[str, Any], run_ms: float, under_way: int) -> None:
    """Nor runs that crash or are stopped; of a run whose caller went away the time is known all the same."""
    raised: list[Exception] = []

    def model(inputs: Tensors) -> dict[str, float]:
        if raised:
            raise raised[0]
        return {"y": 1.0}

    async with at_work(engine(Cost(load_ms=0, run_ms=run_ms), model=model, **facts)) as bench:
        for kind in (RunFailed, RunCrashed, RunStopped):
            raised[:] = [kind(variant_id="v", reason="as told")]
            with pytest.raises(RunFailed):
                await bench.infer()
        assert counts(bench) == {}
        raised.clear()
        caller = asyncio.create_task(bench.infer())
        await bench.pause(5)
        caller.cancel()
        await bench.pause(30)
        assert counts(bench) == {under_way: 1}


@story
async def test_concurrent_runs_are_learnt_apart_from_single_runs() -> None:
    """Two runs under way are slower than one; a request that comes while one runs is expected to take what two take."""
    async with at_work(engine(Cost(load_ms=0, run_ms=20), workers=2)) as bench:
        cost = bench.processor.costs[bench.build("v")]
        for _ in range(30):
            cost.run_ms = 20
            await bench.infer()
            cost.run_ms = 30
            await asyncio.gather(*(bench.infer() for _ in range(4)))
        assert expected_ms(bench) == pytest.approx(20, rel=0.1)
        assert expected_ms(bench, running=2) == pytest.approx(30, rel=0.1)


@story
async def test_build_that_has_become_slow_leaves_the_event_loop() -> None:
    """A tenth of a millisecond at import, half of one now: runs on the loop show it, and take a worker from then on."""
    async with at_work(engine(Cost(load_ms=0, run_ms=0.1), quick_ms_max=0.25)) as bench:
        bench.processor.costs[bench.build("v")].run_ms = 0.5
        for _ in range(50):
            await bench.infer()
        found = counts(bench)
        assert 0 < found[0] < 20
        assert found[0] + found[1] == 50


@story
async def test_shared_run_is_learnt_as_one_batch_of_its_rows() -> None:
    """Four requests that wait and share a run: learnt as a run of four, once. Where such runs have become slow,
    requests hardly share any more: now and then it is tried again.
    """
    async with at_work(engine(Cost(load_ms=0, run_ms=10, run_ms_by_batch={2: 11, 4: 13}))) as bench:
        cost = bench.processor.costs[bench.build("v")]

        async def five() -> list[int]:
            """Rows of each run."""
            bench.processor.ran.clear()
            await asyncio.gather(*(bench.infer() for _ in range(5)))
            return [len(inputs["x"]) for inputs in bench.processor.ran]

        await bench.infer()
        assert await five() == [1, 4]
        (runs,) = bench.core.profiles.seen(bench.build("v"), "")
        assert {row.batch: row.count for row in runs.latencies} == {1: 2, 4: 1}
        cost.run_ms_by_batch = {2: 40, 3: 60, 4: 80, 5: 100}
        for _ in range(50):
            await five()
        later = [rows for _ in range(50) for rows in await five()]
        assert sum(rows for rows in later if rows > 1) < 0.1 * sum(later)
