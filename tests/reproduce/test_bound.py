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


BOUNDS = {
    "with room every request has the best variant": (schedule(300, (10, 0), (20, 0)), 0, 90),
    "without room for it the smaller variant counts": (schedule(299, (10, 0)), 0, 70),
    "simultaneous requests share memory in whole variants": (schedule(300, (10, 0), (10, 1), models=2), 0, 70),
    "distant requests use the memory twice": (schedule(300, (10, 0), (20, 1), models=2), 0, 90),
    "2 s apart only one request can have what loads for 3 s": (schedule(300, (10, 0), (12, 1), models=2), 0, 80),
    "a variant that is kept from 10 s to 14 s leaves no room between": (
        schedule(300, (10, 0), (12, 1), (14, 0), models=2),
        0,
        (90 + 70 + 70) / 3,
    ),
    "a request before its load time may be cold": (schedule(300, (0.5, 0), (10, 0)), 1, 90),
    "of simultaneous requests one may be cold": (schedule(300, (10, 0), (10, 1), models=2), 1, 90),
    "an impatient request has no cold answer": (Schedule(300, [[LARGE, SMALL]], [Ask(S // 2, 0, S // 4)]), None, 0),
}
"""Schedules, cold requests that are allowed (None: any number), the highest utility."""


@pytest.mark.parametrize(("asked", "cold_max", "best"), BOUNDS.values(), ids=BOUNDS)
def test_bound_of_a_plain_schedule_is_exact(asked: Schedule, cold_max: int | None, best: float) -> None:
    assert bound(asked, cold_max=cold_max).utility_most == pytest.approx(best, abs=1e-3)


@pytest.mark.parametrize(
    ("asked", "least"),
    [
        (schedule(300, (10, 0), (20, 0)), 0),
        (schedule(300, (0.5, 0), (10, 0)), 1),  # before its load time
        (schedule(100, (10, 0), (10, 1), models=2), 1),  # memory for one of two
    ],
)
def test_bound_on_cold_requests_of_a_plain_schedule_is_exact(asked: Schedule, least: int) -> None:
    assert bound(asked).cold_least == pytest.approx(least, abs=1e-4)


@pytest.mark.parametrize(("run_s", "unload_s", "best"), [(0, 0, 90), (0.5, 0, 80), (0, 0.5, 80)])
def test_bound_counts_run_and_unload_time_before_the_next_load(run_s: float, unload_s: float, best: float) -> None:
    """The load for the second request must begin when the first request comes."""
    large = Choice(300, 90.0, 3 * S, run_ns=round(run_s * S), unload_ns=round(unload_s * S))
    one = Schedule(300, [[large, SMALL]] * 2, [Ask(10 * S, 0, 30 * S), Ask(13 * S, 1, 30 * S)])
    assert bound(one, cold_max=0).utility_most == pytest.approx(best, abs=1e-3)


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
