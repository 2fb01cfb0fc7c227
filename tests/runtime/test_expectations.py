"""Δ follows from each prediction and the one request that it meant."""

from collections.abc import Sequence

import pytest

from appliance.policies.forecast.base import Prediction
from appliance.runtime.expectations import Expectations

LOAD_NS = 1


class Every100:
    """The next multiple of 100 after the last arrival's nearest one, and after now."""

    name = "every-100"

    def predict(self, arrivals_ns: Sequence[int], now_ns: int) -> Prediction | None:
        last = round(arrivals_ns[-1] / 100) * 100 if arrivals_ns else 0
        return Prediction((max(last, now_ns) // 100 + 1) * 100, 0)


def made(delta_ns: int) -> Expectations:
    return Expectations(lambda _: Every100(), alpha=0, delta_ns=delta_ns, history_ns=100)


def test_a_request_in_a_window_that_was_answered_is_measured_by_the_next_prediction() -> None:
    """The window around 200 is open until 280; 195 answers it, and 270 was meant by the prediction for 300: residuals 5 and 30."""
    expectations = made(80)
    expectations.arrived("a", 100)
    expectations.step(expectations.of("a"), LOAD_NS, 150)
    assert expectations.of("a").is_maximalist
    expectations.arrived("a", 195)
    assert expectations.delta_ns == 5
    expectations.arrived("a", 270)
    assert expectations.delta_ns == pytest.approx((5 + 30) / 2, abs=1)


def test_who_is_late_was_meant_by_the_window_that_has_closed() -> None:
    expectations = made(10)
    expectations.arrived("a", 100)
    expectation = expectations.of("a")
    expectations.step(expectation, LOAD_NS, 195)
    expectations.step(expectation, LOAD_NS, 211)
    assert (expectation.is_maximalist, expectation.predicted_ns) == (False, 300)
    expectations.arrived("a", 220)
    assert expectations.delta_ns == 20
