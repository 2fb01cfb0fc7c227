"""The serve loop in virtual time: rounds that follow what is seen, and what becomes of them where something fails."""

import asyncio
import re
from typing import Any

import pytest

from appliance.domain.errors import PipelineNotPossible
from appliance.domain.pipeline import Ask, PipelineClient
from tests.fakes.clock import story
from tests.fakes.processor import Cost
from tests.present import present
from tests.runtime.pipelines.bench import READ, PlanningBench, find_and_read, planning_bench, replayed, taken


@story
async def test_pipeline_without_frames_or_clients_has_an_empty_plan() -> None:
    """Nothing is planned again and again."""
    async with planning_bench() as bench:
        live = bench.add()
        await bench.pause(3)
        assert (present(live.plan).feasible, present(live.plan).stages, present(live.plan).cost) == (True, (), 0.0)
        assert present(live.plan).takes_ms == {"find": 20.0, "lines": 0.3, "read": 8.0}
        assert present(live.plan).reason == "no client has joined and no frames come, so nothing is reserved for it"
        assert bench.planning.figures.rounds == 1
        await bench.feed(live, 10, 1, 2)
        sentence, _, figures = present(live.plan).reason.partition(". ")
        assert re.fullmatch(r"a frame is planned to take [\d.]+ of the [\d.]+ ms that its SLO allows", sentence)
        assert "worker-seconds a second" in figures


@story
async def test_cancelled_planning_ends_in_any_turn_of_the_event_loop() -> None:
    """Also in the turns in which a pause ends: a box that stops waits for the end of planning."""
    async with planning_bench() as bench:
        bench.add()
        for turns in range(12):
            task = asyncio.create_task(bench.planning.run())
            await bench.pause(2)
            bench.planning.wake()
            for _ in range(turns):
                await asyncio.sleep(0)  # noqa: TID251 - turns are counted, no time passes
            task.cancel()
            await bench.pause(2)
            assert task.done(), turns


@story
async def test_measured_frame_rate_is_planned_for_within_a_second() -> None:
    """Frames without a joined client: rates, items and workers; neither a steady rate nor a slightly higher one plans
    anything more (SC-17 … SC-19).
    """
    async with planning_bench() as bench:
        live = bench.add()
        await bench.feed(live, 20, 1.2, 3)
        plan = live.plan
        assert plan is not None
        assert plan.fps == pytest.approx(20, rel=0.1)
        rates = {row.stage: row.rate_rps for row in plan.stages}
        assert rates == pytest.approx({"find": 20, "lines": 20, "read": 60}, rel=0.1)
        assert taken(live) == pytest.approx(20 * (0.020 + 0.0003) + 60 * 0.008, rel=0.12)
        assert all(row.variant == "fine" for row in plan.stages if row.stage != "lines")
        await bench.feed(live, 20, 5, 3)
        rounds = bench.planning.figures.rounds
        await bench.feed(live, 20, 3, 3)
        await bench.feed(live, 21, 3, 3)
        assert bench.planning.figures.rounds == rounds
        assert replayed(bench) >= 2


@story
async def test_jump_in_items_per_frame_is_planned_for_within_a_second() -> None:
    """From none to eight items a frame."""
    async with planning_bench() as bench:
        live = bench.add()
        await bench.feed(live, 15, 4, 0)
        assert not any(row.stage == "read" for row in present(live.plan).stages)
        await bench.feed(live, 15, 1.0, 8)
        rates = {row.stage: row.rate_rps for row in present(live.plan).stages}
        assert rates["read"] == pytest.approx(15 * 8, rel=0.15)
        replayed(bench)


@story
async def test_stage_whose_runs_balloon_is_planned_with_longer_times() -> None:
    """Runs take twice what was measured: all times of that stage are multiplied by it, and the plan takes more."""
    async with planning_bench() as bench:
        live = bench.add()
        await bench.feed(live, 10, 2, 2)
        before = taken(live)
        servable = bench.box.catalogue.entry("t/read").servables["fine"]
        assert servable.usual_times is not None
        for _ in range(60):
            servable.usual_times.ran(1, 1, 16_000_000, bench.now_ns)
        await bench.feed(live, 10, 1.0, 2)
        assert taken(live) == pytest.approx(before + 10 * 2 * 0.008, rel=0.1)
        problem: Any = bench.decided()[-1]["problem"]
        (read,) = (module for module in problem.modules if module.name == "read")
        assert read.ballooning == pytest.approx(2.0, rel=0.05)
        replayed(bench)


@story
async def test_silent_client_leaves_and_frees_a_part_of_the_plan() -> None:
    """After ten seconds without a frame."""
    async with planning_bench() as bench:
        live = bench.add()
        await bench.join(live, 20)
        assert present(live.plan).fps == 20
        await bench.feed(live, 20, 3, 1, "c1")
        assert present(live.plan).fps == 20
        await bench.pause(11)
        assert len(live.clients) == 0
        assert present(live.plan).fps == 0


@story
async def test_pipeline_defined_anew_after_deletion_counts_plans_from_one() -> None:
    async with planning_bench() as bench:
        live = bench.add()
        await bench.pause(1.0)
        await bench.join(live, 5.0)
        assert present(live.plan).number > 1
        bench.remove("t/signs")
        await bench.pause(1.0)
        live = bench.add()
        await bench.pause(0.2)
        assert present(live.plan).number == 1


@story
async def test_planning_round_gives_the_event_loop_a_turn_per_pipeline() -> None:
    """After each pipeline that is looked at, and after each that is planned."""
    bench = find_and_read()
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)  # noqa: TID251 - no time passes

    lives = [bench.add(f"p{at}") for at in range(32)]
    for live in lives:
        live.clients.join(PipelineClient("c", live.pipeline.id, 0.5), bench.now_ns)
    counting = asyncio.create_task(count())
    await bench.planning.parts.pictures.take()
    looked = turns
    bench.answer_s = 0.0
    assert await bench.planning.step()
    counting.cancel()
    assert looked >= 32
    assert turns - looked >= 3 * 32  # looked at, written as plans, recorded
    assert all(live.plan is not None and live.plan.fps == 0.5 for live in lives)


@story
async def test_planning_round_that_fails_is_followed_by_the_next() -> None:
    """In a test its error is raised, so that no story hides it; in a box it is logged, and the next round plans."""
    bench = find_and_read()
    failures = [RuntimeError("a defect")] * 2

    def fail() -> None:
        if failures:
            raise failures.pop()

    bench.thread = fail
    live = bench.add()
    with pytest.raises(RuntimeError, match="a defect"):
        await bench.planning.run()
    task = asyncio.create_task(bench.planning.run(goes_on=True))
    await bench.pause(0.1)
    assert (live.plan, failures) == (None, [])
    await bench.pause(1)
    task.cancel()


@story
async def test_pipeline_keeps_the_old_plan_while_the_policy_does_not_answer() -> None:
    """A pipeline without a plan is served without, which an event says; a client that would join is told to ask again.
    Once answers come there are plans.
    """
    async with planning_bench() as bench:
        old = bench.add("old")
        await bench.join(old, 5)
        feed = asyncio.create_task(bench.feed(old, 5, 60, 1, "c1"))
        await bench.pause(2)
        before, rounds = old.plan, bench.planning.figures.rounds
        bench.answer_s = 1e6
        new = bench.add("new")
        joins = asyncio.create_task(bench.feed(new, 5, 60, 1))
        await bench.pause(6)
        assert old.plan is before
        assert (present(new.plan).feasible, present(new.plan).reason) == (False, "no plan was found in time")
        told = {one.event: one.facts for one in bench.box.telemetry.recent()}
        assert told["pipelines not planned in time"]["pipelines"] == 2
        with pytest.raises(PipelineNotPossible, match="ask again"):
            await bench.join(new, 1, "c2")
        asked = bench.planning.figures.rounds - rounds
        assert asked <= 3
        bench.answer_s = 0.02
        await bench.pause(25)
        assert present(new.plan).feasible
        assert present(new.plan).fps == pytest.approx(5, rel=0.1)
        for task in (feed, joins):
            task.cancel()
        replayed(bench)


@story
async def test_plan_at_a_tight_slo_says_what_it_leaves_for_runs_that_go_first() -> None:
    """Runs of eight would end within 100 ms, but not behind two others: the plan has runs of two."""
    bench = PlanningBench({"fine": Cost(run_ms=20, run_ms_by_batch={2: 24, 4: 32, 8: 48})}, READ, workers=4)
    async with bench.working():
        live = bench.add(slo_ms=100, stages=[Ask(name="find", application_id="t/find")])
        await bench.pause(0.1)
        await bench.join(live, 150)
        assert {row.batch for row in present(live.plan).stages} == {2}
        assert present(live.plan).cost == pytest.approx(1.8)
        assert (
            "48.0 ms of the SLO are for runs that go first when a wait for company is over" in present(live.plan).reason
        )
        replayed(bench)
