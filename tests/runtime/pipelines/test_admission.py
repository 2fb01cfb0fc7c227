"""Clients that are let in or refused, in virtual time, whatever else happens meanwhile."""

import asyncio
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from appliance.clock import NS_PER_S
from appliance.domain.catalogue import Tenant
from appliance.domain.errors import PipelineNotPossible, TooManySessions, UnknownPipeline
from appliance.domain.pipeline import Ask, PipelineClient
from appliance.domain.runs_at_once import RunsAtOnce
from appliance.runtime.pipelines.admission import JOINS_MAX
from appliance.runtime.pipelines.clients import Clients
from appliance.runtime.pipelines.planning import AT_ONCE
from appliance.runtime.pipelines.problem import Asked, Subject, asked
from tests.fakes.clock import run_virtual, story
from tests.fakes.processor import Cost
from tests.present import present
from tests.runtime.pipelines.bench import READ, Fed, PlanningBench, find_and_read, planning_bench, replayed


def test_clients_joining_in_a_row_share_the_problems_of_pipelines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients that join one after the other within a fifth of a second are planned for at once; problems are not made
    anew for each of them, and none are made of a pipeline that has not changed.
    """
    made: Counter[str] = Counter()

    def noted(subject: Subject, *more: Any) -> Asked:
        made[subject.pipeline.name] += 1
        return asked(subject, *more)

    async def tell() -> None:
        async with planning_bench() as bench:
            live = bench.add()
            bench.add("other")
            await bench.pause(3)
            made.clear()
            for number in range(6):
                await bench.join(live, 1.0, f"c{number}")
            assert present(live.plan).fps == 6.0
            assert made[live.pipeline.name] <= 2, "it takes 20 ms to answer each"
            await bench.pause(3)
            assert not made["other"]

    monkeypatch.setattr("appliance.runtime.pipelines.picture.asked", noted)
    run_virtual(tell)


@story
async def test_clients_are_admitted_until_the_processors_are_full() -> None:
    """Clients are let in as long as all clients keep their SLO, and each is planned for at once; a client too many is
    told what is missing and what rate would be possible, and no other client is served less for it (X-07).
    """
    async with planning_bench() as bench:
        live = bench.add()
        await bench.pause(0.6)
        joined: list[str] = []

        async def join_until_full() -> None:
            for id in "abcdefghijkl":
                await bench.join(live, 4, id)
                joined.append(id)
                assert present(live.plan).fps == pytest.approx(4.0 * len(joined))

        with pytest.raises(PipelineNotPossible) as caught:
            await join_until_full()
        assert 5 <= len(joined) <= 9
        error = caught.value
        assert (error.name, error.fps, error.missing) == ("signs", 4.0, ("processor cpu",))
        assert error.fps_possible < 4.0
        assert (present(live.plan).feasible, present(live.plan).degraded) == (True, False)
        assert present(live.plan).fps == pytest.approx(4.0 * len(joined))
        assert len(bench.decided("admitted")) == len(joined)
        assert len(bench.decided("refused")) == 1
        replayed(bench)


@pytest.mark.parametrize("asked_fps", [60.0, 300.0])
@pytest.mark.parametrize("others_fps", [0.0, 1.0, 7.0, 13.0])
@story
async def test_fps_possible_of_a_refusal_is_the_most_that_would_be_accepted(
    others_fps: float, asked_fps: float
) -> None:
    """Whatever other clients take: a client that asks for as much is let in, and one that asks for a twentieth more is
    not.
    """
    async with planning_bench() as bench:
        live, other = bench.add(), bench.add("other")
        if others_fps:
            await bench.join(other, others_fps, "other")
        await bench.pause(0.6)
        possible = (await bench.refused(live, asked_fps, "too many")).fps_possible
        assert possible > 0.0
        await bench.refused(live, 1.05 * possible, "more")
        await bench.join(live, possible, "as told")
        assert present(live.plan).fps == pytest.approx(possible)


@pytest.mark.parametrize(("workers", "run_s", "most"), [(1, 100, 0.01), (2, 100, 0.02), (2, 50, 0.04)])
@story
async def test_fps_possible_of_a_refusal_is_all_that_the_workers_have_time_for(
    workers: int, run_s: int, most: float
) -> None:
    """Where a plan takes the workers whole, to the last one."""
    bench = PlanningBench({"v": Cost(run_ms=1000 * run_s)}, READ, workers=workers)
    async with bench.working():
        live = bench.add(slo_ms=600_000.0, stages=[Ask(name="look", application_id="t/find")])
        await bench.pause(0.6)
        assert (await bench.refused(live, 1.0)).fps_possible == most
        await bench.join(live, most)


async def _refused_and_searched_for(bench: PlanningBench, live: Fed) -> "asyncio.Task[PipelineNotPossible]":
    """A client asks for too much, and what would be possible is being looked for."""
    asked = 0

    def count() -> None:
        nonlocal asked
        asked += 1

    async def join() -> PipelineNotPossible:
        caught = await bench.refused(live, 300.0, "too many")
        return caught

    bench.thread = count
    refused = asyncio.create_task(join())
    while asked < 5:
        await bench.pause(bench.answer_s)
    return refused


@story
async def test_search_for_a_refused_clients_rate_keeps_no_client_waiting() -> None:
    """Neither clients of the same tenant nor rounds wait; the refused client is told what was possible when it was
    refused.
    """
    async with planning_bench() as bench:
        live, other, third = (bench.add(name) for name in ("one", "two", "three"))
        await bench.pause(0.6)
        refused = await _refused_and_searched_for(bench, live)
        await bench.join(other, 1.0, "c1")
        bench.remove(third.pipeline.id)
        await bench.join(other, 1.0, "c2")
        assert not refused.done()
        possible = (await refused).fps_possible
        for client in list(other.clients):
            other.clients.leave(client.id)
        bench.planning.wake()
        await bench.join(live, possible, "as told")


@story
async def test_refused_client_counts_as_one_plan_however_many_rates_are_tried() -> None:
    async with planning_bench() as bench:
        live = bench.add()
        await bench.join(live, 1.0, "c1")
        await bench.pause(0.6)
        figures = bench.planning.figures
        before = replace(figures)
        refused = await _refused_and_searched_for(bench, live)
        while_searched = replace(figures)
        assert (await refused).fps_possible > 0.0
        assert figures == while_searched
        assert figures.rounds == before.rounds + 1


@story
async def test_refused_client_during_a_rate_search_is_answered_without_a_rate() -> None:
    """However many clients ask for too much, one search goes on at a time."""
    async with planning_bench() as bench:
        live, other = bench.add("one"), bench.add("two")
        await bench.pause(0.6)
        refused = await _refused_and_searched_for(bench, live)
        caught = await bench.refused(other, 300.0)
        assert not refused.done()
        assert (caught.missing, caught.fps_possible) == (("processor cpu",), 0.0)
        assert (await refused).fps_possible > 0.0
        assert (await bench.refused(other, 300.0)).fps_possible > 0.0


@story
async def test_pipeline_with_an_slo_that_no_variant_keeps_refuses_clients() -> None:
    """The reason is time, and the plan says so, with an event."""
    async with planning_bench() as bench:
        live = bench.add(slo_ms=12)
        await bench.pause(0.1)
        assert (await bench.refused(live, 1)).missing == ("time",)
        await bench.feed(live, 5, 2, 1)
        assert (present(live.plan).feasible, present(live.plan).degraded) == (False, False)
        assert present(live.plan).fps == pytest.approx(5, rel=0.2)
        assert "not all fits" not in present(live.plan).reason
        reason = present(live.plan).reason
        await bench.feed(live, 5, 2, 6)
        assert present(live.plan).reason != reason  # by its figures alone
        (event,) = (one for one in bench.box.telemetry.recent() if one.event == "pipeline without a plan")
        assert event.facts["pipeline"] == "signs"
        replayed(bench)


@story
async def test_refused_client_is_told_which_batches_were_not_timed() -> None:
    """Of batches of 2 and 4 no run was timed (SC-05)."""
    bench = PlanningBench({"fine": Cost(run_ms=10, run_ms_by_batch={8: 40})}, READ)
    async with bench.working():
        live = bench.add(slo_ms=45, stages=[Ask(name="find", application_id="t/find")])
        await bench.pause(0.1)
        with pytest.raises(PipelineNotPossible) as caught:
            await bench.join(live, 100_000)
    told = "no choice, because no run was timed: find fine on cpu: batch 2 x 1 at once, find fine on cpu: batch 4"
    assert told in caught.value.reason


@story
async def test_workers_that_were_not_timed_at_once_let_no_further_client_in() -> None:
    """A run takes 10 ms alone, and of two or four at once none was timed: nobody knows that four workers do more than
    100 a second. The refusal names what is missing.
    """
    bench = PlanningBench({"fine": Cost(run_ms=10)}, READ, workers=4, at_once=RunsAtOnce(4, 2))
    async with bench.working():
        live = bench.add(slo_ms=500, stages=[Ask(name="find", application_id="t/find")])
        await bench.pause(0.1)
        await bench.join(live, 90)
        with pytest.raises(PipelineNotPossible) as caught:
            await bench.join(live, 20, "second")
    told = "counted as if fewer ran at once, because no run was timed: find fine on cpu: batch 1 x 4 at once"
    assert told in caught.value.reason
    assert caught.value.fps_possible == pytest.approx(10, rel=0.02)


@story
async def test_pipeline_with_a_tight_slo_is_served_by_cheaper_variants() -> None:
    """From the start, and clients are let in; the plan is not degraded, for the SLO asks for cheaper variants."""
    async with planning_bench() as bench:
        live = bench.add(slo_ms=24)
        await bench.join(live, 4)
        assert (present(live.plan).feasible, present(live.plan).degraded) == (True, False)
        assert "coarse" in {row.variant for row in present(live.plan).stages}
        assert "too slow for the SLO" in present(live.plan).reason
        replayed(bench)


@story
async def test_pipeline_without_a_profile_has_no_plan_and_refuses_clients() -> None:
    """The refusal says that the profile is missing (SC-05)."""
    bench = find_and_read()
    bench.box.add({"new": Cost()}, name="new", measured=False)
    async with bench.working():
        live = bench.add(stages=[Ask(name="look", application_id="t/new")])
        await bench.pause(0.1)
        assert (present(live.plan).feasible, present(live.plan).stages) == (False, ())
        assert "nothing is measured" in present(live.plan).reason
        assert (await bench.refused(live, 1)).missing == ("profile",)


@story
async def test_planning_picture_leaves_out_a_pipeline_deleted_meanwhile() -> None:
    """A client that joins a pipeline that is put anew just then is let into the new one."""
    bench = find_and_read()
    one, two = bench.add("one"), bench.add("two")
    taking = asyncio.create_task(bench.planning.parts.pictures.take())
    await asyncio.sleep(0)  # noqa: TID251 - no time passes
    del bench.pipelines[one.pipeline.id]
    assert set((await taking).seen) == {two.pipeline.id}
    joining = asyncio.create_task(bench.join(two, 5))
    again = replace(two, plan=None, clients=Clients())
    for _ in range(3):
        await asyncio.sleep(0)  # noqa: TID251 - no time passes
    bench.pipelines[two.pipeline.id] = again
    await joining
    assert len(again.clients) == 1


@story
async def test_client_joining_a_pipeline_that_is_deleted_is_refused() -> None:
    """With `UnknownPipeline`; a client that joins another pipeline meanwhile is let in."""
    async with planning_bench() as bench:
        one, two, three = (bench.add(name) for name in ("one", "two", "three"))
        await bench.pause(1)

        def delete(live: Fed) -> None:
            bench.pipelines.pop(live.pipeline.id, None)
            bench.planning.wake()

        first = asyncio.create_task(bench.join(one, 5, "c1"))
        second = asyncio.create_task(bench.join(two, 5, "c2"))
        await bench.pause(0.005)
        delete(two)
        await first
        with pytest.raises(UnknownPipeline):
            await second
        bench.thread = lambda: delete(three)
        await bench.join(one, 5, "c3")
        assert [client.id for client in one.clients] == ["c1", "c3"]
        assert present(one.plan).fps == 10


@story
async def test_joining_clients_of_a_tenant_keep_no_other_tenant_waiting() -> None:
    """A tenant's clients wait for one another; another tenant's client is let in after one of them. A client is refused
    where too many wait.
    """
    bench = find_and_read()
    catalogue = bench.box.catalogue
    catalogue.put_tenant(Tenant("u"))
    for name in ("t/find", "t/read"):
        catalogue.put_application(replace(catalogue.entry(name).application, shared=True))
    async with bench.working():
        crowded = bench.add()
        other = replace(crowded, pipeline=replace(crowded.pipeline, id="u/signs", tenant="u"), clients=Clients())
        bench.pipelines[other.pipeline.id] = other
        await bench.pause(1)
        answered: list[str] = []

        async def join(live: Fed, id: str) -> None:
            await bench.join(live, 0.01, id)
            answered.append(id)

        many = [asyncio.create_task(join(crowded, f"c{at}")) for at in range(JOINS_MAX)]
        await bench.pause(0.001)
        one = asyncio.create_task(join(other, "u"))
        with pytest.raises(TooManySessions):
            await join(crowded, "too many")
        await asyncio.gather(one, *many)
        assert answered.index("u") <= 1
        assert len(crowded.clients) == JOINS_MAX
        await join(crowded, "one more")


@story
async def test_client_joins_the_new_definition_of_a_pipeline_changed_meanwhile() -> None:
    async with planning_bench() as bench:
        live = bench.add()
        await bench.pause(1)
        changed = replace(live, pipeline=replace(live.pipeline, latency_slo_ms=200.0), plan=None)
        bench.thread = lambda: bench.pipelines.update({live.pipeline.id: changed})
        await bench.join(live, 5)
        assert present(changed.plan).fps == 5


@story
async def test_joining_client_waits_for_few_of_many_changed_pipelines() -> None:
    """Where all pipelines are to be planned anew, a client has its answer once the pipelines are planned with which the
    round has begun; what the other pipelines have come to want is counted all the same, so that no client is let in
    without room.
    """
    bench = find_and_read(workers=4)
    asked_of: list[int] = []

    async def slow(compute: Any) -> Any:
        about = compute.args[0]
        asked_of.append(len(about) if isinstance(about, list) else 0)
        await bench.pause(0.1 * asked_of[-1])
        return compute()

    bench.background = slow  # takes longer of more pipelines
    async with bench.working():
        many = [bench.add(f"p{number:02}") for number in range(40)]
        last = bench.add("last")
        await bench.pause(6)

        def change(fps: float) -> None:
            asked_of.clear()
            for number, live in enumerate(many):
                live.clients.join(PipelineClient(f"s{number}", live.pipeline.id, fps, True), bench.now_ns)
            bench.planning.wake()

        change(0.2)
        await bench.pause(0.05)
        before_ns = bench.now_ns
        await bench.join(last, 1.0)
        assert bench.now_ns - before_ns < NS_PER_S
        assert sum(asked_of) <= AT_ONCE + 1
        await bench.pause(10)
        assert {live.plan.fps for live in many if live.plan} == {0.2}
        change(0.8)
        await bench.pause(0.05)
        await bench.refused(last, 60.0, "c2")


@story
async def test_client_of_a_pipeline_that_has_no_room_in_memory_is_refused() -> None:
    """The pipeline's networks take 60 together; guards leave 50 of the budget. The refusal says so, and the client is
    let in once there is room.
    """
    find = {"v": Cost(run_ms=10, resident_bytes=40)}
    bench = PlanningBench(find, {"v": Cost(run_ms=10, resident_bytes=20)}, budget=100)
    bench.box.memory.set_overhead(50)
    async with bench.working():
        live = bench.add()
        await bench.pause(1)
        refused = await bench.refused(live, 1.0)
        assert refused.missing == ("memory",)
        reason = "memory has no room for its smallest variants together, of 0.0001 MB beside guards 5e-05 MB"
        assert refused.reason == reason
        bench.box.memory.set_overhead(40)
        await bench.join(live, 1.0)
        assert present(live.plan).feasible


@story
async def test_client_of_a_pipeline_that_counts_on_a_planners_memory_is_let_in() -> None:
    """A process that plans ends where the variants need what it takes."""
    bench = PlanningBench({"v": Cost(resident_bytes=40)}, {"v": Cost(resident_bytes=50)}, budget=100)
    async with bench.box.core.planner_processes.process("allocation", 25).beginning():
        pass
    async with bench.working():
        live = bench.add()
        await bench.join(live, 1.0)
        for application in ("t/find", "t/read"):
            await bench.box.infer(application=application)
        assert len(bench.box.memory.resident_set()) == 2
