"""Quick runs are computed inline: they take no worker, and their requests no task."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import numpy as np
import pytest

from appliance.domain.catalogue import Quota, StateSpec, TaskSpec
from appliance.domain.errors import (
    ApplianceError,
    BadTensor,
    DeadlineExceeded,
    ModelUnavailable,
    QueueFull,
    QuotaExceeded,
    RunFailed,
    UnknownVariant,
)
from appliance.domain.request import Request, Result, Tensors
from appliance.runtime.serving.eager import Begun, begin
from tests.fakes.clock import ms, settle, story
from tests.fakes.engine import EngineBench
from tests.fakes.processor import Cost
from tests.runtime.at_work import at_work, engine


def _positive(inputs: Tensors) -> dict[str, Any]:
    """A model that fails on negative numbers."""
    if inputs["x"][0] < 0:
        raise RunFailed(variant_id="v", reason="negative")
    return {"y": inputs["x"]}


@story
async def test_quick_run_is_computed_inline_however_many_requests_wait() -> None:
    """At once, although the only worker is busy for long and the queue is full; its request knows when. After its
    deadline nothing is run, quick or not.
    """
    async with at_work(EngineBench(workers=1, quick_ms_max=0.25, queue_total=1)) as bench:
        bench.add({"v": Cost(load_ms=0, run_ms=1000)}, name="slow")
        bench.add({"v": Cost(load_ms=0, run_ms=0.1)})
        for name in ("slow", "app"):
            await bench.infer(application=f"t/{name}")
        with pytest.raises(DeadlineExceeded):
            await bench.infer(within_ms=0.05)
        assert len(bench.processor.ran) == 2
        slow = [asyncio.create_task(bench.infer(application="t/slow")) for _ in range(2)]
        await settle()
        with pytest.raises(QueueFull):
            await bench.infer(application="t/slow")
        request = bench.request(3)
        result = await bench.engine.infer(request)
        assert (result.outputs["y"].tolist(), ms(result.queue_ns), ms(result.compute_ns)) == ([6], 0, 0.1)
        assert request.started_ns == request.arrival_ns
        assert not any(task.done() for task in slow)
        await asyncio.gather(*slow)


@story
async def test_quick_runs_that_overrun_move_to_a_worker() -> None:
    """Three in a row took a hundred times as long as the profile said: the next does not block the event loop. A single
    overrun is a hiccup.
    """
    async with at_work(engine(Cost(load_ms=0, run_ms=0.1), quick_ms_max=0.25)) as bench:
        cost = bench.processor.costs[bench.build("v")]
        for cost.run_ms in (10, 10, 0.1, 10, 10, 10):
            await bench.infer()
            assert [w["runs"] for w in bench.engine.status()["workers"]] == [0]
        await bench.infer()
        assert [w["runs"] for w in bench.engine.status()["workers"]] == [1]


# -- alone -------------------------------------------------------------------------------------------------------------


def on_workers(bench: EngineBench) -> int:
    """How many runs took a worker."""
    return sum(worker["runs"] for worker in bench.engine.status()["workers"])


@story
async def test_lone_connection_has_its_runs_computed_inline() -> None:
    """One connection, and 4 ms of 5: no worker. No known connection, or 6 ms: a worker."""
    async with at_work(engine(Cost(load_ms=0, run_ms=4), quick_ms_max=0.25, alone_ms_max=5)) as bench:
        bench.add({"v": Cost(load_ms=0, run_ms=6)}, name="slow")
        for _ in range(3):
            result = await bench.infer(3, source=1)
            assert (result.outputs["y"].tolist(), ms(result.queue_ns), ms(result.compute_ns)) == ([6], 0, 4)
        assert on_workers(bench) == 0
        await bench.infer(application="t/slow", source=1)
        assert on_workers(bench) == 1
        await bench.infer()
        assert on_workers(bench) == 2


@story
async def test_connections_that_alternate_have_their_runs_on_workers() -> None:
    """Each finds nothing waiting and nothing running; on the event loop they would share one processor of two."""
    bench = engine(Cost(load_ms=0, run_ms=4), workers=2, quick_ms_max=0.25, alone_ms_max=5)

    async def ask(source: int, times: int) -> None:
        for _ in range(times):
            await bench.infer(source=source)
            await bench.pause(0.1)  # the way to the caller and back

    async with at_work(bench):
        await bench.infer(source=1)
        start_ns = bench.clock.now_ns()
        await asyncio.gather(ask(1, 10), ask(2, 10))
        assert on_workers(bench) >= 18  # the very first may have found itself alone
        assert ms(bench.clock.now_ns() - start_ns) <= 11 * 4.1
        before = on_workers(bench)
        await bench.pause(51)
        await bench.infer(source=2)
        assert on_workers(bench) == before
        await bench.infer(source=1)
        await bench.pause(51)
        await bench.infer(source=1)
        assert on_workers(bench) == before + 1


@story
async def test_connection_beside_a_run_or_an_incoming_body_is_not_alone() -> None:
    """The other request would wait for the event loop."""
    async with at_work(EngineBench(workers=2, quick_ms_max=0.25, alone_ms_max=5)) as bench:
        application = bench.add({"v": Cost(load_ms=0, run_ms=4)})
        bench.add({"v": Cost(load_ms=0, run_ms=1000)}, name="slow")
        slow = asyncio.create_task(bench.infer(application="t/slow"))
        await bench.pause(100)
        await bench.infer(source=1)
        assert on_workers(bench) == 1
        await slow
        await bench.pause(100)
        with bench.engine.announce(application, "t"):
            await bench.infer(source=1)
        assert on_workers(bench) == 3
        await bench.infer(source=1)
        assert on_workers(bench) == 3


@story
async def test_lone_connection_whose_runs_overrun_has_a_worker_for_a_while() -> None:
    """Three in a row above 20 ms, of runs of which a millisecond was expected. Half a minute later its runs may be
    inline again.
    """
    async with at_work(engine(Cost(load_ms=0, run_ms=1), quick_ms_max=0.25, alone_ms_max=5)) as bench:
        cost = bench.processor.costs[bench.build("v")]
        for cost.run_ms in (30, 30, 19, 30, 30, 30):
            await bench.infer(source=1)
            await settle()
            assert on_workers(bench) == 0
        await bench.infer(source=1)
        assert on_workers(bench) == 1
        cost.run_ms = 1
        await bench.pause(29_000)
        await bench.infer(source=1)
        assert on_workers(bench) == 2
        await bench.pause(1_000)
        await bench.infer(source=1)
        assert on_workers(bench) == 2


@story
async def test_lone_connection_is_answered_before_its_run_is_counted() -> None:
    """Its answer need not wait for that; no other request is read before. A failed run gives its memory back, too."""
    async with at_work(engine(Cost(load_ms=0, run_ms=4), quick_ms_max=0.25, alone_ms_max=5, model=_positive)) as bench:
        await bench.infer(source=1)
        await settle()
        before = bench.engine.run_totals()[0]
        await bench.infer(source=1)
        assert bench.engine.run_totals()[0] == before
        await settle()
        assert bench.engine.run_totals()[0] == before + 1
        assert bench.telemetry.statistics["t/app", "v", "t"].outcomes == {"done": 2}
        with pytest.raises(RunFailed):
            await bench.infer(-1, source=1)
        assert bench.memory.runs.running_bytes == 0


# -- without a task ----------------------------------------------------------------------------------------------------


@story
async def test_quick_request_is_answered_within_a_plain_call() -> None:
    """Its result is the one that a task would have got: outputs, times, figures."""
    async with at_work(EngineBench(quick_ms_max=0.25)) as bench:
        bench.add({"v": Cost(load_ms=0, run_ms=0.1)}, slo_ms=100)
        await bench.infer(1)
        waited = await bench.infer(3)
        begun = await without_task(bench.engine.infer(bench.request(3)))
        assert isinstance(begun, Result)
        assert begun.outputs["y"].tolist() == waited.outputs["y"].tolist() == [6]
        assert (begun.variant_id, begun.warm, begun.compute_ns) == (waited.variant_id, True, waited.compute_ns)
    assert bench.telemetry.statistics["t/app", "v", "t"].outcomes == {"done": 3}


@story
async def test_request_that_is_not_quick_goes_on_in_a_task() -> None:
    """Cold, slow or with a state: the plain call leaves something to await, and the answer is the same."""
    async with at_work(engine(Cost(load_ms=5, run_ms=0.1), quick_ms_max=0.25)) as bench:
        bench.add({"v": Cost(load_ms=0, run_ms=10)}, name="slow")
        state = TaskSpec(state=(StateSpec("x", "y", (-1,)),))
        bench.add({"v": Cost(load_ms=0, run_ms=0.1)}, name="state", task=state)
        await bench.infer(application="t/slow")
        for application in ("t/app", "t/slow", "t/state"):
            rest = await without_task(bench.engine.infer(bench.request(3, application)))
            assert isinstance(rest, Begun)
            assert (await rest).outputs["y"].tolist() == [6]


@story
async def test_request_checks_are_the_same_without_a_task() -> None:
    """Over the quota, unknown, misfit, unloaded, failed: refused where it stands, counted once, nothing held."""
    bench = EngineBench(quick_ms_max=0.25, model=_positive)
    application = bench.add({"v": Cost(load_ms=0, run_ms=0.1)}, quota=Quota(requests_per_s=3))
    await bench.infer()
    await bench.pause(10_000)  # the quota's bucket is full again: three tokens
    misfit = bench.request()
    misfit.inputs = {"z": np.ones(1, np.float32)}
    faults: list[tuple[Request, type[ApplianceError]]] = [
        (bench.request(variant="none"), UnknownVariant),
        (misfit, BadTensor),
        (bench.request(-1), RunFailed),
        (bench.request(), QuotaExceeded),
    ]
    for request, error in faults:
        with pytest.raises(error):
            await without_task(bench.engine.infer(request))
        bench.assert_quiet()
    await bench.pause(10_000)
    await bench.availability.unload(application)
    with pytest.raises(ModelUnavailable):
        await without_task(bench.engine.infer(bench.request()))
    assert bench.telemetry.statistics["t/app", "", "t"].outcomes == {"failed": 3, "rejected": 1}


@story
async def test_begun_request_that_is_cancelled_leaves_nothing_behind() -> None:
    """It is given up in its load or in its run, or before any task took it over: no pin, no count stays."""
    for load_ms, run_ms, pause_ms in ((100, 0.1, 50), (0, 100, 50), (100, 0.1, 0), (0, 100, 0)):
        async with at_work(engine(Cost(load_ms=load_ms, run_ms=run_ms), quick_ms_max=0.25)) as bench:
            rest = await without_task(bench.engine.infer(bench.request()))
            assert isinstance(rest, Begun)
            if pause_ms:
                task = asyncio.ensure_future(rest)
                await bench.pause(pause_ms)
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
            del rest
            await bench.pause(1000)


async def without_task(coroutine: Coroutine[Any, Any, Result]) -> Result | Begun[Result]:
    """`begin` as a callback of the loop calls it: where no task runs."""
    loop = asyncio.get_running_loop()
    begun: asyncio.Future[Result | Begun[Result]] = loop.create_future()

    def call() -> None:
        try:
            begun.set_result(begin(coroutine))
        except ApplianceError as error:
            begun.set_exception(error)

    loop.call_soon(call)
    return await begun
