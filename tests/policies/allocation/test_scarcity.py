"""Scarce workers, by hand: what is proven, and where the search stops short of it."""

from itertools import pairwise

import pytest

from appliance.policies.allocation.base import (
    AllocationInput,
    AllocationPlan,
    BatchWait,
    Draw,
    Existing,
    Module,
    Part,
    Profile,
    WorkerType,
)
from appliance.policies.allocation.frontier import Frontier


def _taken(worker: str, share: float) -> Existing:
    return Existing(worker, 0, (Part("other", share),))


def _where(plan: AllocationPlan) -> dict[str, str]:
    return {row.module: row.worker for row in plan.allocations}


def test_scarce_worker_goes_to_the_stage_that_saves_most() -> None:
    """A worker for either of two stages: without it one costs 3, the other 10. At a price between both stages settle
    it themselves, so nothing need be searched.
    """
    workers = (WorkerType("scarce", 1.0, 1), WorkerType("near", 3.0), WorkerType("dear", 10.0))
    modules = tuple(
        Module(name, 100.0, (Profile("scarce", 1, 1, 10.0), Profile(other, 1, 1, 10.0)))
        for name, other in (("a", "near"), ("b", "dear"))
    )
    plan = Frontier().plan(AllocationInput(100.0, workers, modules, (("a", "b"),), batch_wait=BatchWait.REST))
    assert _where(plan) == {"a": "near", "b": "scarce"}
    assert plan.cost == pytest.approx(4.0)
    assert (plan.facts["is_optimal"], plan.facts["bound"]) == (True, plan.cost)


@pytest.mark.parametrize(("taken", "worker", "cost"), [(0.4, "mixed", 2.1), (0.5, "other", 3.0)])
def test_scarce_worker_drawn_by_the_best_choice_is_counted(taken: float, worker: str, cost: float) -> None:
    """0.6 of a worker each: of the scarce one, which has 0.5 left; for 5, elsewhere; or for 3.5, on another scarce one
    that goes over to the first half of the time, which no price on the first alone makes the cheapest.
    """
    workers = (WorkerType("scarce", 1.0, 1), WorkerType("mixed", 3.0, 1), WorkerType("other", 5.0))
    profiles = (
        Profile("scarce", 1, 1, 10.0),
        Profile("mixed", 1, 1, 10.0, draws=(Draw("scarce", 0.5),)),
        Profile("other", 1, 1, 10.0),
    )
    existing = (_taken("scarce", 0.5), _taken("mixed", taken))
    problem = AllocationInput(
        100.0, workers, (Module("a", 60.0, profiles),), existing=existing, batch_wait=BatchWait.REST
    )
    plan = Frontier().plan(problem)
    assert _where(plan) == {"a": worker}
    assert plan.cost == pytest.approx(cost)
    assert plan.facts["is_optimal"] is True


def _ways(count: int, share: float) -> tuple[Profile, ...]:
    """Each slower than the one before, and a thousandth of the scarce worker less at 60 a second."""
    return tuple(Profile("scarce", at + 1, 1, 10.0 + at, 60.0 / (share - 0.001 * at)) for at in range(count))


@pytest.mark.parametrize("has_other", [True, False])
@pytest.mark.parametrize(("ways", "is_optimal"), [(29, True), (30, False)])
def test_scarce_workers_with_too_little_room_are_tried_thirty_times(
    ways: int, is_optimal: bool, has_other: bool
) -> None:
    """Of either of two workers 0.55 is left, 1.1 in all; the stage takes 0.57 to 0.6 of one, whichever way, so it goes
    elsewhere for 3, or nowhere. That is proven where fewer than thirty ways have to be seen not to fit.
    """
    other = (Profile("other", 1, 1, 10.0, 100.0),) if has_other else ()
    workers = (WorkerType("scarce", 1.0, 2), WorkerType("other", 5.0))
    existing = tuple(Existing("scarce", at, (Part("others", 0.45),)) for at in range(2))
    modules = (Module("a", 60.0, (*_ways(ways, 0.6), *other)),)
    plan = Frontier().plan(AllocationInput(1000.0, workers, modules, existing=existing, batch_wait=BatchWait.REST))
    assert _where(plan) == ({"a": "other"} if has_other else {})
    assert plan.cost == (pytest.approx(3.0) if has_other else None)
    assert plan.facts["is_optimal"] is is_optimal


@pytest.mark.parametrize(
    ("ways", "worker", "cost", "is_optimal"), [(180, "mixed", 2.1, True), (190, "other", 3.0, False)]
)
def test_search_over_too_many_scarce_choices_drops_the_dearest(
    ways: int, worker: str, cost: float, is_optimal: bool
) -> None:
    """1500 ways for eight stages are 187 each. The first stage has so many for 0.7 to 0.9 of the scarce worker, which
    has 0.5 left; one for 2.1 that takes 0.3 of it, which no price finds; and one elsewhere for 3. Each other stage
    costs a tenth.
    """
    mixed = Profile("mixed", 1, 1, 10.0, 100.0, draws=(Draw("scarce", 0.5),))
    first = Module("first", 60.0, (*_ways(ways, 0.9), mixed, Profile("other", 1, 1, 10.0, 100.0)))
    others = tuple(Module(f"m{at:02}", 10.0, (Profile("host", 1, 1, 10.0),)) for at in range(7))
    workers = (
        WorkerType("scarce", 1.0, 1),
        WorkerType("mixed", 3.0),
        WorkerType("other", 5.0),
        WorkerType("host", 1.0),
    )
    chain = tuple(pairwise(one.name for one in (first, *others)))
    existing = (_taken("scarce", 0.5),)
    plan = Frontier().plan(
        AllocationInput(10_000.0, workers, (first, *others), chain, existing, batch_wait=BatchWait.REST)
    )
    assert _where(plan)["first"] == worker
    assert plan.cost == pytest.approx(cost + 7 * 0.1)
    assert plan.facts["is_optimal"] is is_optimal
