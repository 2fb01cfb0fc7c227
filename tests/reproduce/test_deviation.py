"""Traces lie the asked divergence apart, and stay the same requests."""

import math
from itertools import pairwise

import pytest

from reproduce.edge_multiai.deviation import divergence, draw_traces

NAMES = ("a", "b", "c")


def test_trace_of_a_perfect_forecast_does_not_deviate() -> None:
    traces = draw_traces(NAMES, 40, 10.0, 0.0, 1)
    assert traces.predicted == traces.actual
    assert (traces.deviation, traces.sigma_s) == (0.0, 0.0)


@pytest.mark.parametrize("asked", [0.1, 0.3, 0.5, 0.9])
def test_trace_reaches_the_asked_deviation(asked: float) -> None:
    """A single request that crosses into another bin changes the deviation by about 0.02, so it is not hit exactly."""
    for seed in range(5):
        assert draw_traces(NAMES, 40, 10.0, asked, seed).deviation == pytest.approx(asked, abs=0.05)


def test_trace_of_greater_deviation_has_more_noise_and_equal_requests() -> None:
    little, much = (draw_traces(NAMES, 40, 10.0, deviation, 7) for deviation in (0.2, 0.8))
    assert little.actual == much.actual
    assert little.sigma_s < much.sigma_s
    assert {len(times) for times in (*much.actual.values(), *much.predicted.values())} == {40}


def test_trace_gaps_are_exponential() -> None:
    times = draw_traces(("a",), 4000, 10.0, 0.0, 3).actual["a"]
    gaps = [later - earlier for earlier, later in pairwise(times)]
    mean = sum(gaps) / len(gaps)
    assert mean == pytest.approx(10, rel=0.08)
    assert math.sqrt(sum((gap - mean) ** 2 for gap in gaps) / len(gaps)) == pytest.approx(mean, rel=0.1)


def test_divergence_of_two_bins_is_as_worked_by_hand() -> None:
    """Two bins, one request each, in the same and in the other bin: p = (1.1, 0.1) / 1.2."""
    assert divergence([0.5], [0.7], 1.0) == 0
    assert divergence([0.5], [1.5], 1.0) == pytest.approx((1.1 * math.log(11) - 0.1 * math.log(11)) / 1.2)
