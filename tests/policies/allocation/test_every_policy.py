"""What every allocation policy promises, on drawn pipelines with and without enough workers; the answers are checked
by code of its own.
"""

import random
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from appliance.lab.plan import plan_one
from reproduce.baselines import ALLOCATION
from tests.checkers.pipeline import broken
from tests.harness.lanes import examples
from tests.instances import allocation as instances

pytestmark = pytest.mark.gate("hundreds of problems are solved")

SMALL: dict[str, Any] = {"instances": 1.5, "batches": (1, 4), "concurrencies": (1, 3)}
shapes = st.sampled_from(["single", "chain2", "chain3", "fork", "join", "diamond", "zigzag"])
seeds = st.integers(0, 10_000)
draws = st.sampled_from([instances.drawn, instances.scarce, instances.grouped, instances.drawing])


def _plain(answer: dict[str, object]) -> dict[str, object]:
    return {key: value for key, value in answer.items() if key != "elapsed_ms"}


@pytest.mark.parametrize("policy", sorted(ALLOCATION))
@examples(gate=25)
@given(
    draw=draws,
    seed=seeds,
    shape=shapes,
    cost_by=st.sampled_from(["price", "energy", "seconds"]),
    batch_wait=st.sampled_from(["full", "rest"]),
)
def test_plan_keeps_every_rule(policy: str, draw: Any, seed: int, shape: str, cost_by: str, batch_wait: str) -> None:
    """Rates, latencies, cost, critical path, shares and workers of a feasible answer hold when worked out anew."""
    problem = {**draw(seed, shape, **SMALL), "policy": policy, "cost_by": cost_by, "batch_wait": batch_wait}
    answer = plan_one(problem)
    if answer["feasible"]:
        assert not broken(problem, answer)
    else:
        assert answer["cost"] is None
        assert answer["allocations"] == answer["placement"] == []


@pytest.mark.parametrize("policy", sorted(ALLOCATION))
@examples(gate=10)
@given(draw=draws, seed=seeds, shape=shapes)
def test_plan_depends_on_no_order_of_its_input(policy: str, draw: Any, seed: int, shape: str) -> None:
    """Shuffled workers, modules, profiles, edges and existing workers give the very same answer; so does the same
    problem twice.
    """
    problem = {**draw(seed, shape, **SMALL), "policy": policy}
    dice = random.Random(seed)
    shuffled = {**problem}
    for key in ("workers", "modules", "edges", "existing"):
        shuffled[key] = dice.sample(problem.get(key, []), len(problem.get(key, [])))
    shuffled["modules"] = [
        {**module, "profiles": dice.sample(module["profiles"], len(module["profiles"]))}
        for module in shuffled["modules"]
    ]
    answer = _plain(plan_one(problem))
    assert _plain(plan_one(shuffled)) == answer
    assert _plain(plan_one(problem)) == answer


@examples(gate=20)
@given(
    draw=draws,
    seed=seeds,
    shape=st.sampled_from(["single", "chain2", "fork"]),
    batch_wait=st.sampled_from(["full", "rest"]),
)
@example(draw=instances.grouped, seed=5542, shape="fork", batch_wait="full")
@example(draw=instances.grouped, seed=71, shape="fork", batch_wait="full")
@example(draw=instances.drawing, seed=1881, shape="chain2", batch_wait="full")
def test_default_policy_costs_what_exhaustive_search_finds(draw: Any, seed: int, shape: str, batch_wait: str) -> None:
    """The default policy costs what exhaustive search finds, also when workers are scarce, and refuses what it
    refuses.
    """
    problem = {**draw(seed, shape, instances=1.2, batches=(1, 4), concurrencies=(1, 3)), "batch_wait": batch_wait}
    best = plan_one({**problem, "policy": "brute-force"})
    answer = plan_one(problem)
    if answer["is_optimal"] and best["is_optimal"]:
        assert answer["feasible"] == best["feasible"]
        assert answer["cost"] == (pytest.approx(best["cost"], rel=1e-7) if best["feasible"] else None)


@pytest.mark.parametrize("policy", sorted((*ALLOCATION, "brute-force")))
@examples(gate=10)
@given(seed=seeds, shape=st.sampled_from(["single", "chain2"]))
def test_worker_type_alone_in_its_group_is_planned_as_ungrouped(policy: str, seed: int, shape: str) -> None:
    problem = {**instances.scarce(seed, shape, **SMALL), "policy": policy}
    alone = {**problem, "workers": [{**one, "group": one["name"]} for one in problem["workers"]]}
    assert _plain(plan_one(alone)) == _plain(plan_one(problem))


@pytest.mark.nightly("many instances")
@examples(gate=30)
@given(seed=seeds, shape=shapes)
def test_plan_with_more_workers_or_longer_slo_is_never_dearer(seed: int, shape: str) -> None:
    """One more worker of a type, or a longer SLO, never costs more nor turns an answer into a refusal."""
    problem = instances.scarce(seed, shape, **SMALL)
    first = problem["workers"][0]
    more = {**problem, "workers": [{**first, "available": first["available"] + 1}, *problem["workers"][1:]]}
    longer = {**problem, "slo_ms": problem["slo_ms"] * 1.2}
    before = plan_one(problem)
    for easier in (more, longer):
        after = plan_one(easier)
        if before["feasible"] and after["is_optimal"]:
            assert after["feasible"]
            assert after["cost"] <= before["cost"] * (1 + 1e-7)  # type: ignore[operator]


@pytest.mark.parametrize("policy", sorted(set(ALLOCATION) - {"frontier"}))
def test_default_policy_is_never_dearer_than_another_policy(policy: str) -> None:
    """No yardstick finds something cheaper than the default policy, and most of them something dearer somewhere."""
    dearer = 0
    for shape in ("chain2", "chain3", "diamond"):
        for seed in range(4):
            problem = instances.drawn(seed, shape)
            best, other = plan_one(problem), plan_one({**problem, "policy": policy})
            if other["feasible"]:
                assert best["cost"] <= other["cost"] * (1 + 1e-7)  # type: ignore[operator]
                dearer += best["cost"] < other["cost"] * (1 - 1e-4)  # type: ignore[operator]
    assert dearer


def test_plan_over_thirty_worker_types_is_proven_optimal() -> None:
    """Thirty worker types and four modules: proven optimal, and never dearer than Scrooge's program."""
    problem = instances.thirty(3)
    answer = plan_one(problem)
    assert not broken(problem, answer)
    assert answer["is_optimal"]
    assert answer["cost"] <= plan_one({**problem, "policy": "scrooge"})["cost"] * (1 + 1e-7)  # type: ignore[operator]


@pytest.mark.parametrize(
    ("shape", "most", "gap"),
    [("chain3", 250.0, 0.01), ("chain18", 3.0, 0.15)],
)
def test_plan_of_a_large_problem_is_near_its_stated_bound(shape: str, most: float, gap: float) -> None:
    """Hundreds of workers a module, or eighteen modules: the plan keeps every rule and is near the bound it tells."""
    fine: dict[str, Any] = {"batches": (1, 2, 4, 8, 16, 32), "concurrencies": (1, 2, 4), "instances": most}
    problem = instances.drawn(0, shape, **fine)
    answer = plan_one(problem)
    assert not broken(problem, answer)
    assert answer["is_optimal"] is False
    assert answer["bound"] <= answer["cost"] <= answer["bound"] * (1 + gap)  # type: ignore[operator]
