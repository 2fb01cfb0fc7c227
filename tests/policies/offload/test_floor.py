"""The default serves no fewer clients than any baseline, where some see old results above all; and what bounds the
baselines' search.
"""

import pytest

from appliance.policies.offload import OFFLOAD_POLICIES
from appliance.policies.offload.base import Client, OffloadInput
from appliance.policies.offload.fleet import fleet_of, step1
from appliance.policies.offload.ledger import opening
from appliance.policies.offload.reactive import arise_alpha, clipper_searched, floor, static_searched
from appliance.policies.offload.verify import allowed_after, is_hopeless
from tests.checkers.offload import check
from tests.instances.offload.random_scenes import drawn
from tests.instances.offload.stale_scenes import stale_scene

pytestmark = pytest.mark.gate("hundreds of problems are solved")

BASELINES = [name for name in OFFLOAD_POLICIES if name != "earliest-due"]


def _served(name: str, problem: OffloadInput) -> int:
    return len(OFFLOAD_POLICIES[name]().plan(problem).clients)


@pytest.mark.parametrize("seed", [3, 22, 26, 28, 31, 43, 55])
def test_default_serves_as_many_as_any_baseline_with_old_results(seed: int) -> None:
    """Scenes with clients whose shown result is up to 1.5 s old: such a client once kept out up to thirteen others,
    which `static-searched` served."""
    problem = stale_scene(seed)
    plan = OFFLOAD_POLICIES["earliest-due"]().plan(problem)

    assert check(problem, plan).faults == ()
    assert len(plan.clients) >= max(_served(name, problem) for name in BASELINES)


@pytest.mark.parametrize("seed", [107, 354, 373])
def test_default_keeps_as_many_of_six_clients_with_old_results_as_static(seed: int) -> None:
    """Six served clients: two or three were kept, where `static-searched` keeps four or five."""
    problem = stale_scene(seed, (6, 6))
    assert _served("earliest-due", problem) >= _served("static-searched", problem) >= 4


@pytest.mark.nightly("many instances")
@pytest.mark.parametrize("seed", range(12))
def test_default_serves_as_many_as_any_baseline_in_small_scenes(seed: int) -> None:
    """Small scenes, with and without old results. Measured, not proven: in 2 of 302 scenes `arise` serves one more."""
    for problem in (stale_scene(seed, (2, 8)), drawn(seed, 5)):
        assert _served("earliest-due", problem) >= max(_served(name, problem) for name in BASELINES)


@pytest.mark.parametrize("seed", range(10))
def test_floor_serves_as_many_as_the_best_baseline(seed: int) -> None:
    """Tunings left out and searches cut short lose nothing in these scenes: for one client fewer than the best baseline
    serves, the floor finds that many.
    """
    problem = stale_scene(seed, (2, 8))
    names = ("static-searched", "clipper-like-searched", "arise-alpha")
    best = max(_served(name, problem) for name in names)
    if best > 1:
        found = floor(fleet_of(problem), beat=best - 1)
        assert found is not None
        assert len(found[0].verified.members) >= best


def test_default_serves_more_where_the_floor_finds_too_little() -> None:
    """Three clients are served by `static-searched`, which the floor, told to beat two, misses; the default serves
    four."""
    problem = stale_scene(262143, (2, 8))
    assert floor(fleet_of(problem), beat=2) is None
    assert _served("static-searched", problem) == 3
    assert _served("earliest-due", problem) == 4


def test_old_result_reduces_the_allowed_stride() -> None:
    """60 fps, 10 ms up, run and down: a result due 2 frames after capture.

    Half a second without one costs 30 displays at up to 32 strides; what the SLA
    allows on the mean is less after it. A client that was shown nothing, or a fresh result, owes nothing."""
    fresh = Client("a", 0.005, 0.1, 10.0, 10.0, 299, 5000.0, 299, 5000.0)
    stale = Client("b", 0.005, 0.1, 10.0, 10.0, 270, 4510.0, 270, 4540.0)
    new = Client("c", 0.005, 0.1, 10.0, 10.0)
    fleet = fleet_of(OffloadInput(60.0, 5000.0, 1000.0, {1: 10.0}, (fresh, stale), (new,)))
    state = opening(fleet)
    owed = [fleet.allowed[i] - allowed_after(fleet, state, i) for i in range(3)]

    assert owed[0] == 0.0
    assert owed[1] > 0.0
    assert owed[2] == 0.0
    assert not any(is_hopeless(fleet, state, i) for i in range(3))


def test_search_leaves_out_tunings_that_cannot_carry_the_clients() -> None:
    """Twenty clients that each need 15 results a second of a network that gives 40: no setting is tried, and none
    found.
    """
    crowd = tuple(Client(f"c{i:02}", 0.02, 0.04, 5.0, 5.0) for i in range(20))
    fleet = fleet_of(OffloadInput(60.0, 0.0, 1000.0, {1: 25.0}, (), crowd))
    load = step1(fleet).load

    assert static_searched().best(fleet, load, beat=19) is None
    assert clipper_searched().best(fleet, load, beat=19) is None
    assert arise_alpha().best(fleet, load, beat=19) is not None
    assert floor(fleet, beat=19) is None
