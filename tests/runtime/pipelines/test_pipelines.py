"""The registry: what a definition becomes, and what letting a frame in begins."""

from dataclasses import replace

import pytest

from appliance.domain.errors import UnknownPipeline
from appliance.domain.pipeline import Ask, Pipeline
from appliance.runtime.pipelines.pipelines import Pipelines
from tests.fakes.clock import story
from tests.fakes.engine import EngineBench
from tests.fakes.processor import Cost
from tests.fakes.stages import FakeStages

SLEEPER = Cost(60, 60, load_ms=100, run_ms=10, asleep_bytes=5, sleep_ms=2, wake_ms=4)
FIRST = Ask(name="first", application_id="t/app")
GONE = Ask(name="gone", application_id="t/gone", after=("first",))
ONE = Pipeline("t/one", "t", "one", 100.0, (FIRST, GONE))


def registry(bench: EngineBench) -> Pipelines:
    stages = FakeStages(bench.clock, lambda stage, about: {})
    return Pipelines(
        clock=bench.clock, catalogue=bench.catalogue, engine=bench.engine, stages=stages, new_id=lambda: "c"
    )


@story
async def test_networks_of_a_frame_wake_while_the_body_is_read() -> None:
    """Every network of the pipeline, not only the first; an application that has gone is passed over, and absent
    networks stay absent.
    """
    bench = EngineBench(200)
    bench.add({"v": SLEEPER})
    bench.add({"w": SLEEPER}, name="second")
    second = Ask(name="second", application_id="t/second", after=("first",))
    async with bench.working():
        pipelines = registry(bench)
        pipelines.put(replace(ONE, stages=(FIRST, GONE, second)))
        await bench.infer()
        await bench.infer(application="t/second")
        for variant, application in (("v", "t/app"), ("w", "t/second")):
            bench.memory.release(bench.build(variant, application))
        await bench.pause(50)
        with pipelines.admitted(pipelines.get("t/one").pipeline, "t"):
            await bench.pause(5)
            assert bench.memory.is_resident(bench.build("v", "t/app"))
            assert bench.memory.is_resident(bench.build("w", "t/second"))
    assert bench.memory.wakes == 2


@story
async def test_stored_pipelines_of_deleted_applications_are_taken_at_start() -> None:
    """A change keeps the clients of a pipeline; a deleted pipeline is unknown."""
    bench = EngineBench(200)
    pipelines = registry(bench)
    pipelines.fill([ONE, replace(ONE, id="t/two", name="two"), replace(ONE, id="u/one", tenant="u")])
    assert [live.pipeline.id for live in pipelines.of_tenant("t")] == ["t/one", "t/two"]
    client = await pipelines.join("t/one", 5.0, "t")
    pipelines.put(replace(ONE, latency_slo_ms=50.0))
    assert list(pipelines.get("t/one").clients) == [client]
    assert pipelines.get("t/one").pipeline.latency_slo_ms == 50.0
    pipelines.remove("t/one")
    pipelines.remove("t/one")
    with pytest.raises(UnknownPipeline):
        pipelines.get("t/one")


@story
async def test_stage_replaced_under_the_same_name_has_new_figures() -> None:
    """Figures of stages that stay, stay; counters go on under the name."""
    bench = EngineBench(200)
    pipelines = registry(bench)
    live = pipelines.put(ONE)
    live.frames.sent = 10
    for figures in live.figures.values():
        figures.items, figures.errors, figures.variant = 40, 4, "int8"
    live = pipelines.put(replace(ONE, stages=(FIRST, replace(GONE, application_id="t/other"))))
    found = pipelines.status("t/one").stages
    assert (found["first"].items, found["first"].items_per_frame, found["first"].errors) == (40, 4.0, 4)
    assert (found["gone"].items, found["gone"].items_per_frame, found["gone"].errors) == (0, None, 0)
    assert found["gone"].variant is None
    live.frames.sent, live.figures["gone"].items = 15, 10
    assert pipelines.status("t/one").stages["gone"].items_per_frame == 2.0
    assert [live.figures[name].before.items for name in ("first", "gone")] == [0, 40]


def test_pipeline_put_unchanged_keeps_plan_and_figures() -> None:
    pipelines = registry(EngineBench(200))
    live = pipelines.put(ONE)
    assert pipelines.put(replace(ONE)) is live
    assert pipelines.put(replace(ONE, weight=2.0)) is not live
