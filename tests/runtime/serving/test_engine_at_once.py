"""Quick runs take no worker, and where nothing stands in the way no task either; all else goes the long way."""

import asyncio
from typing import Any

import numpy as np
import pytest

from appliance.domain.catalogue import Quota, StateSpec, TaskSpec
from appliance.domain.errors import DeadlineExceeded, QuotaExceeded, RunFailed
from appliance.domain.request import Tensors
from tests.fakes.clock import ms, settle, story
from tests.fakes.engine import EngineBench
from tests.fakes.processor import Cost


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
        await bench.pause(10_000)  # the quota's bucket is full again: two tokens
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
        await bench.pause(10_000)
        await bench.availability.unload(quick)
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
