"""How pipelines are served beside one another, in virtual time: variants, memory, processors and costs."""

import asyncio
from typing import Any

import pytest

from appliance.domain.catalogue import Quota, Tenant
from appliance.domain.pipeline import Ask, CostBy
from appliance.runtime.pipelines.accounts import Watts
from tests.fakes.clock import story
from tests.fakes.processor import Cost
from tests.present import present
from tests.runtime.pipelines.bench import (
    FIND,
    PlanningBench,
    SingleCalls,
    asked_last,
    find_and_read,
    planning_bench,
    replayed,
    taken,
)


@story
async def test_pipeline_with_more_frames_than_fit_is_degraded() -> None:
    """Frames without a joined client: cheaper variants first, then fewer frames; the plan says so (X-05) and goes back
    when fewer frames come.
    """
    async with planning_bench() as bench:
        live = bench.add()
        await bench.feed(live, 60, 3, 2)
        plan = live.plan
        assert plan is not None
        assert (plan.feasible, plan.degraded) == (True, True)
        assert "coarse" in {row.variant for row in plan.stages}
        assert "cheaper variants" in plan.reason
        assert plan.fps == pytest.approx(60, rel=0.1)
        await bench.feed(live, 200, 3, 2)
        assert present(live.plan).fps < 120
        assert "frames a second" in present(live.plan).reason
        await bench.feed(live, 10, 8, 2)
        assert not present(live.plan).degraded
        assert {row.variant for row in present(live.plan).stages} == {"fine", ""}
        replayed(bench)


@pytest.mark.parametrize("batching", ["by-profile", "none"])
@story
async def test_plan_has_no_batches_where_requests_never_share_a_run(batching: str) -> None:
    """`policies.batching` holds for plans, too."""
    read = {"fine": Cost(run_ms=8, resident_bytes=10, run_ms_by_batch={8: 16})}
    bench = PlanningBench(FIND, read, batching=batching)
    async with bench.working():
        live = bench.add()
        await bench.feed(live, 20, 2, 8)
        batches = {row.batch for row in present(live.plan).stages if row.stage == "read"}
        assert batches == ({1} if batching == "none" else {8})


@story
async def test_pipelines_beyond_capacity_share_the_processors_by_weight() -> None:
    """Two pipelines together never take more than there is."""
    async with planning_bench() as bench:
        one, two = bench.add("one", weight=2.0), bench.add("two")
        await asyncio.gather(bench.feed(one, 100, 4, 2), bench.feed(two, 100, 4, 2))
        assert taken(one, two) <= 2.0 + 1e-6
        total = present(one.plan).fps + present(two.plan).fps
        assert present(one.plan).fps / total >= 0.7 * 2 / 3
        assert present(two.plan).fps / total >= 0.7 / 3
        replayed(bench)


@story
async def test_plan_keeps_a_stages_accuracy_floor_and_named_variant() -> None:
    """The cheapest variant that reaches the floor serves, and never one below it; a named variant serves alone."""
    bench = find_and_read()
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
        await bench.refused(lives["c"], 100, id="more")


@story
async def test_shrunk_memory_ceiling_is_planned_with_the_smaller_variant() -> None:
    """Only variants that fit into memory together are offered: below the ceiling the smaller one serves, though it is
    no cheaper in time than need be.
    """
    bench = find_and_read()
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
async def test_variants_offered_to_several_pipelines_fit_memory_together() -> None:
    """Each of two pipelines would fit into memory with its most accurate variant, but not both: once both are in use,
    the first is planned with a smaller variant, which its plan says (X-05), and no longer when the other pipeline's
    client has left.
    """
    bench = find_and_read(budget=70)
    bench.box.add({"fine": Cost(run_ms=20, resident_bytes=38), "coarse": Cost(run_ms=10, resident_bytes=20)}, name="x")
    async with bench.working():
        one = bench.add("one", stages=[Ask(name="find", application_id="t/find")])
        two = bench.add("two", stages=[Ask(name="x", application_id="t/x")])
        await bench.join(one, 2, "c1")
        assert [row.variant for row in present(one.plan).stages] == ["fine"]
        await bench.join(two, 2, "c2")
        assert [[row.variant for row in present(live.plan).stages] for live in (one, two)] == [["coarse"], ["fine"]]
        assert (present(one.plan).degraded, present(two.plan).degraded) == (True, False)
        sentence = present(one.plan).reason.partition(". ")[0]
        assert sentence.endswith("not all fits into memory: smaller variants than asked for serve at find")
        assert [(facts["pipeline"], facts["outcome"]) for facts in bench.decided()[-2:]] == [
            ("t/two", "admitted"),
            ("t/one", "degraded"),
        ]
        bench.leave(two, "c2")
        await bench.pause(0.1)
        assert [row.variant for row in present(one.plan).stages] == ["fine"]
        assert not present(one.plan).degraded
        replayed(bench)


@story
async def test_throttled_processor_is_planned_with_only_where_needed() -> None:
    """A plan that fits on the other processor is made there. A client that does not fit there is let in all the same,
    and planned on both; where both are throttled, both serve.
    """
    async with planning_bench(workers=1, has_twin=True) as bench:
        live = bench.add()

        def on() -> set[str]:
            assert (present(live.plan).feasible, present(live.plan).degraded) == (True, False)
            return {row.worker for row in present(live.plan).stages if row.worker != "host"}

        await bench.join(live, 10)  # 20 ms and 8 for each of 4 items: half a worker
        bench.throttle("p")
        await bench.pause(2)
        assert on() == {"cpu"}  # the only one of its kind that is planned with
        assert [row["name"] for row in asked_last(bench)["workers"]] == ["host", "cpu"]
        await bench.join(live, 20, "c2")
        assert on() == {"p-cpu", "q-cpu"}
        rounds = bench.planning.figures.rounds
        await bench.pause(3)
        assert bench.planning.figures.rounds <= rounds + 1
        bench.throttle()
        await bench.pause(1)
        assert on() == {"p-cpu", "q-cpu"}
        bench.throttle("p", "q")
        await bench.pause(1)
        assert on() == {"p-cpu", "q-cpu"}
        assert replayed(bench) >= 3


@story
async def test_single_calls_of_other_tenants_count_for_a_fair_share_at_most() -> None:
    """Another tenant's single calls fill both workers: the plan counts one worker for them, for the queue gives this
    tenant's items theirs; nothing is counted for a tenant without calls.
    """
    async with planning_bench() as bench:
        live = bench.add()
        await bench.join(live, 20, "c1")
        feed = asyncio.create_task(bench.feed(live, 20, 40, 1, "c1"))
        await bench.pause(3)
        bench.box.engine.single_calls = SingleCalls(bench, u=2.0, v=0.0)
        await bench.pause(10)
        problem: Any = bench.decided()[-1]["problem"]
        assert 0.75 < sum(part.share for one in problem.existing for part in one.parts) <= 1.0 + 1e-9
        assert present(live.plan).feasible
        assert present(live.plan).has_all
        feed.cancel()


@story
async def test_plan_by_energy_without_watts_goes_by_seconds() -> None:
    """The plan says so; where watts are known it goes by energy."""
    known = {"cpu": Watts(10.0, "measured"), "host": Watts(4.0, "declared")}
    for watts, expected in ((known, "energy"), ({}, "seconds")):
        async with planning_bench(watts=watts) as bench:
            live = bench.add(cost_by=CostBy.ENERGY)
            await bench.join(live, 10)
            problem: Any = bench.decided("admitted")[-1]["problem"]
            assert problem.cost_by == expected
            assert ("watts" in present(live.plan).reason) is (expected == "seconds")
            assert present(live.plan).cost == pytest.approx(taken(live) * (10 if watts else 1), rel=0.1)
            replayed(bench)


@story
async def test_plan_by_price_without_all_prices_goes_by_seconds() -> None:
    """The plan says so: where nothing costs anything, any plan is as good as another."""
    for prices, expected in (({"cpu": 3.6, "host": 3.6}, "price"), ({"cpu": 3.6}, "seconds"), ({}, "seconds")):
        async with planning_bench(prices=prices) as bench:
            live = bench.add(cost_by=CostBy.PRICE)
            await bench.join(live, 10)
            problem: Any = bench.decided("admitted")[-1]["problem"]
            assert problem.cost_by == expected
            assert present(live.plan).cost_by == expected
            assert ("prices" in present(live.plan).reason) is (expected == "seconds")
            replayed(bench)
