"""What follows from plans, in virtual time: what is told and wished, old plans that hold, room that comes free."""

import asyncio

import pytest

from appliance.domain.pipeline import Ask
from tests.fakes.clock import story
from tests.fakes.processor import Cost
from tests.present import present
from tests.runtime.pipelines.bench import PlanningBench, find_and_read, planning_bench, replayed


@story
async def test_plan_with_fewer_frames_is_told_as_degraded() -> None:
    """Where a stage names its variant there is no cheaper variant, so that fewer frames are planned with: the decision
    says what the plan and the event say.
    """
    bench = find_and_read()
    named = [Ask(name="find", application_id="t/find", variant="fine")]
    async with bench.working():
        live = bench.add(stages=named)
        await bench.feed(live, 200, 2, 0)
        assert (present(live.plan).feasible, present(live.plan).degraded) == (True, True)
        assert present(live.plan).fps < 120
        assert {row.variant for row in present(live.plan).stages} == {"fine"}
        assert bench.decided()[-1]["outcome"] == "degraded"
        told = [one.facts["degraded"] for one in bench.box.telemetry.recent() if one.event == "pipeline planned"]
        assert told[-1] is True


@story
async def test_plan_whose_processor_has_gone_is_given_up() -> None:
    """The processor of a plan goes while no policy answers: the pipeline is served without a plan, and an event says
    so; once answers come again there is one.
    """
    async with planning_bench() as bench:
        live = bench.add()
        await bench.join(live, 5)
        feed = asyncio.create_task(bench.feed(live, 5, 60, 1, "c1"))
        await bench.pause(2)
        bench.answer_s = 1e6
        bench.box.catalogue.leave_out(frozenset({"cpu"}))
        await bench.pause(6)
        assert not present(live.plan).feasible
        events = [one for one in bench.box.telemetry.recent() if one.event == "pipeline without a plan"]
        assert [one.facts["reason"] for one in events] == ["no plan was found in time"]
        bench.answer_s = 0.02
        bench.box.catalogue.leave_out(frozenset())
        await bench.pause(6)
        assert present(live.plan).feasible
        feed.cancel()


@pytest.mark.parametrize("goes", ["pipeline", "frames"])
@story
async def test_freed_capacity_goes_to_a_degraded_pipeline(goes: str) -> None:
    """Two pipelines are degraded; when one of them goes, or its frames do, the other one is planned as if it had been
    alone, though nothing of its own has changed.
    """
    async with planning_bench() as bench:
        one, two = bench.add("one"), bench.add("two")
        feeds = [asyncio.create_task(bench.feed(live, 50, 40, 1)) for live in (one, two)]
        await bench.pause(4)
        assert present(one.plan).degraded
        feeds[1].cancel()
        if goes == "pipeline":
            bench.remove(two.pipeline.id)
        await bench.pause(8)
        assert not present(one.plan).degraded
        assert present(one.plan).fps == pytest.approx(50, rel=0.1)
        rounds = bench.planning.figures.rounds
        await bench.pause(3)
        assert bench.planning.figures.rounds <= rounds + 1
        feeds[0].cancel()
        replayed(bench)


@story
async def test_pipeline_with_an_slo_beyond_reach_is_not_planned_again() -> None:
    """Clients of other pipelines come and go, and no more room would help."""
    async with planning_bench() as bench:
        hopeless, other = bench.add("hopeless", slo_ms=12), bench.add("other")
        await bench.feed(hopeless, 5, 2, 1)
        await bench.join(other, 10)
        number = present(hopeless.plan).number
        bench.leave(other, "c1")
        await bench.pause(0.2)
        assert present(other.plan).fps == 0
        assert not present(hopeless.plan).feasible
        assert present(hopeless.plan).number == number


@story
async def test_planned_variants_stay_in_memory_for_thirty_more_seconds() -> None:
    """Variants of a plan are wished for, from the first client on, and for thirty seconds after the last plan that had
    them (SC-22, SC-23).
    """
    bench = find_and_read(budget=70)
    bench.box.add({"big": Cost(run_ms=5, resident_bytes=60)}, name="big")
    async with bench.working():
        live = bench.add()
        await bench.join(live, 5)
        await bench.pause(1)
        memory = bench.box.memory
        builds = [bench.box.build("fine", name) for name in ("t/find", "t/read")]
        assert all(memory.is_resident(build) for build in builds)
        bench.leave(live, "c1")
        await bench.pause(20)
        assert all(memory.is_resident(build) for build in builds)
        assert "fine" in {variant for variant, _ in bench.box.wishes("t/find")}
        await bench.pause(20)
        assert not any(bench.box.wishes(name) for name in ("t/find", "t/read"))


@pytest.mark.parametrize("loaded", ["fp32", "int8"])
@story
async def test_plan_takes_the_variant_that_is_loaded_of_two_as_good(loaded: str) -> None:
    """Both reach the stage's floor in 10 ms: whichever is in memory serves, and nothing is loaded (SC-22)."""
    bench = PlanningBench({"fp32": Cost(run_ms=10), "int8": Cost(run_ms=10)}, {"v": Cost()})
    async with bench.working():
        await bench.box.infer(application="t/find", variant=loaded)
        loads = bench.box.processor.loads.total()
        live = bench.add(stages=[Ask(name="find", application_id="t/find", accuracy_min=50.0)])
        await bench.join(live, 5)
        await bench.pause(1)
        assert [row.variant for row in present(live.plan).stages] == [loaded]
        assert bench.box.processor.loads.total() == loads
