"""Which pipelines are planned anew, and why, in virtual time."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from appliance.domain.pipeline import Ask
from tests.fakes.clock import story
from tests.present import present
from tests.runtime.pipelines.bench import SingleCalls, find_and_read, planning_bench


@story
async def test_decision_and_event_of_a_plan_say_why_the_plan_was_made() -> None:
    """A pipeline that is new, frames that come, more items on each, a client that asks, joins and leaves, a processor
    that goes: in the decision, and in the event of a plan that runs otherwise (SC-17).
    """
    bench = find_and_read()

    def last(outcome: str = "") -> str:
        return str(bench.decided(outcome)[-1]["because"])

    async with bench.working():
        live = bench.add()
        await bench.pause(0.1)
        assert last() == "it has no plan"
        await bench.feed(live, 10, 2, 1)
        assert last().startswith(("frames a second: 0 before", "items of a frame at"))
        await bench.feed(live, 10, 2, 4)
        assert last().startswith("items of a frame at read: ")
        await bench.join(live, 2)
        assert last("admitted") == "a client of 2 frames a second asks to join"
        await bench.refused(live, 500, "c2")
        assert last("refused") == "a client of 500 frames a second asks to join"
        bench.leave(live, "c1")
        await bench.pause(0.1)
        assert last().startswith("clients have joined or left: 1 of 2 frames a second before, 0 of 0")
        bench.box.memory.resize(60)
        await bench.pause(0.1)
        assert last() == "the memory has changed"
        bench.box.catalogue.leave_out(frozenset({"cpu"}))
        bench.box.core.engine.look_again()
        await bench.pause(0.1)
        told = [one.facts["because"] for one in bench.box.telemetry.recent() if one.event == "pipeline without a plan"]
        assert told == ["processors have changed"]


@pytest.mark.parametrize("changed", ["processors", "budget"])
@story
async def test_change_of_processors_or_memory_is_planned_at_once(changed: str) -> None:
    """A processor goes and comes, or the memory is less: there are other plans before the next look."""
    bench = find_and_read()
    box = bench.box
    async with bench.working():
        live = bench.add(stages=[Ask(name="find", application_id="t/find", accuracy_min=70.0)])
        await bench.join(live, 2)
        await bench.pause(1.26)  # a quarter of a second after a look
        rounds = bench.planning.figures.rounds
        if changed == "budget":
            box.memory.resize(30)
        else:
            box.catalogue.leave_out(frozenset({"cpu"}))
            box.core.engine.look_again()
        await bench.pause(0.05)
        assert bench.planning.figures.rounds == rounds + 1
        assert present(live.plan).feasible is (changed == "budget")
        if changed == "processors":
            box.catalogue.leave_out(frozenset())
            box.core.engine.look_again()
            await bench.pause(0.05)
            assert present(live.plan).feasible


@story
async def test_load_of_single_calls_is_planned_with() -> None:
    """Single calls begin to take much of the workers: the plans make room, though nothing of the pipelines has changed;
    a load that stays plans nothing more.
    """
    async with planning_bench() as bench:
        live = bench.add()
        await bench.join(live, 20, "c1")
        feed = asyncio.create_task(bench.feed(live, 20, 40, 1, "c1"))
        await bench.pause(3)
        rounds = bench.planning.figures.rounds
        bench.box.engine.single_calls = SingleCalls(bench, t=1.0)
        await bench.pause(10)
        problem: Any = bench.decided()[-1]["problem"]
        assert sum(part.share for one in problem.existing for part in one.parts) == pytest.approx(1.0, abs=0.25)
        assert rounds < bench.planning.figures.rounds <= rounds + 12
        rounds = bench.planning.figures.rounds
        await bench.pause(5)
        assert bench.planning.figures.rounds == rounds
        feed.cancel()


@story
async def test_pipeline_put_anew_between_two_looks_has_a_plan() -> None:
    """Deleted and defined again as it was."""
    async with planning_bench() as bench:
        live = bench.add()
        await bench.join(live, 10)
        again = replace(live, plan=None)
        bench.put(again)
        await bench.pause(0.2)
        assert present(again.plan).fps == 10
