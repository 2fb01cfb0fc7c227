"""The way of a request: one answer each, in time or not at all, and nothing left behind."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import numpy as np
import pytest

from appliance.domain.catalogue import Application, Quota, StateSpec, TaskSpec, Tenant, TensorSpec
from appliance.domain.errors import (
    BadTensor,
    DeadlineExceeded,
    IllegalState,
    LoadFailed,
    ModelUnavailable,
    OutOfMemory,
    QueueFull,
    QuotaExceeded,
    RunFailed,
    ShuttingDown,
    UnknownTenant,
    UnknownVariant,
)
from appliance.domain.request import Tensors
from tests.fakes.clock import run_virtual, settle
from tests.fakes.engine import EngineBench, X
from tests.fakes.processor import Cost


def story(body: Callable[[], Coroutine[None, None, None]]) -> Callable[[], None]:
    """Run an async test in virtual time."""

    def test() -> None:
        run_virtual(body)

    test.__name__ = body.__name__
    test.__doc__ = body.__doc__
    return test


def ms(ns: int) -> float:
    return round(ns / 1e6, 3)


async def pause(bench: EngineBench, milliseconds: float) -> None:
    await bench.clock.sleep_until_ns(bench.clock.now_ns() + int(milliseconds * 1e6))


# -- the way -----------------------------------------------------------------------------------------------------------


@story
async def test_cold_then_warm() -> None:
    """The first answer pays for the load, the second does not; both say where the time went."""
    bench = EngineBench()
    bench.add({"v": Cost(load_ms=100, run_ms=10)})
    async with bench.working():
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
    bench.assert_quiet()


@story
async def test_waiting_is_counted_as_queue() -> None:
    """One worker, three requests: each waits for the ones before it."""
    bench = EngineBench()
    bench.add({"v": Cost(load_ms=0, run_ms=10)})
    async with bench.working():
        results = await asyncio.gather(*(bench.infer() for _ in range(3)))
    assert [ms(r.queue_ns) for r in results] == [0, 10, 20]


@story
async def test_workers_run_side_by_side() -> None:
    """Three workers, three requests: nobody waits."""
    bench = EngineBench(workers=3)
    bench.add({"v": Cost(load_ms=0, run_ms=10)})
    async with bench.working():
        results = await asyncio.gather(*(bench.infer() for _ in range(3)))
    assert [ms(r.queue_ns) for r in results] == [0, 0, 0]
    assert [w["runs"] for w in bench.engine.status()["workers"]] == [1, 1, 1]


@story
async def test_urgent_first() -> None:
    """Priority goes before the deadline, the deadline before arrival."""
    bench = EngineBench()
    bench.add({"v": Cost(load_ms=0, run_ms=10)})
    async with bench.working():
        first = asyncio.create_task(bench.infer(0))
        await pause(bench, 1)
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
async def test_requested_outputs_only() -> None:
    """Only what was asked for is computed and returned; an unknown output is refused."""
    bench = EngineBench(model=lambda inputs: {"y": inputs["x"], "z": -inputs["x"]})
    bench.add({"v": Cost()}, outputs=[TensorSpec("y", "FP32", (-1,)), TensorSpec("z", "FP32", (-1,))])
    async with bench.working():
        assert set((await bench.infer(outputs=["z"])).outputs) == {"z"}
        with pytest.raises(BadTensor, match="no output 'q'"):
            await bench.infer(outputs=["q"])


# -- which variant -----------------------------------------------------------------------------------------------------


@story
async def test_resident_variant_answers_before_a_better_cold_one() -> None:
    """A request that names no variant takes the best one in memory, and loads the best one if none is."""
    bench = EngineBench()
    app = bench.add({"best": Cost(), "small": Cost()})
    async with bench.working():
        await bench.engine.load(app, "small")
        assert bench.engine.preferred(app, None).variant.name == "small"
        assert (await bench.infer()).variant == "small"
        assert (await bench.infer(variant="best")).variant == "best"
        assert (await bench.infer()).variant == "best"


@story
async def test_warm_means_some_variant_is_there() -> None:
    """A named cold variant is a warm start all the same when another one of the application is resident (EM-02)."""
    bench = EngineBench()
    app = bench.add({"best": Cost(), "small": Cost()})
    async with bench.working():
        await bench.engine.load(app, "small")
        result = await bench.infer(variant="best")
    assert result.warm
    assert result.load_ns > 0


@story
async def test_smaller_variant_when_memory_is_out() -> None:
    """The best one does not fit: the next one answers."""
    bench = EngineBench(budget=20)
    bench.add({"best": Cost(30), "small": Cost(10)})
    async with bench.working():
        assert (await bench.infer()).variant == "small"


@story
async def test_smaller_variant_when_memory_is_held() -> None:
    """The best one would fit, but what is in the way stays in use: the next one answers."""
    bench = EngineBench(budget=30, workers=2, wait_ms_max=50)
    bench.add({"v": Cost(10, load_ms=0, run_ms=1000)}, name="other")
    bench.add({"best": Cost(30), "small": Cost(10)})
    async with bench.working():
        other = asyncio.create_task(bench.infer(application="t/other"))
        await pause(bench, 1)
        assert (await bench.infer()).variant == "small"
        await other


@story
async def test_next_variant_when_a_load_fails() -> None:
    """A damaged file costs its variant, not the request; when all fail, the caller hears why."""
    bench = EngineBench()
    bench.add({"best": Cost(), "small": Cost()})
    bench.source.missing.add(bench.build("best"))
    async with bench.working():
        assert (await bench.infer()).variant == "small"
        bench.source.missing.add(bench.build("small"))
        await bench.memory.unload(bench.build("small"))
        with pytest.raises(LoadFailed):
            await bench.infer()
    bench.assert_quiet()


@story
async def test_named_variant_has_no_substitute() -> None:
    """Who names a variant gets it or the reason."""
    bench = EngineBench(budget=20)
    bench.add({"best": Cost(30), "small": Cost(10)})
    async with bench.working():
        with pytest.raises(OutOfMemory):
            await bench.infer(variant="best")
        with pytest.raises(UnknownVariant):
            await bench.infer(variant="other")


@story
async def test_variant_that_takes_these_tensors() -> None:
    """Of two variants the one whose inputs fit answers; when none does, the first says what is wrong."""
    bench = EngineBench()
    bench.add({"a": Cost()}, name="fixed", inputs=[TensorSpec("x", "FP32", (2,))])
    bench.add({"b": Cost()})
    async with bench.working():
        with pytest.raises(BadTensor, match="'x' has shape"):
            await bench.infer(application="t/fixed")
        assert (await bench.infer()).variant == "b"


# -- refusals ----------------------------------------------------------------------------------------------------------


@story
async def test_unknown_things() -> None:
    """An application without a model, a tenant that has gone."""
    bench = EngineBench()
    bench.add({"v": Cost()})
    bench.catalogue.put_application(Application("t/empty", "t", "empty", "t/none"))
    with pytest.raises(ModelUnavailable):
        await bench.infer(application="t/empty")
    with pytest.raises(UnknownTenant):
        await bench.infer(tenant="gone")
    bench.assert_quiet()


@story
async def test_bad_tensors_cost_no_load() -> None:
    """Wrong name, type, rank or size is refused before anything is loaded."""
    bench = EngineBench()
    bench.add({"v": Cost()})
    ones: dict[str, Tensors] = {
        "no input 'q'": {"q": np.ones(1, np.float32)},
        "'x' is float64": {"x": np.ones(1)},
        "has shape": {"x": np.ones((1, 1), np.float32)},
        "missing input x": {},
    }
    for words, inputs in ones.items():
        with pytest.raises(BadTensor, match=words):
            await bench.infer(inputs=inputs)
    assert not bench.processor.loads
    bench.assert_quiet()


@story
async def test_full_queue_refuses() -> None:
    """More than may wait get QueueFull at once; when the queue has moved on there is room again."""
    bench = EngineBench(queue_len=2)
    bench.add({"v": Cost(load_ms=0, run_ms=10)})
    async with bench.working():
        await bench.infer()
        running = [asyncio.create_task(bench.infer())]
        await settle()  # it runs: only the next two wait
        running += [asyncio.create_task(bench.infer()) for _ in range(2)]
        await settle()
        with pytest.raises(QueueFull):
            await bench.infer()
        await asyncio.gather(*running)
        await bench.infer()
    assert bench.telemetry.of_application("t/app")[""].outcomes == {"rejected": 1}
    bench.assert_quiet()


@story
async def test_quota_of_concurrent_requests() -> None:
    """The third at once is refused; after an answer, failed or not, the next may come."""
    bench = EngineBench()
    bench.add({"v": Cost()}, quota=Quota(concurrent_requests=2))
    async with bench.working():
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


@story
async def test_failed_run_is_the_callers_alone() -> None:
    """The runtime's refusal reaches its caller; the worker goes on."""

    def model(inputs: Tensors) -> dict[str, Any]:
        if inputs["x"][0] < 0:
            raise RunFailed(variant_id="v", reason="negative")
        return {"y": inputs["x"]}

    bench = EngineBench(model=model)
    bench.add({"v": Cost()})
    async with bench.working():
        answers = await asyncio.gather(*(bench.infer(x) for x in (1, -1, 2)), return_exceptions=True)
    assert [type(a).__name__ for a in answers] == ["Result", "RunFailed", "Result"]
    bench.assert_quiet()


@story
async def test_any_exception_of_a_run_is_an_answer() -> None:
    """Even a fault that nobody foresaw reaches the caller, is counted, and leaves the worker alive."""

    def model(inputs: Tensors) -> dict[str, Any]:
        raise KeyError("odd")

    bench = EngineBench(model=model)
    bench.add({"v": Cost()})
    async with bench.working():
        for _ in range(2):
            with pytest.raises(KeyError):
                await bench.infer()
    assert bench.telemetry.of_application("t/app")[""].outcomes == {"failed": 2}
    bench.assert_quiet()


@story
async def test_made_up_variants_make_no_statistics() -> None:
    """A caller cannot grow the process by asking for versions that do not exist."""
    bench = EngineBench()
    bench.add({"v": Cost()})
    for i in range(50):
        with pytest.raises(UnknownVariant):
            await bench.infer(variant=f"v{i}")
    assert list(bench.telemetry.statistics) == [("t/app", "", "t")]


# -- deadlines ---------------------------------------------------------------------------------------------------------


@story
async def test_late_work_is_not_run() -> None:
    """Behind a long run two requests become late: they are told so and never cost the processor anything."""
    bench = EngineBench()
    bench.add({"v": Cost(load_ms=0, run_ms=100)})
    async with bench.working():
        first = asyncio.create_task(bench.infer(0))
        await pause(bench, 1)
        answers = await asyncio.gather(
            bench.infer(1, within_ms=150), bench.infer(2, within_ms=50), return_exceptions=True
        )
        await first
    assert [type(a) for a in answers] == [DeadlineExceeded, DeadlineExceeded]  # 150 would end at 200
    assert len(bench.processor.ran) == 1
    assert bench.telemetry.of_application("t/app")[""].outcomes == {"expired": 2}
    bench.assert_quiet()


@story
async def test_deadline_comes_from_the_slo() -> None:
    """Without a deadline of its own a request has its application's SLO; with one, its own counts."""
    bench = EngineBench()
    bench.add({"v": Cost(load_ms=0, run_ms=40)}, slo_ms=50)
    async with bench.working():
        answers = await asyncio.gather(bench.infer(), bench.infer(), bench.infer(within_ms=500), return_exceptions=True)
    assert [type(a).__name__ for a in answers] == ["Result", "DeadlineExceeded", "Result"]


@story
async def test_deadline_during_the_load() -> None:
    """The load takes too long for this request; the next finds the build there."""
    bench = EngineBench()
    bench.add({"v": Cost(load_ms=100, run_ms=1)})
    async with bench.working():
        with pytest.raises(DeadlineExceeded):
            await bench.infer(within_ms=50)
        await pause(bench, 60)
        assert (await bench.infer()).warm
    bench.assert_quiet()


@story
async def test_default_timeout() -> None:
    """No deadline and no SLO: the box's own limit holds."""
    bench = EngineBench(timeout_ms=70)
    bench.add({"v": Cost(load_ms=0, run_ms=50)})
    async with bench.working():
        answers = await asyncio.gather(bench.infer(), bench.infer(), return_exceptions=True)
    assert [type(a).__name__ for a in answers] == ["Result", "DeadlineExceeded"]


# -- quick runs --------------------------------------------------------------------------------------------------------


def _positive(inputs: Tensors) -> dict[str, Any]:
    """A model that fails on negative numbers."""
    if inputs["x"][0] < 0:
        raise RunFailed(variant_id="v", reason="negative")
    return {"y": inputs["x"]}


@story
async def test_quick_run_waits_for_nobody() -> None:
    """A model of microseconds is computed at once although the only worker is busy for long."""
    bench = EngineBench(workers=1, quick_ms_max=0.25)
    bench.add({"v": Cost(load_ms=0, run_ms=1000)}, name="slow")
    bench.add({"v": Cost(load_ms=0, run_ms=0.1)})
    async with bench.working():
        slow = asyncio.create_task(bench.infer(application="t/slow"))
        await settle()
        result = await bench.infer(3)
        assert (result.outputs["y"].tolist(), ms(result.queue_ns), ms(result.compute_ns)) == ([6], 0, 0.1)
        assert not slow.done()
        await slow
    bench.assert_quiet()


@story
async def test_quick_runs_that_surprise_take_a_worker_from_then_on() -> None:
    """Three in a row took a hundred times as long as the profile said: the next no longer holds everybody up. One alone is a hiccup."""
    bench = EngineBench(quick_ms_max=0.25)
    bench.add({"v": Cost(load_ms=0, run_ms=0.1)})
    cost = bench.processor.costs[bench.build("v")]
    async with bench.working():
        for cost.run_ms in (10, 10, 0.1, 10, 10, 10):
            await bench.infer()
            assert [w["runs"] for w in bench.engine.status()["workers"]] == [0]
        await bench.infer()
        assert [w["runs"] for w in bench.engine.status()["workers"]] == [1]


@story
async def test_late_quick_run_is_dropped() -> None:
    """Quick or not: after its deadline nothing is run."""
    bench = EngineBench(quick_ms_max=0.25)
    bench.add({"v": Cost(load_ms=0, run_ms=0.1)})
    async with bench.working():
        await bench.infer()
        with pytest.raises(DeadlineExceeded):
            await bench.infer(within_ms=0.05)
    assert len(bench.processor.ran) == 1


@story
async def test_quick_run_that_fails() -> None:
    """The error is the caller's; the next one is served."""
    bench = EngineBench(quick_ms_max=0.25, model=_positive)
    bench.add({"v": Cost(load_ms=0, run_ms=0.1)})
    async with bench.working():
        with pytest.raises(RunFailed):
            await bench.infer(-1)
        await bench.infer(2)
    bench.assert_quiet()


# -- answered on the calling thread ------------------------------------------------------------------------------------


@story
async def test_at_once_is_the_same_answer() -> None:
    """What `infer` says of a quick request, said without waiting: outputs, times, figures."""
    bench = EngineBench(quick_ms_max=0.25)
    application = bench.add({"v": Cost(load_ms=0, run_ms=0.1)}, slo_ms=100)
    async with bench.working():
        await bench.infer(1)
        waited = await bench.infer(3)
        at_once = bench.engine.infer_at_once(bench.request(3))
    assert bench.engine.is_quick(application)
    assert at_once is not None
    assert at_once.outputs["y"].tolist() == waited.outputs["y"].tolist() == [6]
    assert (at_once.variant_id, at_once.warm, at_once.compute_ns) == (waited.variant_id, True, waited.compute_ns)
    assert bench.telemetry.statistics["t/app", "v", "t"].outcomes == {"done": 3}
    bench.assert_quiet()


@story
async def test_at_once_leaves_the_rest_alone() -> None:
    """Cold, slow, late, with a state, refused, misfit, unknown or unloaded: no answer, and nothing has happened."""
    bench = EngineBench(quick_ms_max=0.25)
    quick = bench.add({"v": Cost(load_ms=0, run_ms=0.1)}, quota=Quota(requests_per_s=2))
    slow = bench.add({"v": Cost(load_ms=0, run_ms=10)}, name="slow", quota=Quota(requests_per_s=2))
    state = TaskSpec(state=(StateSpec("x", "y", (-1,)),))
    bench.add({"v": Cost(load_ms=0, run_ms=0.1)}, name="state", task=state, quota=Quota(requests_per_s=2))
    at_once = bench.engine.infer_at_once
    async with bench.working():
        assert at_once(bench.request()) is None  # cold
        await bench.infer()
        await bench.infer(application="t/slow")
        await pause(bench, 10_000)  # the quota's bucket is full again: two tokens
        assert at_once(bench.request(application="t/slow")) is None
        assert at_once(bench.request(application="t/state")) is None
        assert at_once(bench.request(within_ms=0.05)) is None
        assert at_once(bench.request(variant="none")) is None
        misfit = bench.request()
        misfit.inputs = {"z": np.ones(1, np.float32)}
        assert at_once(misfit) is None
        assert at_once(bench.request()) is not None  # none of them took a token
        assert at_once(bench.request()) is not None
        assert at_once(bench.request()) is None  # over the quota: `infer` says so
        with pytest.raises(QuotaExceeded):
            await bench.infer()
        await pause(bench, 10_000)
        await bench.engine.unload(quick)
        assert at_once(bench.request()) is None
    assert (bench.engine.is_quick(quick), bench.engine.is_quick(slow)) == (True, False)
    assert bench.telemetry.statistics["t/app", "v", "t"].outcomes == {"done": 3}
    bench.assert_quiet()


@story
async def test_at_once_that_fails() -> None:
    """The error is the caller's, counted once; the build is released."""
    bench = EngineBench(quick_ms_max=0.25, model=_positive)
    bench.add({"v": Cost(load_ms=0, run_ms=0.1)})
    async with bench.working():
        await bench.infer(1)
        with pytest.raises(RunFailed):
            bench.engine.infer_at_once(bench.request(-1))
    assert bench.telemetry.statistics["t/app", "", "t"].outcomes == {"failed": 1}
    bench.assert_quiet()


# -- callers that go away ----------------------------------------------------------------------------------------------


@story
async def test_cancel_at_any_moment_leaves_nothing() -> None:
    """While it loads, waits or runs: no pin, no count and no place in the queue stays behind."""
    for moment_ms in (0.0, 50.0, 99.9, 100.5, 105.0, 109.9, 110.0, 115.0):
        bench = EngineBench()
        bench.add({"v": Cost(load_ms=100, run_ms=10)}, quota=Quota(concurrent_requests=2))
        async with bench.working():
            tasks = [asyncio.create_task(bench.infer(x)) for x in (1, 2)]
            await pause(bench, moment_ms)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await pause(bench, 200)
            bench.assert_quiet()
            await asyncio.gather(bench.infer(), bench.infer())
            bench.assert_quiet()


@story
async def test_build_stays_pinned_under_an_abandoned_run() -> None:
    """The caller is gone, the run is not: its build cannot be evicted until it ends."""
    bench = EngineBench(budget=10, workers=2)
    bench.add({"v": Cost(10, load_ms=0, run_ms=100)}, name="one")
    bench.add({"v": Cost(10, load_ms=0, run_ms=1)}, name="two")
    async with bench.working():
        gone = asyncio.create_task(bench.infer(application="t/one"))
        await pause(bench, 10)
        gone.cancel()
        start_ns = bench.clock.now_ns()
        await bench.infer(application="t/two")
    assert ms(bench.clock.now_ns() - start_ns) >= 90
    bench.assert_quiet()


# -- commands ----------------------------------------------------------------------------------------------------------


@story
async def test_unload_then_load() -> None:
    """Unloaded explicitly: unavailable and out of memory, until it is loaded again."""
    bench = EngineBench()
    app = bench.add({"v": Cost()})
    async with bench.working():
        await bench.infer()
        await bench.engine.unload(app)
        assert bench.processor.memory == {}
        assert not bench.engine.is_available(app)
        with pytest.raises(ModelUnavailable):
            await bench.infer()
        with pytest.raises(ModelUnavailable):
            bench.engine.preferred(app, None)
        await bench.engine.load(app)
        assert bench.engine.is_available(app)
        assert (await bench.infer()).warm
    bench.assert_quiet()


@story
async def test_unload_waits_for_running_requests() -> None:
    """Those under way are answered, those after are refused."""
    bench = EngineBench()
    app = bench.add({"v": Cost(load_ms=50, run_ms=50)})
    async with bench.working():
        running = asyncio.create_task(bench.infer(3))
        await settle()
        unloading = asyncio.create_task(bench.engine.unload(app))
        await settle()
        with pytest.raises(ModelUnavailable):
            await bench.infer()
        assert (await running).outputs["y"].tolist() == [6]
        await unloading
    assert bench.processor.memory == {}


@story
async def test_unload_leaves_what_others_use() -> None:
    """Two applications of one model: the build stays until the second is unloaded too, whoever is running."""
    bench = EngineBench()
    app = bench.add({"v": Cost(load_ms=0, run_ms=100)})
    other = Application("t/other", "t", "other", app.model_id)
    bench.catalogue.put_application(other)
    async with bench.working():
        running = asyncio.create_task(bench.infer(application="t/other"))
        await settle()
        await bench.engine.unload(app)
        assert not running.done()
        assert len(bench.processor.memory) == 1
        await running
        await bench.engine.unload(other)
    assert bench.processor.memory == {}


@story
async def test_load_ends_a_waiting_unload() -> None:
    """Unload waits for a long request; a load meanwhile wins, and the model stays in service."""
    bench = EngineBench()
    app = bench.add({"v": Cost(load_ms=0, run_ms=1000)})
    async with bench.working():
        running = asyncio.create_task(bench.infer())
        await settle()
        unloading = asyncio.create_task(bench.engine.unload(app))
        await settle()
        await bench.engine.load(app)
        await unloading
        assert not running.done()
        await running
        assert (await bench.infer()).warm


@story
async def test_retired_model_leaves_after_its_last_request() -> None:
    """Deleting waits for running requests, then the memory is free; a build that another model shares stays."""
    bench = EngineBench()
    app = bench.add({"v": Cost(load_ms=0, run_ms=100)})
    bench.add({"w": Cost(load_ms=0)}, name="keep")
    async with bench.working():
        await bench.infer(application="t/keep")
        running = asyncio.create_task(bench.infer(4))
        await settle()
        bench.catalogue.remove_application(app.id)
        bench.catalogue.remove_model(app.model_id)
        retiring = asyncio.create_task(bench.engine.retire_model(app.model_id))
        await settle()
        assert not retiring.done()
        with pytest.raises(ModelUnavailable):
            await bench.infer()
        assert (await running).outputs["y"].tolist() == [8]
        await retiring
    assert set(bench.processor.memory) == {bench.build("w", "t/keep")}
    assert [b["build"] for b in bench.memory.snapshot()["builds"]] == [bench.build("w", "t/keep")]


@story
async def test_retiring_a_model_ends_its_load() -> None:
    """A build that is still being loaded when its model goes does not stay behind."""
    bench = EngineBench()
    app = bench.add({"v": Cost(load_ms=100)})
    warm_up = asyncio.create_task(bench.engine.prefetch([bench.build("v")]))
    await settle()
    bench.catalogue.remove_application(app.id)
    bench.catalogue.remove_model(app.model_id)
    await bench.engine.retire_model(app.model_id)
    await warm_up
    assert bench.processor.memory == {}


@story
async def test_new_application_of_an_old_name_is_available() -> None:
    """An explicit unload ends with its application, and so do its figures and sequences."""
    bench = EngineBench()
    app = bench.add({"v": Cost()})
    await bench.engine.unload(app)
    bench.telemetry.failed((app.id, "v", "t"), "failed")
    bench.sequences.open((app.id, "t/s"), start=True)
    bench.catalogue.remove_application(app.id)
    bench.engine.forget_application(app.id)
    bench.catalogue.put_application(app)
    assert bench.engine.is_available(app)
    assert bench.telemetry.of_application(app.id) == {}
    assert len(bench.sequences) == 0


@story
async def test_prefetch_fills_without_evicting() -> None:
    """In the given order as far as memory goes; unknown and broken builds are passed over."""
    bench = EngineBench(budget=25)
    for name, size in {"a": 10, "b": 10, "c": 10, "d": 5}.items():
        bench.add({"v": Cost(size)}, name=name)
    bench.source.missing.add(bench.build("v", "t/a"))
    builds = [bench.build("v", f"t/{name}") for name in "abcd"]
    await bench.engine.prefetch(["unknown", *builds])
    assert sorted(bench.memory.resident_set()) == sorted([builds[1], builds[2], builds[3]])
    assert bench.memory.evictions == 0
    bench.assert_quiet()


@story
async def test_drain_answers_those_inside() -> None:
    """What is under way is finished, what comes later is refused."""
    bench = EngineBench()
    bench.add({"v": Cost(load_ms=50, run_ms=50)})
    async with bench.working():
        inside = [asyncio.create_task(bench.infer(x)) for x in (1, 2)]
        await settle()
        await bench.engine.drain(10)
        with pytest.raises(ShuttingDown):
            await bench.infer()
        assert [r.outputs["y"].item() for r in await asyncio.gather(*inside)] == [2, 4]
    assert bench.engine.status()["draining"]


@story
async def test_drain_that_runs_out_of_time() -> None:
    """After the time allowed, those that wait are told, and the one that runs when its worker is stopped: nobody hangs."""
    bench = EngineBench()
    bench.add({"v": Cost(load_ms=0, run_ms=10_000)})
    async with bench.working():
        inside = [asyncio.create_task(bench.infer(x)) for x in (1, 2, 3)]
        await settle()
        start_ns = bench.clock.now_ns()
        await bench.engine.drain(0.5)
        assert ms(bench.clock.now_ns() - start_ns) == pytest.approx(500, abs=1)
    answers = await asyncio.gather(*inside, return_exceptions=True)
    assert [type(a) for a in answers] == [ShuttingDown] * 3
    bench.assert_quiet()


@story
async def test_availability_of_an_application_without_variants() -> None:
    """Before the first variant is servable there is nothing to load or prefer."""
    bench = EngineBench()
    app = bench.add({})
    nobody = Application("t/none", "t", "none", "t/none")
    assert not bench.engine.is_available(app)
    assert not bench.engine.is_available(nobody)
    for call in (bench.engine.load(app), bench.infer()):
        with pytest.raises(ModelUnavailable):
            await call


# -- sequences ---------------------------------------------------------------------------------------------------------

SUMMING = TaskSpec(state=(StateSpec("state", "state_out", (-1,)),))


def summing(inputs: Tensors) -> dict[str, Any]:
    """`y` = everything that this sequence has been sent so far."""
    total = inputs["state"] + inputs["x"]
    return {"y": total, "state_out": total}


def summing_bench(workers: int = 1) -> EngineBench:
    bench = EngineBench(workers=workers, model=summing)
    bench.add(
        {"v": Cost(load_ms=0, run_ms=10)},
        task=SUMMING,
        inputs=[*X, TensorSpec("state", "FP32", (-1,))],
        outputs=[TensorSpec("y", "FP32", (-1,)), TensorSpec("state_out", "FP32", (-1,))],
        shared=True,
    )
    return bench


def y_of(result: Any) -> float:
    return float(result.outputs["y"][0])


@story
async def test_sequence_carries_its_state() -> None:
    """Each answer builds on the one before; at the end it is forgotten."""
    bench = summing_bench()
    async with bench.working():
        assert y_of(await bench.infer(1, sequence_id="s", sequence_start=True)) == 1
        assert y_of(await bench.infer(2, sequence_id="s")) == 3
        assert y_of(await bench.infer(3, sequence_id="s", sequence_end=True)) == 6
        assert bench.engine.status()["sequences"] == 0
        with pytest.raises(IllegalState):
            await bench.infer(1, sequence_id="s")
        assert y_of(await bench.infer(1, sequence_id="s", sequence_start=True)) == 1


@story
async def test_without_a_sequence_nothing_is_remembered() -> None:
    """The model starts from zeros each time."""
    bench = summing_bench()
    async with bench.working():
        assert [y_of(await bench.infer(2)) for _ in range(3)] == [2, 2, 2]
    assert bench.engine.status()["sequences"] == 0


@story
async def test_sequences_are_not_mixed() -> None:
    """Many sequences at once over several workers, equal ids of two tenants among them: each adds up its own only, in order."""
    bench = summing_bench(workers=3)
    bench.catalogue.put_tenant(Tenant("u"))

    async def sequence(tenant: str, name: str, values: list[int]) -> list[float]:
        first = asyncio.create_task(bench.infer(values[0], sequence_id=name, sequence_start=True, tenant=tenant))
        await settle()
        rest = [bench.infer(value, sequence_id=name, tenant=tenant) for value in values[1:]]
        return [y_of(r) for r in await asyncio.gather(first, *rest)]

    async with bench.working():
        sums = await asyncio.gather(
            sequence("t", "a", [1, 1, 1, 1]), sequence("u", "a", [10, 10, 10, 10]), sequence("t", "b", [5, 6, 7])
        )
    assert list(sums) == [[1, 2, 3, 4], [10, 20, 30, 40], [5, 11, 18]]


@story
async def test_failed_step_leaves_the_state() -> None:
    """A refused or late request of a sequence changes nothing for the next one."""
    bench = summing_bench()
    async with bench.working():
        await bench.infer(1, sequence_id="s", sequence_start=True)
        with pytest.raises(BadTensor):
            await bench.infer(sequence_id="s", inputs={"q": np.ones(1, np.float32)})
        with pytest.raises(DeadlineExceeded):
            await bench.infer(5, sequence_id="s", within_ms=1)
        assert y_of(await bench.infer(2, sequence_id="s")) == 3


@story
async def test_cancelled_step_frees_its_sequence() -> None:
    """The caller of one step goes away: the next step is not held up and builds on what was answered before."""
    bench = summing_bench()
    async with bench.working():
        await bench.infer(1, sequence_id="s", sequence_start=True)
        gone = asyncio.create_task(bench.infer(5, sequence_id="s"))
        await pause(bench, 5)
        gone.cancel()
        assert y_of(await bench.infer(2, sequence_id="s")) == 3
    bench.assert_quiet()


@story
async def test_state_sent_by_the_caller_wins() -> None:
    """A caller may keep the state itself."""
    bench = summing_bench()
    given = {"x": np.array([1], np.float32), "state": np.array([40], np.float32)}
    async with bench.working():
        assert y_of(await bench.infer(inputs=given)) == 41
        assert y_of(await bench.infer(inputs=given, sequence_id="s", sequence_start=True)) == 41
        assert y_of(await bench.infer(1, sequence_id="s")) == 42


@story
async def test_outputs_of_a_sequence() -> None:
    """The state travels even if the caller asks for another output; an unknown output is bad input."""
    bench = summing_bench()
    async with bench.working():
        result = await bench.infer(1, sequence_id="s", sequence_start=True, outputs=["y"])
        assert set(result.outputs) == {"y"}
        assert y_of(await bench.infer(1, sequence_id="s", outputs=["y"])) == 2
        with pytest.raises(BadTensor, match="no output 'q'"):
            await bench.infer(1, sequence_id="s", outputs=["q"])
        assert y_of(await bench.infer(1, sequence_id="s")) == 3


@story
async def test_constants_are_filled_in() -> None:
    """A scalar input with a fixed value needs no caller; a sequence id means nothing to a model without state."""
    bench = EngineBench(model=lambda inputs: {"y": inputs["x"] * inputs["rate"]})
    bench.add({"v": Cost()}, task=TaskSpec(constants={"rate": 16}), inputs=[*X, TensorSpec("rate", "INT64", ())])
    async with bench.working():
        assert y_of(await bench.infer(2)) == 32
        assert y_of(await bench.infer(2, sequence_id="s")) == 32
