"""The forecaster of an application is the one that errs least on the latest third of its history."""

from collections.abc import Callable
from random import Random

import pytest

from appliance.policies.forecast import FORECASTERS
from appliance.policies.forecast.choice import ARRIVALS_MIN, choose, mean_error_ns
from appliance.policies.forecast.ewma import Ewma
from tests.policies.forecast.arrivals import PATTERNS, alternating, counted_bursts, poisson, random_bursts, slowing


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        (poisson, "renewal"),
        (alternating, "rnn"),
        (counted_bursts, "rnn"),
        (random_bursts, "renewal"),
        (slowing, "ewma"),
    ],
)
def test_forecaster_is_chosen_by_the_arrival_pattern(
    pattern: Callable[[Random, int], list[int]], expected: str
) -> None:
    """Chance takes the median, order the network, a changing rate the weighted mean."""
    assert choose(pattern(Random(7), 200), 0, FORECASTERS).forecaster.name == expected


@pytest.mark.parametrize("pattern", PATTERNS.values(), ids=PATTERNS.keys())
def test_forecaster_with_the_least_error_is_chosen(pattern: Callable[[Random, int], list[int]]) -> None:
    """Whatever the pattern, no candidate has a smaller error than the chosen one, and the errors are those of the
    candidates themselves.
    """
    history = pattern(Random(11), 120)
    choice = choose(history, 0, FORECASTERS)
    assert set(choice.errors_ns) == set(FORECASTERS)
    assert choice.errors_ns[choice.forecaster.name] == min(choice.errors_ns.values())
    assert choice.errors_ns["ewma"] == mean_error_ns(Ewma(), history, 80)
    assert choice.held_out == 40


def test_forecaster_for_little_history_is_the_default() -> None:
    """Below the minimum nothing is measured, not even with no arrival at all."""
    for count in (0, 1, ARRIVALS_MIN - 1):
        choice = choose(alternating(Random(1), count), 0, FORECASTERS)
        assert choice.forecaster == Ewma()
        assert choice.errors_ns == {}


def test_forecaster_without_enough_training_data_is_not_scored() -> None:
    """Twenty arrivals are too few for the network: it is neither scored nor chosen."""
    assert set(choose(alternating(Random(1), 20), 0, FORECASTERS).errors_ns) == {"ewma", "renewal"}


def test_forecaster_choice_on_a_tie_is_the_simpler() -> None:
    """Perfectly regular arrivals: all are right, the weighted mean stays."""
    history = [k * 1_000 for k in range(100)]
    two = {name: FORECASTERS[name] for name in ("ewma", "renewal")}
    assert choose(history, 0, two).forecaster.name == "ewma"


def test_forecaster_choice_is_a_function_of_history_and_seed() -> None:
    history = counted_bursts(Random(1), 100)
    first, second = choose(history, 5, FORECASTERS), choose(history, 5, FORECASTERS)
    assert first.errors_ns == second.errors_ns
    assert first.forecaster.predict(history, history[-1]) == second.forecaster.predict(history, history[-1])
