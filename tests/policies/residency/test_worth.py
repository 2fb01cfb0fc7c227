"""What a variant is worth: the distribution of the next request against a sum over its density, and the order of
what may be done.
"""

from collections.abc import Sequence
from math import exp, nan
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.policies.residency.base import ApplicationState, Option, Rate, ResidencyProblem, Wish
from appliance.policies.residency.demotions import Demotion, in_columns, listed
from appliance.policies.residency.worth import COLD_POINTS, FEW, Arrivals, Outlook, Single

LARGE = Option("large", 300, 300, 90.0, 1000)
SMALL = Option("small", 100, 100, 70.0, 200)


class _One:
    """The arrivals of a single application."""

    def __init__(
        self,
        now_ns: int,
        predicted_ns: Sequence[int],
        rate_rps: float | None,
        spread_ns: float,
        patience_ns: float,
        hit_rate: float | None = None,
    ) -> None:
        self._arrivals = Arrivals(
            np.array([at_ns - now_ns for at_ns in predicted_ns] or [0], float),
            np.zeros(len(predicted_ns) or 1, int),
            np.array([1 / spread_ns if predicted_ns else 0.0]),
            np.array([rate_rps or 0.0]),
            np.array([patience_ns]),
            np.array([nan if hit_rate is None else hit_rate]),
        )

    def ever(self) -> float:
        return float(self._arrivals.ever()[0])

    def within(self, ns: float) -> float:
        return float(self._arrivals.within(np.array([0]), np.array([ns]))[0])


def _summed(ahead: float, spread: float, patience: float, ns: float) -> float:
    """The same chance, summed in small steps over Laplace's density given that nothing has come yet."""
    steps, found = 20_000, 0.0
    width = ns / steps
    stays = 1 - 0.5 * exp(-ahead / spread) if ahead > 0 else 0.5 * exp(ahead / spread)
    for step in range(steps):
        s = (step + 0.5) * width
        found += exp(-abs(s - ahead) / spread) / (2 * spread) * exp(-s / patience) * width
    return found / stays


@given(
    ahead=st.floats(-2000, 4000), spread=st.integers(50, 3000), patience=st.floats(100, 5000), ns=st.floats(100, 8000)
)
def test_arrival_chance_equals_the_integral_of_its_density(
    ahead: float, spread: int, patience: float, ns: float
) -> None:
    """Early, overdue, and where both rates are the same."""
    arrivals = _One(5000, [5000 + round(ahead)], None, spread, patience)
    assert arrivals.within(ns) == pytest.approx(_summed(round(ahead), spread, patience, ns), rel=1e-3, abs=1e-5)


def test_arrival_chance_at_equal_rates_divides_by_no_zero() -> None:
    assert _One(0, [1000], None, 500, 500.0).within(2000) == pytest.approx(_summed(1000, 500, 500, 2000), rel=1e-3)


def test_arrival_chance_of_a_distant_request_is_nearly_zero() -> None:
    """So is that of an application of which nothing is known, but it is possible."""
    assert 0 < _One(0, [10**9], None, 10, 1000.0).ever() < 1e-9
    assert 0 < _One(0, [], None, 10, 1000.0).ever() < 1e-9
    assert _One(0, [], 1.0, 10, 1e9).ever() == pytest.approx(0.5)


@given(hit_rate=st.floats(0.01, 1), ahead=st.floats(-2000, 4000))
def test_arrival_chance_weighs_a_prediction_by_its_hit_rate(hit_rate: float, ahead: float) -> None:
    """A prediction that may be false counts less, an overdue one the less the longer it is; requests that were not
    predicted come at the rate besides."""
    at_ns = 5000 + round(ahead)
    sure, unsure = (_One(5000, [at_ns], None, 500, 1000.0, rate) for rate in (None, hit_rate))
    assert unsure.ever() <= sure.ever() * (1 + 1e-9)
    assert unsure.within(700) <= sure.within(700) * (1 + 1e-9)
    at_rate = _One(5000, [at_ns], 1e6, 500, 1000.0, hit_rate)
    assert at_rate.ever() - unsure.ever() == pytest.approx((1 - hit_rate) * 1.0, abs=1e-6)
    late = [_One(10**4 * i, [0], None, 500, 1000.0, 0.9).ever() for i in (0, 1, 2)]
    assert late == sorted(late, reverse=True)


def test_prediction_without_a_hit_rate_counts_as_certain() -> None:
    """As at a rate of hits of 1, to the digit."""
    for ahead in (-700, 0, 900):
        told, untold = (_One(0, [ahead, ahead + 300], 2.0, 500, 1000.0, rate) for rate in (1.0, None))
        assert (told.ever(), told.within(400)) == (untold.ever(), untold.within(400))


def test_arrival_chances_in_columns_equal_those_of_single_applications() -> None:
    """Applications with no prediction, with one and with several; asked for any time, in any order."""
    cases = [([], 2.0, None), ([4000], 1.0, 0.7), ([900, 2500, 7000], 0.0, 0.4), ([6000, 6001], 3.0, None)]
    apart = [Single(2000, moments, rate, 500, 1000.0, hit) for moments, rate, hit in cases]
    together = Arrivals(
        np.array([at_ns - 2000 for moments, _, _ in cases for at_ns in moments or [2000]], float),
        np.repeat(np.arange(4), [1, 1, 3, 2]),
        np.array([0.0, 1 / 500, 1 / 500, 1 / 500]),
        np.array([rate for _, rate, _ in cases]),
        np.full(4, 1000.0),
        np.array([nan if hit is None else hit for _, _, hit in cases]),
    )
    assert together.ever().tolist() == [one.ever() for one in apart]
    asked = [(2, 5000.0), (0, 30.0), (3, 700.0), (2, 100.0), (1, 2500.0)]
    found = together.within(np.array([place for place, _ in asked]), np.array([ns for _, ns in asked]))
    assert found.tolist() == [apart[place].within(ns) for place, ns in asked]


def _prospect(resident: str | None, memory: int, next_ns: int = 2000) -> ResidencyProblem:
    state = ApplicationState("a", (LARGE, SMALL), resident, next_request_ns=next_ns, spread_ns=500)
    return ResidencyProblem(0, memory, 0, 0, (state,), None, "rebalance")


def test_resident_variant_is_worth_more_than_a_variant_to_load() -> None:
    """The best variant in memory, then beside the small one, then in its place, where nothing answers meanwhile;
    then nothing at all.
    """
    there = _prospect("large", 500)
    swapped = _prospect("small", 350)
    held = Outlook(there).of(there.applications[0])
    small = Outlook(swapped).of(swapped.applications[0])
    worth = [held.worth(LARGE), small.worth(LARGE, beside=True), small.worth(LARGE, beside=False), small.worth(None)]
    assert worth == sorted(worth, reverse=True)
    assert len(set(worth)) == 4
    assert small.worth(LARGE) == small.worth(LARGE, beside=False)  # 350: no room for both


def test_cold_start_costs_as_much_as_it_is_likely() -> None:
    """Certain and at once: all its points."""
    problem = _prospect(None, 500, next_ns=1)
    state = ApplicationState("a", (LARGE, SMALL), None, next_request_ns=1, spread_ns=1)
    sure = Outlook(ResidencyProblem(0, 500, 0, 0, (state,), None, "rebalance")).of(state)
    assert sure.worth(None) == pytest.approx(-COLD_POINTS, rel=0.01)
    assert Outlook(problem).of(problem.applications[0]).worth(None) > -COLD_POINTS


def test_demotions_in_columns_equal_those_worked_out_singly() -> None:
    """What is worth what, and who would give way for what, of seventy applications of every kind: to the digit."""
    problem = _many(70)
    outlook = Outlook(problem)
    assert len(problem.applications) > FEW
    apart = [worth for one in problem.applications for worth in outlook.worths([one])]
    assert outlook.worths(problem.applications) == apart
    able = [application for application in problem.applications if application.resident is not None]
    few, many = listed(problem, outlook, able), in_columns(problem, outlook.weigh(able))
    assert [_facts(one) for one in few] == [_facts(one) for one in many]
    assert few.levels() == many.levels()
    assert few.losses_of_leaving() == many.losses_of_leaving()
    for short in (1, 150, 250, 1000):
        assert _facts(few.cheapest_alone(short)) == _facts(many.cheapest_alone(short))
    out = [[_facts(one) for one in found.where(lambda one: one.after is None)] for found in (few, many)]
    assert out[0] == out[1]
    assert len(out[0]) == len(able)


def test_application_without_bytes_in_memory_is_no_demotion() -> None:
    """A variant that takes nothing, beside one of 100 bytes that can leave: listed singly and in columns."""
    nothing = Option("nothing", 0, 0, 60.0, 10)
    states = (ApplicationState("a", (nothing,), "nothing"), ApplicationState("b", (SMALL,), "small"))
    problem = ResidencyProblem(0, 500, 0, 0, states, None, "rebalance")
    outlook = Outlook(problem)
    for found in (listed(problem, outlook, states), in_columns(problem, outlook.weigh(states))):
        assert [(one.prospect.application.name, one.after, one.freed_bytes) for one in found] == [("b", None, 100)]


def _facts(one: Demotion | None) -> object:
    return None if one is None else (one.prospect.application.name, *one[1:])


def _many(count: int) -> ResidencyProblem:
    chance = Random(count)
    waking = Option("waking", 80, 80, 65.0, 50, sleeps=True)
    states = [
        ApplicationState(
            f"a{i:02}",
            (LARGE, SMALL, waking) if chance.random() < 0.3 else (LARGE, SMALL),
            chance.choice([None, "large", "small"]),
            next_request_ns=chance.choice([None, chance.randrange(9000)]),
            spread_ns=chance.choice([None, 300]),
            prediction_hit_rate=chance.choice([None, chance.random()]),
            rate=chance.choice([None, Rate(3, 0)]),
            weight=chance.choice([1.0, 2.5]),
            wishes=(Wish("large", 9000, 3),) if chance.random() < 0.3 else (),
        )
        for i in range(count)
    ]
    chance.shuffle(states)
    return ResidencyProblem(4000, 9000, 0, 0, tuple(states), None, "rebalance", spread_ns=200)
