"""The memory predictor: falling memory is followed down, memory not yet free is not promised."""

from collections.abc import Callable
from functools import cache
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.policies.forecast import MEMORY_FORECASTERS
from appliance.policies.forecast.memory import MemoryForecaster, MemorySample, Trend, lows, steps_of, unrest_bytes
from appliance.policies.forecast.memory_choice import choose_memory, mean_error_bytes
from appliance.policies.forecast.memory_rnn import SAMPLES_MIN, MemoryRnn, trained
from tests.policies.forecast.curves import MB, SECOND, falling, samples, sawtooth, steady
from tests.present import present


@cache
def fitted(name: str) -> MemoryForecaster:
    forecaster = present(MEMORY_FORECASTERS[name].fit(falling(Random(0), SAMPLES_MIN), 5 * SECOND, 0))
    return forecaster


def test_trend_follows_falling_memory() -> None:
    """Ten bytes a second less: 50 less in five seconds."""
    prediction = present(Trend().predict(samples([1_000 - 10 * k for k in range(40)]), 5 * SECOND))
    assert abs(prediction.low_bytes - (1_000 - 390 - 50)) <= 1
    assert prediction.spread_bytes < 20


def test_trend_promises_no_rise_of_memory() -> None:
    """Rising memory counts as what is there now."""
    prediction = present(Trend().predict(samples([100 + 10 * k for k in range(20)]), 5 * SECOND))
    assert prediction.low_bytes == 290


def test_trend_does_not_continue_a_sudden_fall() -> None:
    """Half of the memory goes at once: from two samples later on, what is there is what will be."""
    prediction = present(Trend().predict(samples([1_000] * 20 + [500] * 3), 5 * SECOND))
    assert prediction.low_bytes == 500


@pytest.mark.parametrize("name", MEMORY_FORECASTERS)
@given(values=st.lists(st.integers(0, 10**12), max_size=80), horizon_ns=st.integers(1, 10**11))
def test_predicted_memory_is_between_zero_and_now(name: str, values: list[int], horizon_ns: int) -> None:
    """Whatever the series: never more than now, never negative; none of one sample."""
    prediction = fitted(name).predict(samples(values), horizon_ns)
    if prediction is not None:
        assert 0 <= prediction.low_bytes <= values[-1]
        assert prediction.spread_bytes >= 0
    else:
        assert len(values) < 10


def test_memory_network_learns_a_cycle() -> None:
    """On a saw-tooth the network's error is less than half the trend's, so it is chosen."""
    choice = choose_memory(sawtooth(Random(1), 200), 3 * SECOND, 0, MEMORY_FORECASTERS)
    assert choice.forecaster.name == "rnn"
    assert choice.errors_bytes["rnn"] < 0.5 * choice.errors_bytes["trend"]


@pytest.mark.parametrize("series", [falling, steady, sawtooth])
def test_memory_forecaster_with_the_least_error_is_chosen(series: Callable[[Random, int], list[MemorySample]]) -> None:
    choice = choose_memory(series(Random(2), 200), 3 * SECOND, 0, MEMORY_FORECASTERS)
    assert choice.errors_bytes[choice.forecaster.name] == min(choice.errors_bytes.values())


def test_memory_forecaster_for_few_samples_is_the_trend() -> None:
    """Without history, or without any at all, there is still a forecaster."""
    for count in (0, 1, 2, 30):
        assert choose_memory(steady(Random(1), count), 3 * SECOND, 0, MEMORY_FORECASTERS).forecaster.name == "trend"


def test_memory_network_is_not_trained_on_too_few_samples_for_its_horizon() -> None:
    """A quarter of the samples must be beyond the horizon."""
    assert trained(steady(Random(1), 100), 30 * SECOND, 0) is None


def test_memory_network_predicts_alike_after_json() -> None:
    """Stored and read again, it predicts the same; a damaged text is a ValueError."""
    series = sawtooth(Random(1), 100)
    forecaster = present(trained(series, 3 * SECOND, 0))
    copy = MemoryRnn.from_json(forecaster.to_json())
    assert copy.predict(series, 3 * SECOND) == forecaster.predict(series, 3 * SECOND)
    for damaged in ("{}", forecaster.to_json().replace('"steps": 3', '"steps": 0')):
        with pytest.raises(ValueError, match="not a forecaster"):
            MemoryRnn.from_json(damaged)


def test_memory_lows_and_steps_are_as_worked_by_hand() -> None:
    """The least of each sample and its two successors; a horizon of 2.5 periods is three steps."""
    assert lows([5, 3, 4, 6, 1], 2) == [3, 3, 1]
    assert steps_of(samples([0, 0, 0]), 5 * SECOND // 2) == 3


def test_memory_error_is_none_without_a_whole_horizon() -> None:
    """No sample of the last third has its horizon behind it, or there is one sample only."""
    series = steady(Random(1), 9)
    assert mean_error_bytes(Trend(), series, 6, 5 * SECOND) is None
    assert mean_error_bytes(Trend(), series[:1], 0, SECOND) is None


def test_memory_network_leaves_an_unlearnt_fall_to_the_trend() -> None:
    """Taught by a quiet night; then another process takes 100 MB a second: the fall is followed down as the trend
    does it.
    """
    network = present(trained(steady(Random(1), 200), 5 * SECOND, 0))
    fall = samples([(2_000 - 100 * k) * MB for k in range(16)])
    assert network.predict(fall, 5 * SECOND) == Trend().predict(fall, 5 * SECOND)
    assert network.predict(steady(Random(2), 64), 5 * SECOND) != Trend().predict(steady(Random(2), 64), 5 * SECOND)


def test_memory_unrest_counts_rises_and_falls() -> None:
    assert unrest_bytes(samples([5, 3, 4])) == 3
    assert unrest_bytes([]) == 0
