"""The clairvoyant's bounds: exact where the answer is plain, never below any plan or policy, and near the best plan."""

from random import Random
from statistics import fmean
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.lab.clairvoyant.bound import bound, bounds
from appliance.lab.clairvoyant.chains import Ask, Choice, Schedule
from appliance.lab.scenario import parse_scenario
from appliance.lab.simulation import simulate
from appliance.policies.residency import EVICTION_POLICIES
from tests.harness.lanes import examples
from tests.lab.every_plan import S, best_by_cold
from tests.lab.scenarios import document
from tests.reproduce.schedules import LARGE, SMALL, schedule, small_schedule

pytestmark = pytest.mark.nightly("experiments of the papers")


def test_bound_of_a_model_with_room_is_warm_and_best() -> None:
    best = bound(schedule(300, (10, 0), (20, 0)), cold_max=0)
    assert best.cold_least == pytest.approx(0, abs=1e-4)
    assert best.utility_most == pytest.approx(90, abs=1e-3)


def test_bound_without_room_for_the_best_variant_counts_the_smaller() -> None:
    assert bound(schedule(299, (10, 0)), cold_max=0).utility_most == pytest.approx(70, abs=1e-3)


def test_bound_of_simultaneous_requests_shares_memory_in_whole_variants() -> None:
    best = bound(schedule(300, (10, 0), (10, 1), models=2), cold_max=0)
    assert best.utility_most == pytest.approx(70, abs=1e-3)


def test_bound_of_distant_requests_uses_the_memory_twice() -> None:
    best = bound(schedule(300, (10, 0), (20, 1), models=2), cold_max=0)
    assert best.utility_most == pytest.approx(90, abs=1e-3)


def test_bound_counts_the_load_time_before_a_request() -> None:
    """The requests are 2 s apart and the large variant loads for 3 s: only one of the requests can have it."""
    apart = bound(schedule(300, (10, 0), (12, 1), models=2), cold_max=0)
    assert apart.utility_most == pytest.approx((90 + 70) / 2, abs=1e-3)


@pytest.mark.parametrize(("run_s", "unload_s", "best"), [(0, 0, 90), (0.5, 0, 80), (0, 0.5, 80)])
def test_bound_counts_run_and_unload_time_before_the_next_load(run_s: float, unload_s: float, best: float) -> None:
    """The load for the second request must begin when the first request comes."""
    large = Choice(300, 90.0, 3 * S, run_ns=round(run_s * S), unload_ns=round(unload_s * S))
    one = Schedule(300, [[large, SMALL]] * 2, [Ask(10 * S, 0, 30 * S), Ask(13 * S, 1, 30 * S)])
    assert bound(one, cold_max=0).utility_most == pytest.approx(best, abs=1e-3)


def test_bound_counts_the_memory_of_a_variant_kept_between_requests() -> None:
    """The first model comes at 10 and 14, the second between them, when only one of the two can have more than the
    small one.
    """
    between = schedule(300, (10, 0), (12, 1), (14, 0), models=2)
    assert bound(between, cold_max=0).utility_most == pytest.approx((90 + 70 + 70) / 3, abs=1e-3)


def test_bound_counts_a_request_before_its_load_time_as_cold() -> None:
    early = schedule(300, (0.5, 0), (10, 0))
    assert bound(early).cold_least == pytest.approx(1, abs=1e-4)
    assert bound(early, cold_max=1).utility_most == pytest.approx(90, abs=1e-3)


def test_bound_gives_no_cold_answer_to_an_impatient_request() -> None:
    hasty = Schedule(300, [[LARGE, SMALL]], [Ask(S // 2, 0, S // 4)])
    assert bound(hasty).utility_most == pytest.approx(0, abs=1e-3)


def test_bound_with_memory_for_one_of_two_requests_has_one_cold() -> None:
    assert bound(schedule(100, (10, 0), (10, 1), models=2)).cold_least == pytest.approx(1, abs=1e-4)


def test_bound_with_cold_requests_allowed_has_higher_utility() -> None:
    both = schedule(300, (10, 0), (10, 1), models=2)
    assert bound(both, cold_max=1).utility_most == pytest.approx(90, abs=1e-3)


def test_bound_without_arrivals_is_refused() -> None:
    with pytest.raises(ValueError, match="no arrivals"):
        bound(schedule(100))


def compared(seed: int) -> list[tuple[float, float]]:
    """(the best plan's utility, the bound) for each number of cold requests from the least on; the least itself is
    checked here.
    """
    drawn = small_schedule(Random(f"plans/{seed}"))
    best = best_by_cold(drawn)
    total = len(drawn.asks)
    colds = sorted(best)
    found = bounds(drawn, colds)
    assert found[0].cold_least <= colds[0]
    assert found[0].cold_least > colds[0] - 1, "with whole variants and any number of loads the bound on warm is exact"
    return [
        (max(best[c] for c in colds if c <= cold) / total, b.utility_most) for cold, b in zip(colds, found, strict=True)
    ]


def test_bound_is_above_every_plan_and_near_the_best_plan() -> None:
    pairs = [compared(seed) for seed in range(40)]
    assert all(plan <= bound for rows in pairs for plan, bound in rows)
    assert fmean(bound - plan for rows in pairs for plan, bound in rows[:1]) < 0.5


times = st.lists(st.integers(0, 4000).map(lambda n: n / 100), min_size=1, max_size=12).map(sorted)


@st.composite
def small_scenarios(draw: st.DrawFn) -> dict[str, Any]:
    arrivals = [
        {"application": name, "times_s": draw(times), **({"predicted_s": draw(times)} if draw(st.booleans()) else {})}
        for name in ("door", "captions")
    ]
    box = {"memory_mb": draw(st.integers(100, 1200)), "processors": [{"name": "cpu", "kind": "cpu"}]}
    shares = draw(st.booleans())
    applications: list[dict[str, Any]] = [
        {"name": "door", "model": "faces"},
        {"name": "captions", "model": "faces" if shares else "words"},
    ]
    if draw(st.booleans()):
        applications[0]["latency_slo_ms"] = draw(st.sampled_from([100, 1000, 3000]))
    return document(duration_s=None, arrivals=arrivals, box=box, applications=applications)


@examples(gate=40)
@given(small_scenarios(), st.sampled_from(sorted(EVICTION_POLICIES)))
def test_bound_is_above_every_eviction_policy(shape: dict[str, Any], policy: str) -> None:
    scenario = parse_scenario({**shape, "policies": {"eviction": policy}})
    figures = simulate(scenario).outcome.document()
    requests, warm, utility = figures["requests"], figures["warm"], figures["utility"]
    assert isinstance(requests, int)
    assert isinstance(warm, int)
    assert isinstance(utility, float)
    best = bound(Schedule.of(scenario), cold_max=requests - warm)
    assert requests - warm >= best.cold_least
    assert utility <= best.utility_most


@pytest.mark.parametrize(
    "changes",
    [
        {"applications": [{"name": "door", "model": "faces", "accuracy_min": 80}], "arrivals": []},
        {"faults": [{"kind": "slow-down", "at_s": 1, "factor": 0.5}]},
    ],
)
def test_schedule_with_facts_unknown_to_the_clairvoyant_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="unknown to the clairvoyant"):
        Schedule.of(parse_scenario(document(**changes)))
