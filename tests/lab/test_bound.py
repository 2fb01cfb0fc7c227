"""The clairvoyant's bounds: exact where the answer is plain, and never below what any policy of ours reaches."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from appliance.lab.bound import Choice, Schedule, reference
from appliance.lab.scenario import parse_scenario
from appliance.lab.simulation import simulate
from appliance.policies.eviction import EVICTION_POLICIES
from tests.lab.scenarios import document

S = 1_000_000_000
SMALL, LARGE = Choice(100, 70.0, S), Choice(300, 90.0, 3 * S)


def schedule(memory: int, *arrivals: tuple[float, int], applications: int = 1) -> Schedule:
    return Schedule(memory, [[LARGE, SMALL]] * applications, [(round(at_s * S), who) for at_s, who in arrivals])


def test_one_application_with_room_is_warm_and_best() -> None:
    bound = reference(schedule(300, (10, 0), (20, 0)), cold_max=0, grace_ns=0)
    assert bound.cold_least == pytest.approx(0, abs=1e-4)
    assert bound.utility_most == pytest.approx(90, abs=1e-3)


def test_without_room_for_the_best_variant_the_smaller_one_counts() -> None:
    assert reference(schedule(299, (10, 0)), cold_max=0, grace_ns=0).utility_most == pytest.approx(70, abs=1e-3)


def test_two_at_once_share_the_memory() -> None:
    """300 holds one large, or two small variants, or two thirds and a half ...: warm both, only 100 bytes a head more than the small ones are left."""
    bound = reference(schedule(300, (10, 0), (10, 1), applications=2), cold_max=0, grace_ns=0)
    assert bound.utility_most == pytest.approx((70 + 70 + 20 * 100 / 200) / 2, abs=1e-3)


def test_far_apart_the_memory_is_used_twice() -> None:
    bound = reference(schedule(300, (10, 0), (20, 1), applications=2), cold_max=0, grace_ns=0)
    assert bound.utility_most == pytest.approx(90, abs=1e-3)


def test_a_load_takes_its_time_before_the_request() -> None:
    """The requests are 2 s apart and the large variant loads for 3 s: only one of them can have it."""
    apart = reference(schedule(300, (10, 0), (12, 1), applications=2), cold_max=0, grace_ns=0)
    assert apart.utility_most == pytest.approx((90 + 70) / 2, abs=1e-3)


def test_what_cannot_be_loaded_in_time_is_cold() -> None:
    early = schedule(300, (0.5, 0), (10, 0))
    assert reference(early, grace_ns=0).cold_least == pytest.approx(1, abs=1e-4)
    assert reference(early, cold_max=1, grace_ns=0).utility_most == pytest.approx(90, abs=1e-3)


def test_half_of_the_memory_is_half_of_the_cold() -> None:
    bound = reference(schedule(100, (10, 0), (10, 1), applications=2), grace_ns=0)
    assert bound.cold_least == pytest.approx(1, abs=1e-4)


def test_cold_requests_buy_accuracy() -> None:
    both = schedule(300, (10, 0), (10, 1), applications=2)
    assert reference(both, cold_max=1, grace_ns=0).utility_most == pytest.approx(90, abs=1e-3)


def test_nothing_is_no_schedule() -> None:
    with pytest.raises(ValueError, match="no arrivals"):
        reference(schedule(100))


times = st.lists(st.integers(0, 4000).map(lambda n: n / 100), min_size=1, max_size=12).map(sorted)


@st.composite
def small_scenarios(draw: st.DrawFn) -> dict[str, Any]:
    arrivals = [
        {"application": name, "times_s": draw(times), **({"predicted_s": draw(times)} if draw(st.booleans()) else {})}
        for name in ("door", "captions")
    ]
    box = {"memory_mb": draw(st.integers(100, 1200)), "processors": [{"name": "cpu", "kind": "cpu"}]}
    return document(duration_s=None, arrivals=arrivals, box=box)


@settings(max_examples=25, deadline=None)
@given(small_scenarios(), st.sampled_from(sorted(EVICTION_POLICIES)))
def test_no_policy_is_better_than_the_bound(shape: dict[str, Any], policy: str) -> None:
    scenario = parse_scenario({**shape, "policies": {"eviction": policy}})
    figures = simulate(scenario).outcome.document()
    requests, warm, utility = figures["requests"], figures["warm"], figures["utility"]
    assert isinstance(requests, int)
    assert isinstance(warm, int)
    assert isinstance(utility, float)
    bound = reference(Schedule.of(scenario), cold_max=requests - warm)
    assert requests - warm >= bound.cold_least
    assert utility <= bound.utility_most
