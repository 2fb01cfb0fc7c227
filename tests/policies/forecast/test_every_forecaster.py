"""What holds of each forecaster of the family, whatever the history."""

from functools import cache
from itertools import accumulate
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.policies.forecast import FORECASTERS
from appliance.policies.forecast.base import Forecaster
from tests.policies.forecast.arrivals import PATTERNS, SECOND, arrivals
from tests.present import present

HISTORIES = st.lists(st.integers(0, 10**15), max_size=80).map(lambda gaps: list(accumulate(gaps)))


@cache
def fitted(name: str) -> Forecaster:
    forecaster = present(FORECASTERS[name].fit(arrivals([1.0, 3.0] * 40), 0))
    return forecaster


@pytest.mark.parametrize("name", FORECASTERS)
@given(history=HISTORIES, elapsed=st.integers(0, 10**16))
def test_predicted_arrival_is_in_the_future(name: str, history: list[int], elapsed: int) -> None:
    """Any history, however long the silence since: the predicted arrival is in the future and the spread is no
    negative number.
    """
    now_ns = history[-1] + elapsed if history else elapsed
    prediction = fitted(name).predict(history, now_ns)
    if prediction is not None:
        assert prediction.next_ns > now_ns
        assert prediction.spread_ns >= 0


@pytest.mark.parametrize("name", FORECASTERS)
@given(history=HISTORIES)
def test_forecast_uses_the_last_64_arrivals_only(name: str, history: list[int]) -> None:
    """Older arrivals change nothing, and the same question has the same answer."""
    now_ns = history[-1] if history else 0
    assert fitted(name).predict(history, now_ns) == fitted(name).predict(history[-64:], now_ns)


@pytest.mark.parametrize("name", FORECASTERS)
def test_forecast_of_fewer_than_two_arrivals_is_none(name: str) -> None:
    """Nothing is predicted from no arrival, nor from a single one."""
    assert fitted(name).predict([], 5) is None
    assert fitted(name).predict([5], 5) is None


@pytest.mark.parametrize("name", FORECASTERS)
@given(gaps=st.lists(st.integers(10**6, 10**12), min_size=64, max_size=80))
def test_forecast_ends_after_a_long_silence(name: str, gaps: list[int]) -> None:
    """Each time that no request came it is asked anew: two dozen windows later, and no more than 17 times the longest
    gap, it says nothing more."""
    history = list(accumulate(gaps))
    now_ns = history[-1]
    predicted: list[int] = []
    while (prediction := fitted(name).predict(history, now_ns)) is not None and len(predicted) < 100:
        predicted.append(prediction.next_ns)
        now_ns = prediction.next_ns + 10**6
    late_ns = [at_ns - predicted[0] for at_ns in predicted]
    assert len(predicted) <= 64 + 24  # a renewal process goes through the gaps that it knows first
    assert late_ns == sorted(set(late_ns))
    if name != "rnn":  # the network may have predicted a gap that was never seen
        assert predicted[-1] - history[-1] <= 17 * max(gaps[-63:])


@pytest.mark.parametrize("name", FORECASTERS)
def test_forecast_of_a_shifted_history_is_shifted(name: str) -> None:
    """Only gaps matter, not when the clock was started."""
    history = arrivals([1.0, 3.0] * 10)
    shift = 10**6 * SECOND
    here = fitted(name).predict(history, history[-1])
    there = fitted(name).predict([at + shift for at in history], history[-1] + shift)
    assert here is not None
    assert there is not None
    assert (there.next_ns - shift, there.spread_ns) == (here.next_ns, here.spread_ns)


@pytest.mark.parametrize("name", FORECASTERS)
def test_forecast_of_regular_arrivals_is_close(name: str) -> None:
    """A request each second: the next one is a second after the last, and the spread is small."""
    history = arrivals([1.0] * 60)
    forecaster = present(FORECASTERS[name].fit(history, 0))
    prediction = present(forecaster.predict(history, history[-1]))
    assert abs(prediction.next_ns - history[-1] - SECOND) < SECOND // 100
    assert prediction.spread_ns < SECOND // 50


@pytest.mark.parametrize("name", FORECASTERS)
def test_forecaster_name_matches_the_registry(name: str) -> None:
    """A forecaster says the name that it is registered under."""
    assert fitted(name).name == name


def test_arrival_patterns_are_functions_of_their_seed() -> None:
    """The histories these tests judge by are functions of their seed."""
    for pattern in PATTERNS.values():
        assert pattern(Random(3), 50) == pattern(Random(3), 50)
        assert pattern(Random(3), 50) != pattern(Random(4), 50)
