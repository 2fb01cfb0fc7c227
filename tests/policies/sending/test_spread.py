"""What transfers stay below but for one of a hundred."""

import random

from appliance.policies.sending.spread import (
    MARGIN_MAX,
    MARGIN_MIN,
    MARGIN_PRIOR,
    SAMPLES_MAX,
    SAMPLES_MIN,
    Spread,
    TransferMargin,
)


def test_spread_is_exceeded_by_one_sample_in_a_hundred() -> None:
    rng = random.Random(4)
    spread, above = Spread(1.0), 0
    for _ in range(5000):
        sample = rng.lognormvariate(0.0, 0.3)
        above += sample > spread.value
        spread.observe(sample)
    assert 0.005 * 5000 <= above <= 0.02 * 5000


def test_transfer_margin_of_a_steady_link_falls_to_the_minimum() -> None:
    margin = TransferMargin()
    assert margin.factor == MARGIN_PRIOR
    for _ in range(SAMPLES_MIN - 1):
        margin.observe(10.0, 10.0)
        assert margin.factor == MARGIN_PRIOR
    for _ in range(SAMPLES_MAX):
        margin.observe(10.1, 10.0)
    assert margin.factor == MARGIN_MIN


def test_transfer_margin_grows_at_the_second_stall() -> None:
    margin = TransferMargin()
    for _ in range(SAMPLES_MAX):
        margin.observe(10.0, 10.0)
    margin.observe(17.0, 10.0)
    assert margin.factor == MARGIN_MIN
    margin.observe(17.0, 10.0)
    assert margin.factor == 1.7
    margin.observe(500.0, 10.0)
    margin.observe(500.0, 10.0)
    assert margin.factor == MARGIN_MAX
    for _ in range(SAMPLES_MAX):
        margin.observe(10.0, 10.0)
    assert margin.factor == MARGIN_MIN


def test_transfer_margin_learns_nothing_from_a_transfer_without_expectation() -> None:
    """One frame short of what it takes to leave the prior, a frame without bytes is no further one."""
    margin = TransferMargin()
    for _ in range(SAMPLES_MIN - 1):
        margin.observe(10.0, 10.0)
    margin.observe(10.0, 0.0)
    assert margin.factor == MARGIN_PRIOR
    margin.observe(10.0, 10.0)
    assert margin.factor == MARGIN_MIN
