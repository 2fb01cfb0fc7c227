"""The way of a request: one answer each, in time or not at all, and nothing left behind."""

import asyncio
from typing import Any

import numpy as np
import pytest

from appliance.domain.catalogue import Application, Quota, TensorSpec
from appliance.domain.errors import (
    BadTensor,
    DeadlineExceeded,
    ModelUnavailable,
    Overloaded,
    QueueFull,
    QuotaExceeded,
    RunFailed,
    ShuttingDown,
    UnknownTenant,
    UnknownVariant,
)
from appliance.domain.request import Result, Tensors
from tests.fakes.clock import ms, settle, story
from tests.fakes.engine import EngineBench
from tests.fakes.processor import Cost
from tests.runtime.at_work import at_work, engine, took_ms, warm

# -- the way -----------------------------------------------------------------------------------------------------------


@story
async def test_first_request_is_cold_and_the_next_is_warm() -> None:
    """The first answer pays for the load, the second does not; both say where the time went."""
    async with at_work(engine(Cost(load_ms=100, run_ms=10))) as bench:
        cold = await bench.infer(3)
        warm = await bench.infer(4)
    assert (cold.outputs["y"].tolist(), warm.outputs["y"].tolist()) == ([6], [8])
    assert (cold.variant_id, cold.variant) == ("t/app:v", "v")
    assert (cold.warm, ms(cold.load_ns), ms(cold.compute_ns), ms(cold.queue_ns)) == (False, 100, 10, 0)
    assert (warm.warm, ms(warm.load_ns), ms(warm.compute_ns), ms(warm.queue_ns)) == (True, 0, 10, 0)
    figures = bench.telemetry.statistics["t/app", "v", "t"]
    assert (figures.outcomes, figures.cold, figures.warm, figures.inferences) == ({"done": 2}, 1, 1, 2)
    assert {part: ms(figures.histograms[part].sum_ns) for part in ("queue", "load", "compute")} == {
        "queue": 0, "load": 100, "compute": 20,
    }  # fmt: skip


@story
async def test_waiting_request_whose_build_is_lost_has_it_loaded_again() -> None:
    """The build went with its process before the request's turn came: nothing of the request has run."""
    async with at_work(EngineBench()) as bench:
        bench.add({"v": Cost(load_ms=0, run_ms=100)}, name="busy")
        bench.add({"v": Cost(load_ms=20, run_ms=10)})
        await bench.infer()
        busy = asyncio.create_task(bench.infer(application="t/busy"))
        await bench.pause(10)
        waiting = [asyncio.create_task(bench.infer(x)) for x in (3, 4)]
        await bench.pause(10)
        bench.processor.lose(bench.build("v"))
        bench.memory.lost(bench.build("v"))
        results = await asyncio.gather(*waiting)
        await busy
    assert [result.outputs["y"].tolist() for result in results] == [[6], [8]]
    assert bench.processor.loads[bench.build("v")] == 2


@pytest.mark.parametrize(("workers", "queued_ms"), [(1, [0, 10, 20]), (3, [0, 0, 0])])
@story
async def test_time_behind_earlier_requests_is_counted_as_queue(workers: int, queued_ms: list[int]) -> None:
    """Each waits for those before it; beside as many workers none waits."""
    async with at_work(engine(Cost(load_ms=0, run_ms=10), workers=workers)) as bench:
        results = await asyncio.gather(*(bench.infer() for _ in range(3)))
    assert [ms(r.queue_ns) for r in results] == queued_ms
    assert [w["runs"] for w in bench.engine.status()["workers"]] == [3 // workers] * workers


@story
async def test_requests_run_by_priority_then_deadline_then_arrival() -> None:
    async with at_work(engine(Cost(load_ms=0, run_ms=10))) as bench:
        first = asyncio.create_task(bench.infer(0))
        await bench.pause(1)
        rest = [
            bench.infer(1),
            bench.infer(2, within_ms=5000),
            bench.infer(3, within_ms=1000),
            bench.infer(4, priority=1),
            bench.infer(5),
        ]
        await asyncio.gather(first, *rest)
    assert [run["x"].item() for run in bench.processor.ran] == [0, 4, 3, 2, 1, 5]


@story
async def test_requested_outputs_alone_are_computed_and_returned() -> None:
    """An unknown output is refused."""
    async with at_work(EngineBench(model=lambda inputs: {"y": inputs["x"], "z": -inputs["x"]})) as bench:
        bench.add({"v": Cost()}, outputs=[TensorSpec("y", "FP32", (-1,)), TensorSpec("z", "FP32", (-1,))])
        assert set((await bench.infer(outputs=["z"])).outputs) == {"z"}
        with pytest.raises(BadTensor, match="no output 'q'"):
            await bench.infer(outputs=["q"])


# -- refusals ----------------------------------------------------------------------------------------------------------


@story
async def test_request_for_a_missing_model_or_tenant_is_refused() -> None:
    """An application without a model, a tenant that has gone."""
    bench = engine(Cost())
    bench.catalogue.put_application(Application("t/empty", "t", "empty", "t/none"))
    with pytest.raises(ModelUnavailable):
        await bench.infer(application="t/empty")
    with pytest.raises(UnknownTenant):
        await bench.infer(tenant="gone")
    bench.assert_quiet()


@story
async def test_bad_tensors_are_refused_before_any_load() -> None:
    async with at_work(engine(Cost())) as bench:
        with pytest.raises(BadTensor, match="has shape"):
            await bench.infer(inputs={"x": np.ones((1, 1), np.float32)})
    assert not bench.processor.loads


@story
async def test_full_queue_refuses_requests_until_it_has_room() -> None:
    """Requests beyond its length get QueueFull at once; when the queue has moved on there is room again."""
    async with warm(engine(Cost(load_ms=0, run_ms=10), queue_len=2)) as bench:
        running = [asyncio.create_task(bench.infer())]
        await settle()  # it runs: only the next two wait
        running += [asyncio.create_task(bench.infer()) for _ in range(2)]
        await settle()
        with pytest.raises(QueueFull):
            await bench.infer()
        await asyncio.gather(*running)
        await bench.infer()
    assert bench.telemetry.of_application("t/app")[""].outcomes == {"rejected": 1}


@story
async def test_request_beyond_the_concurrency_quota_is_refused() -> None:
    """The third at once is refused; after an answer, failed or not, the next may come."""
    async with at_work(EngineBench()) as bench:
        bench.add({"v": Cost()}, quota=Quota(concurrent_requests=2))
        tasks = [asyncio.create_task(bench.infer(x)) for x in (1, 2)]
        await settle()
        with pytest.raises(QuotaExceeded):
            await bench.infer()
        await asyncio.gather(*tasks)
        for _ in range(5):
            with pytest.raises(BadTensor):
                await bench.infer(inputs={})
        await asyncio.gather(bench.infer(), bench.infer())
    assert bench.telemetry.of_application("t/app")[""].outcomes["rejected"] == 1


@pytest.mark.parametrize("facts", [{}, {"quick_ms_max": 0.25}], ids=["on a worker", "inline"])
@story
async def test_failed_run_is_reported_to_its_caller_alone(facts: dict[str, Any]) -> None:
    """The runtime's refusal or whatever else it raises: it is counted, and others are served."""

    def model(inputs: Tensors) -> dict[str, Any]:
        x = inputs["x"][0]
        if x < 0:
            raise RunFailed(variant_id="v", reason="negative") if x == -1 else KeyError("odd")
        return {"y": inputs["x"]}

    async with warm(engine(Cost(load_ms=0, run_ms=0.1), model=model, **facts)) as bench:
        answers = await asyncio.gather(*(bench.infer(x) for x in (1, -1, -2, 2)), return_exceptions=True)
    assert [type(a) for a in answers] == [Result, RunFailed, KeyError, Result]
    assert bench.telemetry.of_application("t/app")[""].outcomes == {"failed": 2}


@story
async def test_requests_for_unknown_variants_leave_no_statistics() -> None:
    """A caller cannot grow the process by asking for versions that do not exist."""
    bench = engine(Cost())
    for i in range(50):
        with pytest.raises(UnknownVariant):
            await bench.infer(variant=f"v{i}")
    assert list(bench.telemetry.statistics) == [("t/app", "", "t")]


# -- deadlines ---------------------------------------------------------------------------------------------------------


@story
async def test_late_request_is_refused_and_never_run() -> None:
    """Behind a run of unknown length one request becomes late, and the next is refused at once, for the one before it
    alone would make it late: both are refused and never cost the processor anything.
    """
    async with at_work(EngineBench()) as bench:
        application = bench.add({"v": Cost(load_ms=0, run_ms=100)})
        bench.add({"v": Cost(load_ms=0, run_ms=100)}, name="unknown", measured=False)
        await bench.availability.load(application)
        first = asyncio.create_task(bench.infer(0, "t/unknown"))
        await bench.pause(1)
        answers = await asyncio.gather(
            bench.infer(1, within_ms=150), bench.infer(2, within_ms=50), return_exceptions=True
        )
        await first
    assert [type(a) for a in answers] == [DeadlineExceeded, Overloaded]  # 150 would end at 200
    assert len(bench.processor.ran) == 1
    assert bench.telemetry.of_application("t/app")[""].outcomes == {"expired": 1, "rejected": 1}


@pytest.mark.parametrize(("timeout_ms", "slo_ms"), [(50, None), (60_000, 50)], ids=["the box's", "its application's"])
@story
async def test_request_without_a_deadline_has_the_default(timeout_ms: float, slo_ms: float | None) -> None:
    """A request with a deadline keeps its own."""
    bench = EngineBench(timeout_ms=timeout_ms)
    bench.add({"v": Cost(load_ms=0, run_ms=40)}, slo_ms=slo_ms)
    async with at_work(bench):
        answers = await asyncio.gather(bench.infer(), bench.infer(), bench.infer(within_ms=500), return_exceptions=True)
    assert [type(a) for a in answers] == [Result, Overloaded, Result]


@story
async def test_run_under_way_counts_in_the_expected_wait() -> None:
    """Behind a run that has 60 ms left a request of 100 ms would end after 160: with a deadline of 170 it is refused at
    once, for a tenth is kept back, and told to come again when as much as is missing has gone; with 180 it is served in
    time. Beside a free worker no request waits.
    """
    async with at_work(engine(Cost(load_ms=0, run_ms=100))) as bench:
        first = asyncio.create_task(bench.infer())
        await bench.pause(40)
        with pytest.raises(Overloaded) as refused:
            await bench.infer(within_ms=170)
        assert refused.value.expected_ms == pytest.approx(160)
        assert refused.value.retry_after_s == pytest.approx(0.007)
        served = await bench.infer(within_ms=180)
        assert ms(served.queue_ns) == 60
        await first
        assert (await bench.infer(within_ms=101)).queue_ns == 0
    async with at_work(engine(Cost(load_ms=0, run_ms=100), workers=2)) as two:
        first = asyncio.create_task(two.infer())
        await two.pause(1)
        assert (await two.infer(within_ms=101)).queue_ns == 0
        await first


# -- callers that go away ----------------------------------------------------------------------------------------------


@story
async def test_request_cancelled_at_any_moment_leaves_nothing_behind() -> None:
    """While it loads, waits or runs: no pin, no count and no place in the queue stays behind."""
    for moment_ms in (0.0, 50.0, 99.9, 100.5, 105.0, 109.9, 110.0, 115.0):
        async with at_work(EngineBench()) as bench:
            bench.add({"v": Cost(load_ms=100, run_ms=10)}, quota=Quota(concurrent_requests=2))
            tasks = [asyncio.create_task(bench.infer(x)) for x in (1, 2)]
            await bench.pause(moment_ms)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await bench.pause(200)
            bench.assert_quiet()
            await asyncio.gather(bench.infer(), bench.infer())
            bench.assert_quiet()


@story
async def test_build_stays_pinned_under_an_abandoned_run() -> None:
    """The caller is gone, the run is not: its build cannot be evicted until it ends."""
    async with at_work(EngineBench(budget=10, workers=2)) as bench:
        bench.add({"v": Cost(10, load_ms=0, run_ms=100)}, name="one")
        bench.add({"v": Cost(10, load_ms=0, run_ms=1)}, name="two")
        gone = asyncio.create_task(bench.infer(application="t/one"))
        await bench.pause(10)
        gone.cancel()
        start_ns = bench.clock.now_ns()
        await bench.infer(application="t/two")
    assert ms(bench.clock.now_ns() - start_ns) >= 90


# -- the end -----------------------------------------------------------------------------------------------------------


@story
async def test_drain_answers_admitted_requests_and_refuses_new_ones() -> None:
    async with at_work(engine(Cost(load_ms=50, run_ms=50))) as bench:
        inside = [asyncio.create_task(bench.infer(x)) for x in (1, 2)]
        await settle()
        await bench.engine.drain(10)
        with pytest.raises(ShuttingDown):
            await bench.infer()
        assert [r.outputs["y"].item() for r in await asyncio.gather(*inside)] == [2, 4]
    assert bench.engine.status()["draining"]


@story
async def test_drain_out_of_time_refuses_the_remaining_requests() -> None:
    """After the time allowed the waiting requests are refused, and the running one when its worker is stopped: no
    caller hangs.
    """
    async with at_work(engine(Cost(load_ms=0, run_ms=4_000))) as bench:
        inside = [asyncio.create_task(bench.infer(x)) for x in (1, 2, 3)]
        await settle()
        assert await took_ms(bench, bench.engine.drain(0.5)) == pytest.approx(500, abs=1)
    answers = await asyncio.gather(*inside, return_exceptions=True)
    assert [type(a) for a in answers] == [ShuttingDown] * 3
