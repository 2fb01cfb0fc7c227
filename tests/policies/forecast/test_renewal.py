"""The renewal forecaster: what the silence so far says about the gap."""

import pytest

from appliance.policies.forecast.base import Prediction
from appliance.policies.forecast.renewal import Renewal

BURSTS = [0, 10, 20, 30, 1030, 1040, 1050, 1060, 2060, 2070]
"""Gaps 10, 10, 10, 1000, 10, 10, 10, 1000, 10."""


@pytest.mark.parametrize(
    ("history", "now_ns", "predicted"),
    [
        # Seven gaps of 10 and two of 1000: a mean of 230, and a standard deviation of 412.
        pytest.param(BURSTS, 2070, Prediction(2080, 412), id="within a burst the gap of the burst"),
        pytest.param(BURSTS, 2090, Prediction(3070, 0), id="after silence no short gap"),
        pytest.param(BURSTS, 3090, Prediction(3110, 0), id="past the longest gap as late again"),
        # Gaps 1, 2, 9: the median 2, not the mean 4; the standard deviation √(38/3) rounds to 4.
        pytest.param([0, 1, 3, 12], 12, Prediction(14, 4), id="median gap and its deviation"),
    ],
)
def test_renewal_predicts_the_median_of_the_gaps_still_possible(
    history: list[int], now_ns: int, predicted: Prediction
) -> None:
    assert Renewal().predict(history, now_ns) == predicted
