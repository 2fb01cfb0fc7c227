"""Δ and H: the paper's formulas over bounded windows."""

from math import exp
from random import Random
from statistics import fmean, pstdev

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.policies.forecast.residuals import WINDOW, HitRates, Interarrivals, Residuals, hit_chance


def test_residual_delta_is_as_worked_by_hand() -> None:
    """Early by 10, late by 30, over two applications: D = 20, σ = 10; Δ = 20 + 1.02·10 and 20 ± 2·10."""
    residuals = Residuals(initial_ns=5)
    residuals.add("a", 100, 90)
    residuals.add("b", 100, 130)
    assert residuals.delta_ns() == 30
    assert residuals.delta_ns(2.0) == 40
    assert residuals.delta_ns(0.0) == 20
    assert residuals.delta_ns(-2.0) == 0


def test_residuals_and_gaps_have_initial_values_until_observed() -> None:
    """Before the first residual and the first gap the given values hold; they return when the only application goes."""
    residuals, gaps = Residuals(7), Interarrivals(9)
    gaps.add("a", 100)
    assert (residuals.delta_ns(), gaps.mean_ns()) == (7, 9)
    residuals.add("a", 1, 2)
    gaps.add("a", 130)
    assert (residuals.delta_ns(), gaps.mean_ns()) == (1, 30)
    residuals.forget("a")
    gaps.forget("a")
    gaps.add("a", 500)
    assert (residuals.delta_ns(), gaps.mean_ns()) == (7, 9)


def test_residual_alpha_beyond_two_is_refused() -> None:
    """More than two standard deviations are not offered."""
    with pytest.raises(ValueError, match="alpha"):
        Residuals(1).delta_ns(2.1)


def test_mean_gap_is_over_all_applications() -> None:
    """Gaps 10, 20 of a and 60 of b, interleaved: H = 30."""
    gaps = Interarrivals(1)
    for application, at_ns in (("a", 0), ("b", 5), ("a", 10), ("a", 30), ("b", 65)):
        gaps.add(application, at_ns)
    assert gaps.mean_ns() == 30


def test_mean_gap_weighs_a_busy_application_no_more_than_its_window() -> None:
    """A thousand gaps of 1 count no more than the window: with as many of 101, the mean is half way."""
    gaps = Interarrivals(1)
    for k in range(1000):
        gaps.add("busy", k)
    for k in range(WINDOW + 1):
        gaps.add("quiet", 101 * k)
    assert gaps.mean_ns() == 51


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 10**12), st.integers(0, 10**12)), min_size=1))
def test_residual_running_sums_equal_the_definition(seen: list[tuple[str, int, int]]) -> None:
    """However many went through, D and σ are those of the latest values kept of each application."""
    residuals = Residuals(1)
    kept: dict[str, list[int]] = {}
    for application, predicted, actual in seen:
        residuals.add(application, predicted, actual)
        kept.setdefault(application, []).append(abs(predicted - actual))
    values = [value for of_one in kept.values() for value in of_one[-WINDOW:]]
    assert residuals.delta_ns(0.0) == pytest.approx(fmean(values), abs=1)
    assert residuals.delta_ns(1.0) == pytest.approx(fmean(values) + pstdev(values), rel=1e-6, abs=1)


def test_hit_chance_is_as_worked_by_hand() -> None:
    """Half believed, mean residual 10, a request every 100, predicted 50 after the last: on time 0.05 by the prediction
    (a Laplace density, given that
    nothing has come before), 0.01·e^-0.5 by the rate."""
    by_prediction, by_rate = 0.05 / (1 - 0.5 * exp(-5)), 0.01 * exp(-0.5)
    assert hit_chance(0.5, 0, 50, 50, 10, 0.01) == pytest.approx(by_prediction / (by_prediction + by_rate))
    assert hit_chance(0.5, 0, 50, 200, 10, 0.01) < 0.001
    overdue = exp(-2) / 10
    assert hit_chance(0.5, 0, -30, 20, 10, 0.01) == pytest.approx(overdue / (overdue + 0.01 * exp(-0.2)))
    assert 0 < hit_chance(0.5, 0, 10**9, 2 * 10**9, 0, 1e-9) < 1


def test_hit_rate_rises_for_true_forecasts_and_falls_for_false() -> None:
    """Believed at first; rises after many requests that come when predicted, falls after many that come at any time."""
    chance = Random(3)
    rates = HitRates()
    first = rates.of("true")
    for _ in range(WINDOW):
        due_s = chance.expovariate(0.1)
        for name, at_s in (("true", due_s + 0.1), ("false", chance.expovariate(0.1))):
            spread_s = 0.1 if name == "true" else 8.0
            found = hit_chance(rates.share(name), 0, round(due_s * 1e9), round(at_s * 1e9), spread_s * 1e9, 0.1e-9)
            rates.add(name, found)
    assert first > 0.9
    assert rates.of("true") > first
    assert rates.of("false") < 0.5 < first
    rates.forget("false")
    assert rates.of("false") == first
