"""Scrooge's two steps: capacity by the program, partial instances under W*, and another round without what is
missing.
"""

from collections.abc import Callable

import pytest

from appliance.lab.plan import plan_one
from appliance.lab.problems import pipeline as reader
from appliance.policies.allocation.base import TOLERANCE, AllocationInput, Existing, Module, Part, Profile, WorkerType
from appliance.policies.allocation.configurations import Plans, StagePlan, critical_ms, pipeline_of, total_cost
from appliance.policies.allocation.refine import cheapest, refined
from appliance.policies.allocation.scrooge import Scrooge, capacities, without_concurrency
from tests.checkers.pipeline import broken
from tests.instances import allocation as instances
from tests.present import present

pytestmark = pytest.mark.gate("hundreds of problems are solved")

BIG, SMALL = Profile("w", 16, 1, 100.0, 160.0), Profile("w", 1, 1, 12.0, 70.0)
"""160 a second in batches of 16 (W 200 ms), or 70 one by one (W 26.3 ms)."""


def _problem(rate: float, slo_ms: float = 210.0) -> AllocationInput:
    return AllocationInput(slo_ms, (WorkerType("w", 1.0),), (Module("A", rate, (BIG, SMALL)),))


def test_scrooge_without_its_second_step_breaks_the_slo() -> None:
    """180 a second: step 1 runs all in batches of 16, and the last 20 would wait 800 ms for one; refined, they run
    one by one (SC-12).
    """
    pipeline = pipeline_of(_problem(180.0))
    assigned = present(capacities(pipeline, 210.0, {}))
    ((big, rate),) = assigned[0].items()
    assert (big.batch, round(rate, 6)) == (16, 180.0)
    assert big.latency_at(20.0) > 210.0
    plans = present(refined(pipeline, assigned))
    assert plans[0].partial is not None
    assert (plans[0].fulls[0][1], plans[0].partial[0].batch) == (1, 1)
    assert pipeline.fits(critical_ms(pipeline, plans))


def test_scrooge_releases_a_full_instance_to_fit_the_slo() -> None:
    """325 a second on workers of 160: the last 5 would wait 3.2 s for a batch, so one full instance is released to a
    larger type, which takes 165.
    """
    large = Profile("v", 16, 1, 200.0 / 3.0)
    workers = WorkerType("w", 1.0), WorkerType("v", 1.8)
    plan = Scrooge().plan(AllocationInput(210.0, workers, (Module("A", 325.0, (BIG, large)),)))
    assert [(row.worker, round(row.rate_rps, 6), round(row.instances, 6)) for row in plan.allocations] == [
        ("w", 160.0, 1.0),
        ("v", 165.0, 0.6875),
    ]


def test_greedy_fallback_fits_and_is_no_cheaper_than_the_exact_choice() -> None:
    """With no combinations allowed the search is greedy: it still fits, and costs at least what the exact choice
    does (SC-13).
    """
    dearer = 0
    for seed in range(12):
        written = reader.Problem.model_validate(instances.drawn(seed, "chain3"))
        pipeline = pipeline_of(reader.allocation_input(written))
        options = [
            [StagePlan((), (c, stage.rate_rps)) for c in stage.configurations if c.throughput_rps >= stage.rate_rps]
            for stage in pipeline.stages
        ]
        exact, greedy = cheapest(pipeline, options), cheapest(pipeline, options, exact_max=0)
        assert (exact is None) == (greedy is None)
        if exact is not None and greedy is not None:
            assert pipeline.fits(critical_ms(pipeline, greedy))
            assert total_cost(greedy) >= total_cost(exact) * (1 - TOLERANCE)
            dearer += total_cost(greedy) > total_cost(exact) * (1 + 1e-6)
    assert dearer


def test_scrooge_plans_again_without_the_missing_worker_type() -> None:
    """One Y, half taken: the program's sums fit, no placement does, so the second round does without Y (SC-16)."""
    problem = instances.paper()
    problem["workers"][1]["available"] = 2
    problem["existing"] = [
        {"worker": "Y", "index": i, "parts": [{"module": "other", "share": 0.1}], "loaded": []} for i in range(2)
    ]
    answer = plan_one({**problem, "policy": "scrooge"})
    assert not broken(problem, answer)
    assert "without Y" in str(answer["reason"])
    assert {row["worker"] for row in answer["allocations"]} == {"X"}  # type: ignore[attr-defined]
    best = plan_one(problem)
    assert not broken(problem, best)
    assert best["cost"] < answer["cost"]  # type: ignore[operator]


def test_scrooge_takes_no_more_than_the_available_share_of_a_worker() -> None:
    """With one Y for all, its share of the work is at most one worker."""
    problem = AllocationInput(
        400.0,
        (WorkerType("X", 5.0), WorkerType("Y", 1.0, 1)),
        (Module("A", 150.0, (Profile("X", 1, 1, 10.0), Profile("Y", 1, 1, 10.0))),),
        existing=(Existing("Y", 0, (Part("other", 0.25),)),),
    )
    plan = Scrooge().plan(problem)
    assert plan.feasible
    assert sum(row.instances for row in plan.allocations if row.worker == "Y") <= 0.75 + 1e-9


@pytest.mark.parametrize("policy", [Scrooge, without_concurrency])
def test_refinement_takes_no_more_workers_than_available(policy: Callable[[], Scrooge]) -> None:
    """Two stages of 0.6 of a worker each, and one cheap Y for both: one stage goes there, the other to X, 0.6 x 1 +
    0.6 x 5. Both on Y would be refused by placement, and without Y it is 6."""
    profiles = Profile("X", 1, 1, 10.0), Profile("Y", 1, 1, 10.0)
    problem = AllocationInput(
        400.0,
        (WorkerType("X", 5.0), WorkerType("Y", 1.0, 1)),
        (Module("A", 60.0, profiles), Module("B", 60.0, profiles)),
        (("A", "B"),),
    )
    plan = policy().plan(problem)
    assert plan.cost == pytest.approx(3.6)
    assert sorted(placed.worker for placed in plan.placement) == ["X", "Y"]
    assert "without" not in plan.reason


def test_greedy_refinement_keeps_to_the_room_left() -> None:
    """With no combinations allowed the search within the room is greedy; it finds the same here, and nothing where
    nothing has room.
    """
    profiles = Profile("X", 1, 1, 10.0), Profile("Y", 1, 1, 10.0)
    workers = WorkerType("X", 5.0), WorkerType("Y", 1.0, 1)
    problem = AllocationInput(400.0, workers, (Module("A", 60.0, profiles), Module("B", 60.0, profiles)), (("A", "B"),))
    pipeline = pipeline_of(problem)
    options = [[StagePlan((), (c, 60.0)) for c in stage.configurations] for stage in pipeline.stages]

    def one_y(plans: Plans) -> bool:
        return sum(plan.share for plan in plans if plan.partial and plan.partial[0].worker == "Y") <= 1.0

    plans = present(cheapest(pipeline, options, one_y, exact_max=0))
    assert total_cost(plans) == pytest.approx(3.6)
    assert cheapest(pipeline, options, lambda plans: False, exact_max=0) is None


@pytest.mark.nightly("many pipelines are planned")
def test_scrooge_on_scarce_workers_refuses_at_most_one_of_forty_pipelines() -> None:
    """Forty drawn pipelines with few workers: Scrooge never costs less than the optimum, and refuses at most one
    pipeline that has a plan."""
    refused = 0
    for seed in range(40):
        problem = instances.scarce(seed, "chain3", instances=1.5, batches=(1, 4), concurrencies=(1, 3))
        best, answer = plan_one(problem), plan_one({**problem, "policy": "scrooge"})
        refused += bool(best["feasible"]) and not answer["feasible"]
        if answer["feasible"]:
            assert not broken(problem, answer)
            assert answer["cost"] >= best["cost"] * (1 - 1e-7)  # type: ignore[operator]
    assert refused <= 1
