"""Our own policy against the optimum, against Jellyfish, and where its parts could go wrong."""

from dataclasses import replace

import pytest

from appliance.policies.adaptation.annealing import Jellyfish
from appliance.policies.adaptation.base import AdaptationInput, AdaptationPlan, Client, Network
from appliance.policies.adaptation.exchange import PairwiseExchange
from reproduce.baselines.exact import Exact
from tests.instances.adaptation import drawn, overloaded

pytestmark = pytest.mark.gate("hundreds of problems are solved")


def rank(plan: AdaptationPlan) -> tuple[int, float]:
    """Larger is better: fewer unmapped first, then the objective."""
    return -len(plan.unmapped), round(plan.objective, 6)


@pytest.mark.parametrize("each", [4, 6])
@pytest.mark.parametrize("zoo", ["yolo", "quick"])
def test_exchange_on_two_workers_finds_the_optimum(each: int, zoo: str) -> None:
    """With two workers one division is the whole problem: the optimum, overloaded or not."""
    for seed in range(2):
        for problem in (drawn(seed, 2, each, zoo=zoo), overloaded(seed, 2, each, zoo=zoo)):
            assert rank(PairwiseExchange().plan(problem)) == rank(Exact().plan(problem))


# Optima proven by `exact` (`scripts/bench planners adaptation` finds such again): seed, family, clients each, mapped,
# objective.
PROVEN = [
    (1, drawn, 6, 24, 133.38),
    (2, overloaded, 6, 23, 121.9),
    (0, drawn, 10, 40, 158.25),
    (1, drawn, 10, 39, 156.1),
    (2, overloaded, 10, 28, 132.0),
    (600, overloaded, 4, 16, 102.1),
]


@pytest.mark.parametrize(("seed", "family", "each", "mapped", "objective"), PROVEN)
def test_exchange_on_four_workers_comes_within_1_percent_of_the_optimum(
    seed: int, family: object, each: int, mapped: int, objective: float
) -> None:
    """Four workers: as many mapped as the optimum, and at least 99 % of its objective."""
    problem: AdaptationInput = family(seed, 4, each)  # type: ignore[operator]

    plan = PairwiseExchange().plan(problem)

    assert len(problem.clients) - len(plan.unmapped) == mapped
    assert 0.99 * objective <= plan.objective <= objective + 1e-6


def test_exchange_on_eight_full_workers_places_the_last_client() -> None:
    """Two overloads whose last client takes a division of more than two workers: climbs that only look at what is
    carried find it.
    """
    for seed, mapped in ((700, 46), (602, 45)):
        problem = overloaded(seed, 8, 6)
        assert len(problem.clients) - len(PairwiseExchange().plan(problem).unmapped) == mapped


@pytest.mark.nightly("many instances")
def test_exchange_serves_no_fewer_clients_than_jellyfish() -> None:
    """Over seeds, sizes and many distinct rates (which are rounded up in the search): at least as many clients as
    the paper's way.
    """
    many = tuple(7.0 + 1.37 * i for i in range(20))
    for seed in range(3):
        for problem in (drawn(seed, 4, 8), overloaded(seed, 4, 8), drawn(seed, 4, 8, rates=many)):
            assert len(PairwiseExchange().plan(problem).unmapped) <= len(Jellyfish().plan(problem).unmapped)


def test_previous_networks_do_not_change_plan_quality() -> None:
    """From the worst possible previous networks the plan is as good as from none; from its own networks nothing
    moves.
    """
    problem = drawn(2, 4, 6)
    cold = PairwiseExchange().plan(problem)
    warm = PairwiseExchange().plan(replace(problem, previous=("yolo-608",) * 4))
    again = PairwiseExchange().plan(replace(problem, previous=tuple(w.network for w in cold.workers)))

    assert warm.objective >= 0.99 * cold.objective
    assert [w.network for w in again.workers] == [w.network for w in cold.workers]


def test_large_network_that_is_more_accurate_and_faster_serves_all() -> None:
    """No assumption about sizes: of a large, accurate, quick network and a small slow one the former serves all."""
    quick, slow = Network("quick", 0.9, 5000.0, {1: 5.0}), Network("slow", 0.1, 100.0, {1: 50.0})
    clients = tuple(Client(f"c{i}", 20.0, 200.0, 1e7) for i in range(5))

    plan = PairwiseExchange().plan(AdaptationInput((slow, quick), 2, clients))

    assert {w.network for w in plan.workers} == {"quick"}
    assert plan.unmapped == ()


def test_exchange_with_hardly_any_work_allowed_still_plans_all_clients() -> None:
    plan = PairwiseExchange(work_max=1).plan(drawn(0, 8, 6))

    assert plan.unmapped == ()
    assert len(plan.workers) == 8
