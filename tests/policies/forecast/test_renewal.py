"""The renewal forecaster: what the silence so far says about the gap."""

from appliance.policies.forecast.base import Prediction
from appliance.policies.forecast.renewal import Renewal

BURSTS = [0, 10, 20, 30, 1030, 1040, 1050, 1060, 2060, 2070]
"""Gaps 10, 10, 10, 1000, 10, 10, 10, 1000, 10."""


def test_renewal_within_a_burst_predicts_the_bursts_gap() -> None:
    """Right after an arrival the median gap is one within the burst."""
    prediction = Renewal().predict(BURSTS, 2070)
    assert prediction is not None
    assert prediction.next_ns == 2080


def test_renewal_after_silence_rules_out_short_gaps() -> None:
    """Twenty after the last arrival only the gaps between bursts are possible, and they are all alike."""
    assert Renewal().predict(BURSTS, 2090) == Prediction(3070, 0)


def test_renewal_past_the_longest_gap_expects_as_late_again() -> None:
    """Past the longest gap it is overdue, and expected as long again as it is late."""
    assert Renewal().predict(BURSTS, 3090) == Prediction(3110, 0)


def test_renewal_predicts_the_median_gap_and_its_deviation() -> None:
    """Gaps 1, 2, 9: the median 2, not the mean 4; standard deviation √(38/3) rounds to 4."""
    assert Renewal().predict([0, 1, 3, 12], 12) == Prediction(14, 4)
