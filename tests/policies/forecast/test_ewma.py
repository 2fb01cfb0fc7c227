"""Exponentially weighted inter-arrival times, in figures worked by hand."""

from appliance.policies.forecast.base import Prediction
from appliance.policies.forecast.ewma import Ewma


def test_ewma_of_two_gaps_is_as_worked_by_hand() -> None:
    """Gaps 100, 200 with weight a half: mean 150, variance ½·(0 + 50·100)."""
    assert Ewma(weight=0.5).predict([0, 100, 300], 300) == Prediction(450, 50)


def test_ewma_follows_a_change_of_rate() -> None:
    """Ten gaps after a change from 100 to 1000, the prediction is within 3 % of the new gap."""
    history = [*range(0, 6_000, 100), *range(6_900, 16_900, 1_000)]
    prediction = Ewma().predict(history, history[-1])
    assert prediction is not None
    assert abs(prediction.next_ns - history[-1] - 1_000) < 30


def test_ewma_expects_a_late_request_as_late_again() -> None:
    """3 late of a gap of 100: 3 from now; 500 late: 500 from now."""
    assert Ewma().predict([0, 100, 200], 303) == Prediction(306, 0)
    assert Ewma().predict([0, 100, 200], 800) == Prediction(1300, 0)


def test_ewma_expects_a_late_request_when_gaps_as_long_ended() -> None:
    """Gaps 100, 300, 100: 280 after the last one it is 138 late, and the only gap as long ended at 300.

    Beyond that only how late it is counts.
    """
    assert (found := Ewma().predict([0, 100, 400, 500], 780)) is not None
    assert found.next_ns == 800
    assert (found := Ewma().predict([0, 100, 400, 500], 842)) is not None
    assert found.next_ns == 1042


def test_ewma_expects_no_request_after_a_long_silence() -> None:
    """Until eight times the longest gap, which is 100 although the mean is less; the next request starts the
    forecast anew.
    """
    assert Ewma().predict([0, 100, 150], 950) is not None
    assert Ewma().predict([0, 100, 150], 951) is None
    assert Ewma().predict([0, 100, 150, 951], 951) is not None
