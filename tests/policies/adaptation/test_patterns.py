"""Places by rate in one instance, by hand."""

import pytest

from appliance.policies.adaptation.base import AdaptationInput, Client, Network
from appliance.policies.adaptation.options import Options, options_of
from appliance.policies.adaptation.patterns import coarse_rates, patterns_of


def options(*rates: float) -> Options:
    """Clients of these rates, and one network that carries six requests a second."""
    clients = tuple(Client(f"c{at}", rate, 1000.0, 1e9) for at, rate in enumerate(rates))
    return options_of(AdaptationInput((Network("n", 0.5, 0.0, {1: 1000.0 / 6.0}),), 1, clients))


@pytest.mark.parametrize(("most", "is_found"), [(3, True), (2, False)])
def test_patterns_beyond_the_allowed_number_are_not_listed(most: int, is_found: bool) -> None:
    """Of rates 2 and 3, six carry three of 2, one of each, or two of 3: three patterns."""
    problem = options(2.0, 2.0, 2.0, 3.0, 3.0)
    patterns = patterns_of(problem, coarse_rates(problem, 2), most)
    assert (patterns is not None) is is_found
    if patterns is not None:
        assert sorted(patterns.places.tolist()) == [[0.0, 2.0], [1.0, 1.0], [3.0, 0.0]]


@pytest.mark.parametrize(("kinds", "rates"), [(3, [1.0, 2.0, 5.0]), (2, [2.0, 5.0]), (1, [5.0])])
def test_coarse_rates_round_up_where_that_adds_the_least(kinds: int, rates: list[float]) -> None:
    """1 becomes 2, which adds 1, and not 2 becomes 5, which adds 3; of one kind all count as the largest."""
    assert coarse_rates(options(1.0, 2.0, 5.0), kinds).tolist() == rates
