"""The serve loop in virtual time: plans that follow what is seen, clients that are let in or refused, processors that
go, and what is told of all that.
"""

import asyncio
import itertools
import random
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from appliance.clock import NS_PER_S
from appliance.domain.catalogue import Quota, Tenant
from appliance.domain.errors import PipelineNotPossible, TooManySessions, UnknownPipeline
from appliance.domain.pipeline import Ask, CostBy, PipelineClient
from appliance.lab.plan import plan_one
from appliance.runtime.decisions.document import record_of
from appliance.runtime.pipelines.accounts import Watts
from appliance.runtime.pipelines.clients import Clients
from appliance.runtime.pipelines.joins import JOINS_MAX
from appliance.runtime.pipelines.planning import AT_ONCE
from appliance.runtime.pipelines.problem import Asked, Subject, asked
from tests.checkers.pipeline import broken
from tests.fakes.clock import run_virtual, story
from tests.fakes.processor import Cost
from tests.runtime.pipelines.bench import Fed, PlanningBench

FIND = {"fine": Cost(run_ms=20, resident_bytes=40), "coarse": Cost(run_ms=10, resident_bytes=20)}
READ = {"fine": Cost(run_ms=8, resident_bytes=10), "coarse": Cost(run_ms=4, resident_bytes=5)}


def _bench(**more: Any) -> PlanningBench:
    return PlanningBench(FIND, READ, **more)


def _taken(*pipelines: Fed) -> float:
    """Workers that plans take."""
    return sum(row.instances for one in pipelines if one.plan for row in one.plan.stages)


def _asked_last(bench: PlanningBench) -> Any:
    """The problem of the last decision, as it is recorded."""
    return record_of(bench.box.clock.wall_now(), "pipeline", bench.decided()[-1]).problem


def _replayed(bench: PlanningBench) -> int:
    """Every decision is answered again by its record, and every plan keeps SLO and capacity by the independent checker;
    how many there were.
    """
    at = bench.box.clock.wall_now()
    count = 0
    for facts in bench.decided():
        record = record_of(at, "pipeline", facts)
        answer = plan_one(record.problem)
        for key in ("feasible", "cost", "allocations", "placement", "reason"):
            assert answer[key] == record.answer[key]
        if answer["feasible"] and answer["allocations"]:
            assert not broken(record.problem, record.answer)
        count += 1
    return count


@story
async def test_nothing_comes() -> None:
    """A pipeline without frames and clients has a plan that takes nothing; nothing is planned again and again."""
    bench = _bench()
    async with bench.working():
        live = bench.add()
        await bench.pause(3)
        assert live.plan is not None
        assert (live.plan.feasible, live.plan.stages, live.plan.cost) == (True, (), 0.0)
        assert live.plan.takes_ms == {"find": 20.0, "lines": 0.3, "read": 8.0}
        assert live.plan.reason == "nobody has joined and no frames come: nothing is kept for it"
        assert bench.planning.figures.rounds == 1
        await bench.feed(live, 10, 1, 2)
        assert "worker-seconds a second" in live.plan.reason


@story
async def test_it_ends_whenever_it_is_cancelled() -> None:
    """Also in the turns of the event loop in which a pause ends: a box that stops waits for it."""
    bench = _bench()
    async with bench.working():
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


def test_who_comes_looks_at_nobody_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients that join one after the other within a fifth of a second are planned for at once; problems are not made
    anew for each of them, and of a pipeline of which nothing is new none are made.
    """
    made: Counter[str] = Counter()

    def noted(subject: Subject, *more: Any) -> Asked:
        made[subject.pipeline.name] += 1
        return asked(subject, *more)

    async def tell() -> None:
        bench = _bench()
        async with bench.working():
            live = bench.add()
            bench.add("other")
            await bench.pause(3)
            made.clear()
            for number in range(6):
                await bench.join(live, 1.0, f"c{number}")
            assert live.plan is not None
            assert live.plan.fps == 6.0
            assert made[live.pipeline.name] <= 2, "it takes 20 ms to answer each"
            await bench.pause(3)
            assert not made["other"]

    monkeypatch.setattr("appliance.runtime.pipelines.picture.asked", noted)
    run_virtual(tell)


@story
async def test_measured_rates_are_planned_for() -> None:
    """Frames of nobody who joined are planned for within a second: rates, items and workers; a steady rate plans
    nothing more, and ten per cent more do not (SC-17 … SC-19).
    """
    bench = _bench()
    async with bench.working():
        live = bench.add()
        await bench.feed(live, 20, 1.2, 3)
        plan = live.plan
        assert plan is not None
        assert plan.fps == pytest.approx(20, rel=0.1)
        rates = {row.stage: row.rate_rps for row in plan.stages}
        assert rates == pytest.approx({"find": 20, "lines": 20, "read": 60}, rel=0.1)
        assert _taken(live) == pytest.approx(20 * (0.020 + 0.0003) + 60 * 0.008, rel=0.12)
        assert all(row.variant == "fine" for row in plan.stages if row.stage != "lines")
        await bench.feed(live, 20, 5, 3)
        rounds = bench.planning.figures.rounds
        await bench.feed(live, 20, 3, 3)
        await bench.feed(live, 21, 3, 3)
        assert bench.planning.figures.rounds == rounds
        assert _replayed(bench) >= 2


@story
async def test_each_plan_says_what_it_was_made_for() -> None:
    """A pipeline that is new, frames that come, more items on each, a client that asks, joins and leaves, a processor
    that goes: in the decision, and in the event of a plan that runs otherwise (SC-17).
    """
    bench = _bench()

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
        with pytest.raises(PipelineNotPossible):
            await bench.join(live, 500, "c2")
        assert last("refused") == "a client of 500 frames a second asks to join"
        live.clients.leave("c1")
        bench.planning.wake()
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


@story
async def test_items_come_at_once() -> None:
    """From none to eight items a frame at once: within a second the plan is for eight."""
    bench = _bench()
    async with bench.working():
        live = bench.add()
        await bench.feed(live, 15, 4, 0)
        assert live.plan is not None
        assert not any(row.stage == "read" for row in live.plan.stages)
        await bench.feed(live, 15, 1.0, 8)
        rates = {row.stage: row.rate_rps for row in live.plan.stages}
        assert rates["read"] == pytest.approx(15 * 8, rel=0.15)
        _replayed(bench)


@story
async def test_ballooning() -> None:
    """Runs take twice what was measured: all times of that stage are multiplied by it, and the plan takes more."""
    bench = _bench()
    async with bench.working():
        live = bench.add()
        await bench.feed(live, 10, 2, 2)
        before = _taken(live)
        servable = bench.box.catalogue.entry("t/read").servables["fine"]
        assert servable.usual_times is not None
        for _ in range(60):
            servable.usual_times.ran(1, 1, 16_000_000, bench.now_ns)
        await bench.feed(live, 10, 1.0, 2)
        assert _taken(live) == pytest.approx(before + 10 * 2 * 0.008, rel=0.1)
        problem: Any = bench.decided()[-1]["problem"]
        (read,) = (module for module in problem.modules if module.name == "read")
        assert read.ballooning == pytest.approx(2.0, rel=0.05)
        _replayed(bench)


@story
async def test_clients_join_until_it_is_full() -> None:
    """Clients are let in as long as all that are in keep their SLO, and each is planned for at once; who is too much is
    told what is missing and what would be possible, and nobody else is served less for it (X-07).
    """
    bench = _bench()
    async with bench.working():
        live = bench.add()
        await bench.pause(0.6)
        joined = 0

        async def join_until_full() -> None:
            nonlocal joined
            for index in range(20):
                await bench.join(live, 4, f"c{index}")
                joined += 1
                assert live.plan is not None
                assert live.plan.fps == pytest.approx(4.0 * joined)

        with pytest.raises(PipelineNotPossible) as caught:
            await join_until_full()
        assert 5 <= joined <= 9
        error = caught.value
        assert (error.name, error.fps, error.missing) == ("signs", 4.0, ("processor cpu",))
        assert error.fps_possible < 4.0
        assert live.plan is not None
        assert (live.plan.feasible, live.plan.degraded) == (True, False)
        assert live.plan.fps == pytest.approx(4.0 * joined)
        assert len(bench.decided("admitted")) == joined
        assert len(bench.decided("refused")) == 1
        _replayed(bench)


@story
async def test_an_slo_that_nothing_keeps() -> None:
    """No client is let in, the reason is time, and the plan says so, with an event."""
    bench = _bench()
    async with bench.working():
        live = bench.add(slo_ms=12)
        await bench.pause(0.1)
        with pytest.raises(PipelineNotPossible) as caught:
            await bench.join(live, 1)
        assert caught.value.missing == ("time",)
        await bench.feed(live, 5, 2, 1)
        assert live.plan is not None
        assert (live.plan.feasible, live.plan.degraded) == (False, False)
        assert live.plan.fps == pytest.approx(5, rel=0.2)
        assert "not all fits" not in live.plan.reason
        reason = live.plan.reason
        await bench.feed(live, 5, 2, 6)
        assert live.plan.reason != reason  # by its figures alone
        (event,) = (one for one in bench.box.telemetry.recent() if one.event == "pipeline without a plan")
        assert event.facts["pipeline"] == "signs"
        _replayed(bench)


@story
async def test_an_slo_that_only_cheaper_variants_keep() -> None:
    """They serve from the start, clients are let in, and nothing is degraded: that is what the SLO asks for."""
    bench = _bench()
    async with bench.working():
        live = bench.add(slo_ms=24)
        await bench.join(live, 4)
        assert live.plan is not None
        assert (live.plan.feasible, live.plan.degraded) == (True, False)
        assert "coarse" in {row.variant for row in live.plan.stages}
        assert "too slow for the SLO" in live.plan.reason
        _replayed(bench)


@story
async def test_nothing_is_measured() -> None:
    """Without a profile there is no plan (SC-05), and who would join is told that."""
    bench = _bench()
    bench.box.add({"new": Cost()}, name="new", measured=False)
    async with bench.working():
        live = bench.add(stages=[Ask(name="look", application_id="t/new")])
        await bench.pause(0.1)
        assert live.plan is not None
        assert (live.plan.feasible, live.plan.stages) == (False, ())
        assert "nothing is measured" in live.plan.reason
        with pytest.raises(PipelineNotPossible) as caught:
            await bench.join(live, 1)
        assert caught.value.missing == ("profile",)


@story
async def test_silent_clients_leave() -> None:
    """Ten seconds without a frame, and its part of the plan is free again."""
    bench = _bench()
    async with bench.working():
        live = bench.add()
        await bench.join(live, 20)
        assert live.plan is not None
        assert live.plan.fps == 20
        await bench.feed(live, 20, 3, 1, "c1")
        assert live.plan.fps == 20
        await bench.pause(11)
        assert len(live.clients) == 0
        assert live.plan.fps == 0


@story
async def test_nothing_is_left_of_a_pipeline_that_has_gone() -> None:
    """One that is defined anew begins anew."""
    bench = _bench()
    async with bench.working():
        live = bench.add()
        await bench.pause(1.0)
        await bench.join(live, 5.0)
        assert live.plan is not None
        assert live.plan.number > 1
        del bench.pipelines["t/signs"]
        bench.planning.wake()
        await bench.pause(1.0)
        live = bench.add()
        await bench.pause(0.2)
        assert live.plan is not None
        assert live.plan.number == 1


@story
async def test_more_than_fits_is_degraded() -> None:
    """Frames of nobody who joined that are too many: cheaper variants first, then fewer frames; the plan says so (X-05)
    and goes back when they are fewer.
    """
    bench = _bench()
    async with bench.working():
        live = bench.add()
        await bench.feed(live, 60, 3, 2)
        plan = live.plan
        assert plan is not None
        assert (plan.feasible, plan.degraded) == (True, True)
        assert "coarse" in {row.variant for row in plan.stages}
        assert "cheaper variants" in plan.reason
        assert plan.fps == pytest.approx(60, rel=0.1)
        await bench.feed(live, 200, 3, 2)
        assert live.plan is not None
        assert live.plan.fps < 120
        assert "frames a second" in live.plan.reason
        await bench.feed(live, 10, 8, 2)
        assert live.plan is not None
        assert not live.plan.degraded
        assert {row.variant for row in live.plan.stages} == {"fine", ""}
        _replayed(bench)


@story
async def test_fewer_frames_are_told_as_degraded() -> None:
    """Where a stage names its variant there is no cheaper one, so that fewer frames are planned with: the decision says
    what the plan and the event say.
    """
    bench = _bench()
    named = [Ask(name="find", application_id="t/find", variant="fine")]
    async with bench.working():
        live = bench.add(stages=named)
        await bench.feed(live, 200, 2, 0)
        assert live.plan is not None
        assert (live.plan.feasible, live.plan.degraded) == (True, True)
        assert live.plan.fps < 120
        assert {row.variant for row in live.plan.stages} == {"fine"}
        assert bench.decided()[-1]["outcome"] == "degraded"
        told = [one.facts["degraded"] for one in bench.box.telemetry.recent() if one.event == "pipeline planned"]
        assert told[-1] is True


@pytest.mark.parametrize("batching", ["by-profile", "none"])
def test_no_batch_is_planned_where_requests_never_share_a_run(batching: str) -> None:
    """`policies.batching` holds for plans, too."""

    async def check() -> None:
        read = {"fine": Cost(run_ms=8, resident_bytes=10, run_ms_by_batch={8: 16})}
        bench = PlanningBench(FIND, read, batching=batching)
        async with bench.working():
            live = bench.add()
            await bench.feed(live, 20, 2, 8)
            assert live.plan is not None
            batches = {row.batch for row in live.plan.stages if row.stage == "read"}
            assert batches == ({1} if batching == "none" else {8})

    run_virtual(check)


@story
async def test_pipelines_see_one_another() -> None:
    """Two pipelines never take more than there is, and where both are too much each has its part by weight."""
    bench = _bench()
    async with bench.working():
        one, two = bench.add("one", weight=2.0), bench.add("two")
        await asyncio.gather(bench.feed(one, 100, 4, 2), bench.feed(two, 100, 4, 2))
        assert one.plan is not None
        assert two.plan is not None
        assert _taken(one, two) <= 2.0 + 1e-6
        total = one.plan.fps + two.plan.fps
        assert one.plan.fps / total >= 0.7 * 2 / 3
        assert two.plan.fps / total >= 0.7 / 3
        _replayed(bench)


@story
async def test_floors_and_variants() -> None:
    """A stage's own floor is served by the cheapest that reaches it and never by less; a named variant, alone."""
    bench = _bench()
    floor = [Ask(name="find", application_id="t/find", accuracy_min=80.0), Ask(name="read", application_id="t/read")]
    named = [Ask(name="find", application_id="t/find", variant="coarse")]
    high = [Ask(name="find", application_id="t/find", accuracy_min=85.0)]
    async with bench.working():
        lives = {name: bench.add(name, stages=stages) for name, stages in zip("abc", (floor, named, high), strict=True)}
        for live in lives.values():
            await bench.join(live, 2, id=f"of-{live.pipeline.name}")
        found = {
            name: {row.stage: row.variant for row in live.plan.stages} for name, live in lives.items() if live.plan
        }
        assert found == {"a": {"find": "coarse", "read": "fine"}, "b": {"find": "coarse"}, "c": {"find": "fine"}}
        with pytest.raises(PipelineNotPossible):
            await bench.join(lives["c"], 100, id="more")


@story
async def test_memory_that_shrinks() -> None:
    """Only what fits into memory together is offered: below the ceiling the smaller one serves, though it is no
    cheaper in time than need be.
    """
    bench = _bench()
    stages = [Ask(name="find", application_id="t/find", accuracy_min=70.0)]
    async with bench.working():
        live = bench.add(stages=stages)
        await bench.join(live, 2)
        before: Any = bench.decided()[-1]["problem"]
        bench.box.catalogue.put_tenant(Tenant("t", Quota(memory_ceiling_bytes=30)))
        await bench.pause(0.6)
        after: Any = bench.decided()[-1]["problem"]
        assert len(bench.decided()) >= 2
        assert before.modules == after.modules
        assert {row.variant for row in live.plan.stages} == {"coarse"} if live.plan else False


@story
async def test_what_several_are_offered_fits_together() -> None:
    """Each of two pipelines would fit into memory with its most accurate variant, but not both: once both are in use,
    one is planned with a smaller one, which its plan says (X-05), and no longer when the other one's client has left.
    """
    bench = _bench(budget=70)
    bench.box.add({"fine": Cost(run_ms=20, resident_bytes=38), "coarse": Cost(run_ms=10, resident_bytes=20)}, name="x")
    async with bench.working():
        one = bench.add("one", stages=[Ask(name="find", application_id="t/find")])
        two = bench.add("two", stages=[Ask(name="x", application_id="t/x")])
        await bench.join(one, 2, "c1")
        assert one.plan is not None
        assert [row.variant for row in one.plan.stages] == ["fine"]
        await bench.join(two, 2, "c2")
        assert two.plan is not None
        assert [[row.variant for row in plan.stages] for plan in (one.plan, two.plan)] == [["coarse"], ["fine"]]
        assert (one.plan.degraded, two.plan.degraded) == (True, False)
        assert one.plan.reason.endswith("not all fits into memory: smaller variants than asked for serve at find")
        assert [(facts["pipeline"], facts["outcome"]) for facts in bench.decided()[-2:]] == [
            ("t/two", "admitted"),
            ("t/one", "degraded"),
        ]
        two.clients.leave("c2")
        bench.planning.wake()
        await bench.pause(0.1)
        assert [row.variant for row in one.plan.stages] == ["fine"]
        assert not one.plan.degraded
        _replayed(bench)


@story
async def test_a_throttled_processor_is_planned_with_where_it_is_needed() -> None:
    """A plan that fits on the other one is made there, and is back where it was when it has cooled. A client who does
    not fit there is let in all the same.
    """
    bench = _bench(workers=1, has_twin=True)
    async with bench.working():
        live = bench.add()

        def on() -> set[str]:
            assert live.plan is not None
            assert (live.plan.feasible, live.plan.degraded) == (True, False)
            return {row.worker for row in live.plan.stages if row.worker != "host"}

        await bench.join(live, 10)  # 20 ms and 8 for each of 4 items: half a worker
        bench.throttled = {"p"}
        bench.planning.wake()
        await bench.pause(2)
        assert on() == {"cpu"}  # the only one of its kind that is planned with
        assert [row["name"] for row in _asked_last(bench)["workers"]] == ["host", "cpu"]
        await bench.join(live, 20, "c2")
        assert on() == {"p-cpu", "q-cpu"}
        rounds = bench.planning.figures.rounds
        await bench.pause(3)
        assert bench.planning.figures.rounds <= rounds + 1
        bench.throttled = set()
        bench.planning.wake()
        await bench.pause(1)
        assert on() == {"p-cpu", "q-cpu"}
        bench.throttled = {"p", "q"}
        bench.planning.wake()
        await bench.pause(1)
        assert on() == {"p-cpu", "q-cpu"}
        assert _replayed(bench) >= 3


@pytest.mark.parametrize("changed", ["processors", "budget"])
def test_a_box_that_changes_is_planned_at_once(changed: str) -> None:
    """A processor goes and comes, or the memory is less: there are other plans before the next look."""

    async def told() -> None:
        bench = _bench()
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
            assert live.plan is not None
            assert live.plan.feasible is (changed == "budget")
            if changed == "processors":
                box.catalogue.leave_out(frozenset())
                box.core.engine.look_again()
                await bench.pause(0.05)
                assert live.plan.feasible

    run_virtual(told)


@story
async def test_a_picture_that_changes_meanwhile() -> None:
    """A client leaves while the policy is asked: the answer is followed by one about how it is now."""
    bench = _bench()
    async with bench.working():
        live = bench.add()
        await bench.join(live, 20, "c1")
        await bench.join(live, 5, "c2")
        left: list[str] = []

        def leave() -> None:
            if not left:
                left.append("c2")
                live.clients.leave("c2")

        bench.thread = leave
        live.clients.leave("c1")
        bench.planning.wake()
        await bench.pause(0.2)
        assert left
        assert bench.planning.figures.stale == 1
        await bench.pause(0.6)
        assert live.plan is not None
        assert live.plan.fps == 0


@pytest.mark.parametrize("goes", ["pipeline", "frames"])
def test_room_that_comes_free_is_given(goes: str) -> None:
    """Two are degraded; when one of them goes, or its frames do, the other one is planned as if it had been alone,
    though nothing of its own has changed.
    """

    async def told() -> None:
        bench = _bench()
        async with bench.working():
            one, two = bench.add("one"), bench.add("two")
            feeds = [asyncio.create_task(bench.feed(live, 50, 40, 1)) for live in (one, two)]
            await bench.pause(4)
            assert one.plan is not None
            assert one.plan.degraded
            feeds[1].cancel()
            if goes == "pipeline":
                del bench.pipelines[two.pipeline.id]
                bench.planning.wake()
            await bench.pause(8)
            assert not one.plan.degraded
            assert one.plan.fps == pytest.approx(50, rel=0.1)
            rounds = bench.planning.figures.rounds
            await bench.pause(3)
            assert bench.planning.figures.rounds <= rounds + 1
            feeds[0].cancel()
            _replayed(bench)

    run_virtual(told)


@story
async def test_what_no_room_would_help_is_not_planned_again() -> None:
    """An SLO that nothing keeps: clients of others come and go, and it is left alone."""
    bench = _bench()
    async with bench.working():
        hopeless, other = bench.add("hopeless", slo_ms=12), bench.add("other")
        await bench.feed(hopeless, 5, 2, 1)
        await bench.join(other, 10)
        assert hopeless.plan is not None
        number = hopeless.plan.number
        other.clients.leave("c1")
        bench.planning.wake()
        await bench.pause(0.2)
        assert other.plan is not None
        assert other.plan.fps == 0
        assert not hopeless.plan.feasible
        assert hopeless.plan.number == number


@story
async def test_a_policy_that_does_not_answer() -> None:
    """Without an answer in time a pipeline keeps the plan that it has; one without a plan is served without, which an
    event says; who would join is told to ask again. Once answers come there are plans.
    """
    bench = _bench()
    async with bench.working():
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
        assert new.plan is not None
        assert (new.plan.feasible, new.plan.reason) == (False, "no plan was found in time")
        told = {one.event: one.facts for one in bench.box.telemetry.recent()}
        assert told["pipelines not planned in time"]["pipelines"] == 2
        with pytest.raises(PipelineNotPossible, match="ask again"):
            await bench.join(new, 1, "c2")
        asked = bench.planning.figures.rounds - rounds
        assert asked <= 3
        bench.answer_s = 0.02
        await bench.pause(25)
        assert new.plan is not None
        assert new.plan.feasible
        assert new.plan.fps == pytest.approx(5, rel=0.1)
        for task in (feed, joins):
            task.cancel()
        _replayed(bench)


@story
async def test_a_plan_that_no_longer_holds() -> None:
    """The processor of a plan goes while no policy answers: the pipeline is served without a plan, and an event says
    so; once answers come again there is one.
    """
    bench = _bench()
    async with bench.working():
        live = bench.add()
        await bench.join(live, 5)
        feed = asyncio.create_task(bench.feed(live, 5, 60, 1, "c1"))
        await bench.pause(2)
        bench.answer_s = 1e6
        bench.box.catalogue.leave_out(frozenset({"cpu"}))
        await bench.pause(6)
        assert live.plan is not None
        assert not live.plan.feasible
        events = [one for one in bench.box.telemetry.recent() if one.event == "pipeline without a plan"]
        assert [one.facts["reason"] for one in events] == ["no plan was found in time"]
        bench.answer_s = 0.02
        bench.box.catalogue.leave_out(frozenset())
        await bench.pause(6)
        assert live.plan.feasible
        feed.cancel()


@story
async def test_others_have_their_turn() -> None:
    """However many pipelines are looked at and planned, the event loop goes on after each."""
    bench = _bench()
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
    await bench.planning._pictures.take()
    looked = turns
    bench.answer_s = 0.0
    assert await bench.planning.step()
    counting.cancel()
    assert looked >= 32
    assert turns - looked >= 3 * 32  # looked at, written as plans, recorded
    assert all(live.plan is not None and live.plan.fps == 0.5 for live in lives)


@story
async def test_pipelines_that_go_while_they_are_looked_at() -> None:
    """The picture has none of them, and who would join one that is put anew just then is let into that."""
    bench = _bench()
    one, two = bench.add("one"), bench.add("two")
    taking = asyncio.create_task(bench.planning._pictures.take())
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
async def test_one_that_is_put_anew_is_planned() -> None:
    """Deleted and defined again as it was between two looks: it has a plan all the same."""
    bench = _bench()
    async with bench.working():
        live = bench.add()
        await bench.join(live, 10)
        again = replace(live, plan=None)
        bench.pipelines[live.pipeline.id] = again
        bench.planning.wake()
        await bench.pause(0.2)
        assert again.plan is not None
        assert again.plan.fps == 10


@story
async def test_one_that_is_defined_anew_while_others_are_planned() -> None:
    """It has had no frame yet, and what was seen of the one before says nothing of it: it is planned, as its frames
    are.
    """
    bench = _bench()
    async with bench.working():
        live, other = bench.add("signs"), bench.add("other")
        feed = asyncio.create_task(bench.feed(live, 20, 7, 2))
        await bench.pause(7)
        await feed
        bench.answer_s = 1.0
        joining = asyncio.create_task(bench.join(other, 2))
        await bench.pause(0.5)
        again = replace(live, plan=None, clients=Clients(), frames=0, joined=0, items=Counter())
        bench.pipelines[live.pipeline.id] = again
        bench.planning.wake()
        await joining
        bench.answer_s = 0.02
        feed = asyncio.create_task(bench.feed(again, 2, 8, 2))
        await bench.pause(6)
        assert again.plan is not None
        assert again.plan.fps == pytest.approx(2, rel=0.3)
        feed.cancel()


@story
async def test_a_round_that_fails() -> None:
    """It raises, so that no story hides it; in a box it is logged, and the next round plans."""
    bench = _bench()
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
    assert live.plan is not None
    task.cancel()


@story
async def test_a_pipeline_that_keeps_changing_costs_the_others_nothing() -> None:
    """One is changed at every round: the other has its plan after the first one, and what was planned beside the old
    definition is kept free until the new one is planned.
    """
    bench = _bench()
    async with bench.working():
        noisy = bench.add("noisy")
        quiet = bench.add("quiet")

        def change() -> None:
            pipeline = replace(noisy.pipeline, weight=3.0 - noisy.pipeline.weight)
            bench.pipelines[pipeline.id] = replace(noisy, pipeline=pipeline)
            noisy.pipeline = pipeline
            bench.planning.wake()

        bench.thread = change
        await bench.pause(0.1)
        assert quiet.plan is not None
        await bench.feed(quiet, 20, 2, 3)
        assert quiet.plan.fps == pytest.approx(20, rel=0.1)
        assert bench.planning.figures.stale >= 10
        await bench.join(quiet, 5)
        assert len(quiet.clients) == 1


@story
async def test_a_box_that_keeps_changing_is_planned_all_the_same() -> None:
    """The tenant weighs another at every round: after some answers that are thrown away one is applied; who would join
    is told to ask again.
    """
    bench = _bench()
    weights = itertools.cycle((2.0, 1.0))

    def change() -> None:
        bench.box.catalogue.put_tenant(Tenant("t", Quota(processor_weight=next(weights))))

    bench.thread = change
    async with bench.working():
        live = bench.add()
        await bench.pause(0.2)
        assert live.plan is not None
        with pytest.raises(PipelineNotPossible, match="ask again"):
            await bench.join(live, 5)
        assert len(live.clients) == 0


@story
async def test_applications_of_others_that_keep_changing_cost_a_pipeline_nothing() -> None:
    """Another tenant changes its own at every round: no answer is thrown away for that, and who joins is let in. A
    change of one that is asked counts.
    """
    bench = _bench()
    catalogue = bench.box.catalogue
    catalogue.put_tenant(Tenant("u"))
    asked = catalogue.entry("t/read").application
    own = replace(asked, id="u/read", tenant="u")

    def change() -> None:
        catalogue.put_application(replace(own, weight=1.0 + catalogue.version))

    async with bench.working():
        live = bench.add()
        await bench.pause(1)
        bench.thread = change
        version, rounds = catalogue.version, bench.planning.figures.rounds
        await bench.join(live, 5)
        assert (len(live.clients), bench.planning.figures.stale) == (1, 0)
        await bench.pause(2)
        assert catalogue.version > version
        assert bench.planning.figures.rounds <= rounds + 2
        before = live.plan
        catalogue.put_application(replace(asked, weight=2.0))
        await bench.pause(1)
        assert live.plan is not before


@story
async def test_pipelines_that_are_deleted_while_a_client_joins() -> None:
    """Who waits for the deleted one is told that it is unknown; who joins another one is let in."""
    bench = _bench()
    async with bench.working():
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
        assert one.plan is not None
        assert one.plan.fps == 10


@story
async def test_many_who_join_keep_nobody_else_waiting() -> None:
    """A tenant's clients wait for one another; another tenant's is let in after one of them. Too many are refused."""
    bench = _bench()
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
async def test_load_of_single_calls_is_planned_with() -> None:
    """They begin to take much of the workers: the plans make room, though nothing of the pipelines has changed; a load
    that stays plans nothing more.
    """
    bench = _bench()
    async with bench.working():
        live = bench.add()
        await bench.join(live, 20, "c1")
        feed = asyncio.create_task(bench.feed(live, 20, 40, 1, "c1"))
        await bench.pause(3)
        rounds = bench.planning.figures.rounds
        taken = _Taken(bench, t=1.0)
        pictures = bench.planning._pictures
        pictures._environment = replace(pictures._environment, busy_s=taken.seconds)
        await bench.pause(10)
        problem: Any = bench.decided()[-1]["problem"]
        assert sum(part.share for one in problem.existing for part in one.parts) == pytest.approx(1.0, abs=0.25)
        assert rounds < bench.planning.figures.rounds <= rounds + 12
        rounds = bench.planning.figures.rounds
        await bench.pause(5)
        assert bench.planning.figures.rounds == rounds
        feed.cancel()


class _Taken:
    """So many workers are busy with single calls of tenants from now on."""

    def __init__(self, bench: PlanningBench, **workers: float) -> None:
        self._bench, self._since_ns, self._workers = bench, bench.now_ns, workers

    def seconds(self) -> Mapping[str, Mapping[int, float]]:
        """By tenant and group."""
        passed_s = (self._bench.now_ns - self._since_ns) / NS_PER_S
        return {tenant: {0: workers * passed_s} for tenant, workers in self._workers.items()}


@story
async def test_others_calls_take_no_more_than_their_part() -> None:
    """Another tenant's single calls fill both workers: the plan counts one for them, for the queue gives this tenant's
    items theirs; of a tenant without calls nothing is counted.
    """
    bench = _bench()
    async with bench.working():
        live = bench.add()
        await bench.join(live, 20, "c1")
        feed = asyncio.create_task(bench.feed(live, 20, 40, 1, "c1"))
        await bench.pause(3)
        taken = _Taken(bench, u=2.0, v=0.0)
        pictures = bench.planning._pictures
        pictures._environment = replace(pictures._environment, busy_s=taken.seconds)
        await bench.pause(10)
        problem: Any = bench.decided()[-1]["problem"]
        assert 0.75 < sum(part.share for one in problem.existing for part in one.parts) <= 1.0 + 1e-9
        assert live.plan is not None
        assert live.plan.feasible
        assert live.plan.has_all
        assert set(pictures._single_calls.tenants) == {"u"}
        feed.cancel()


@story
async def test_a_pipeline_that_is_changed_while_a_client_joins() -> None:
    """The client is let into what has become of it."""
    bench = _bench()
    async with bench.working():
        live = bench.add()
        await bench.pause(1)
        changed = replace(live, pipeline=replace(live.pipeline, latency_slo_ms=200.0), plan=None)
        bench.thread = lambda: bench.pipelines.update({live.pipeline.id: changed})
        await bench.join(live, 5)
        assert changed.plan is not None
        assert changed.plan.fps == 5


@story
async def test_what_is_wished() -> None:
    """Variants of a plan are wished for, from the first client on, and for thirty seconds after the last plan that had
    them (SC-22, SC-23).
    """
    bench = _bench(budget=70)
    bench.box.add({"big": Cost(run_ms=5, resident_bytes=60)}, name="big")
    async with bench.working():
        live = bench.add()
        await bench.join(live, 5)
        await bench.pause(1)
        memory = bench.box.memory
        builds = [bench.box.build("fine", name) for name in ("t/find", "t/read")]
        assert all(memory.is_resident(build) for build in builds)
        live.clients.leave("c1")
        bench.planning.wake()
        await bench.pause(20)
        assert all(memory.is_resident(build) for build in builds)
        wishes = bench.box.core.arbiter._states._wishes
        assert any(wish.variant == "fine" for own in wishes.values() for wish in own)
        await bench.pause(20)
        assert not any(wish.variant for own in wishes.values() for wish in own)


@story
async def test_energy_needs_watts() -> None:
    """A pipeline that is to take little energy is planned by it where watts are known, and by seconds elsewhere, which
    it says.
    """
    known = {"cpu": Watts(10.0, "measured"), "host": Watts(4.0, "declared")}
    for watts, expected in ((known, "energy"), ({}, "seconds")):
        bench = _bench(watts=watts)
        async with bench.working():
            live = bench.add(cost_by=CostBy.ENERGY)
            await bench.join(live, 10)
            problem: Any = bench.decided("admitted")[-1]["problem"]
            assert problem.cost_by == expected
            assert live.plan is not None
            assert ("watts" in live.plan.reason) is (expected == "seconds")
            assert live.plan.cost == pytest.approx(_taken(live) * (10 if watts else 1), rel=0.1)
            _replayed(bench)


@story
async def test_prices_need_to_be_known_of_all() -> None:
    """A pipeline that is to cost little is planned by seconds where a processor has no price, which it says: where
    nothing costs anything, any plan is as good as another.
    """
    for prices, expected in (({"cpu": 3.6, "host": 3.6}, "price"), ({"cpu": 3.6}, "seconds"), ({}, "seconds")):
        bench = _bench(prices=prices)
        async with bench.working():
            live = bench.add(cost_by=CostBy.PRICE)
            await bench.join(live, 10)
            problem: Any = bench.decided("admitted")[-1]["problem"]
            assert problem.cost_by == expected
            assert live.plan is not None
            assert live.plan.cost_by == expected
            assert ("prices" in live.plan.reason) is (expected == "seconds")
            _replayed(bench)


async def _told(seed: int) -> list[tuple[str, Mapping[str, object]]]:
    """A minute with clients that come and go and frames that crowd; what was decided."""
    dice = random.Random(seed)
    bench = _bench(workers=dice.choice((1, 2, 4)))
    async with bench.working():
        lives = [
            bench.add(f"p{at}", slo_ms=dice.choice((60, 200, 600)), weight=dice.choice((1.0, 2.0))) for at in range(3)
        ]
        for index in range(25):
            live = dice.choice(lives)
            match dice.randrange(4):
                case 0:
                    with suppress(PipelineNotPossible):
                        await bench.join(live, dice.choice((2.0, 5.0, 10.0)), f"c{index}")
                case 1:
                    for client in list(live.clients)[:1]:
                        live.clients.leave(client.id)
                        bench.planning.wake()
                case 2:
                    quota = Quota(memory_ceiling_bytes=dice.choice((30, 45, 1000)))
                    bench.box.catalogue.put_tenant(Tenant("t", quota))
                case _:
                    sender = next((one.id for one in live.clients), None)
                    await bench.feed(live, dice.choice((5, 20, 60)), 1.0, dice.randrange(8), sender)
            await bench.pause(dice.random())
            assert _taken(*lives) <= bench.workers + 1e-6
        assert _replayed(bench)
        return [(kind, facts) for kind, facts in bench.box.decisions.told if kind == "pipeline"]


@pytest.mark.parametrize("seed", range(8))
def test_stories_replay(seed: int) -> None:
    """Whatever comes, plans keep SLO and capacity, alone and together; equal seeds make equal decisions."""

    def decided() -> list[object]:
        return [replace_times(facts) for _, facts in run_virtual(lambda: _told(seed))]

    assert decided() == decided()


def replace_times(facts: Mapping[str, object]) -> object:
    """What was decided, as it compares."""
    return {**facts, "plan": replace(facts["plan"], facts={})}  # type: ignore[type-var]


@story
async def test_who_joins_waits_for_few_of_many_that_have_changed() -> None:
    """Where all pipelines are to be planned anew, a client has its answer when those are planned with which the round
    has begun; what the others have come to want is counted all the same, so that nobody is let in who has no room.
    """
    bench = _bench(workers=4)
    asked_of: list[int] = []

    async def slow(compute: Any) -> Any:
        about = compute.args[0]
        asked_of.append(len(about) if isinstance(about, list) else 0)
        await bench.pause(0.1 * asked_of[-1])
        return compute()

    bench.planning._solver._background = slow  # takes longer of more pipelines
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
        with pytest.raises(PipelineNotPossible):
            await bench.join(last, 60.0, "c2")
