"""The offset of a device's clock: found from exchanges, the quickest one believed, and lies ignored."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.api.streams.offset import ClockOffset


def exchange(offset: ClockOffset, at_ms: float, ahead_ms: float, up_ms: float, down_ms: float) -> None:
    """The box sends at `at_ms`; the device holds the answer for 100 ms; its clock is `ahead_ms` ahead."""
    came_ms = at_ms + down_ms + ahead_ms
    offset.asked(at_ms)
    offset.answered(at_ms, came_ms, came_ms + 100.0, at_ms + down_ms + 100.0 + up_ms)


def test_clock_offset_is_unknown_before_the_first_exchange() -> None:
    """Neither a time nor a round trip."""
    offset = ClockOffset()
    assert offset.box_ms(5.0) is None
    assert offset.rtt_ms is None


@given(st.floats(-1e9, 1e9), st.floats(0.01, 200.0))
def test_clock_offset_over_an_even_link_is_exact(ahead_ms: float, way_ms: float) -> None:
    """The same time both ways, whatever the offset is."""
    offset = ClockOffset()
    exchange(offset, 1000.0, ahead_ms, way_ms, way_ms)
    found = offset.box_ms(2000.0 + ahead_ms)
    assert found == pytest.approx(2000.0, abs=1e-3)
    assert offset.rtt_ms == pytest.approx(2 * way_ms, abs=1e-3)


def test_clock_offset_is_taken_from_the_quickest_exchanges() -> None:
    """Uploads hold most exchanges up on their way to the box; a few idle ones are enough."""
    draw = random.Random(1)
    offset = ClockOffset()
    for number in range(60):
        queue_ms = 0.0 if number % 20 == 0 else draw.uniform(5.0, 150.0)
        exchange(offset, 100.0 * number, 5_000.0, 16.0 + queue_ms, 16.0 + draw.uniform(0.0, 0.3))
    assert offset.box_ms(8_000.0) == pytest.approx(3_000.0, abs=0.3)


def test_clock_offset_follows_a_drifting_clock() -> None:
    """Exchanges are forgotten: 100 ppm over ten minutes is 60 ms, of which little is left over."""
    offset = ClockOffset()
    for number in range(6000):
        at_ms = 100.0 * number
        exchange(offset, at_ms, 5_000.0 + at_ms * 1e-4, 16.0, 16.0)
    end_ms = 600_000.0
    assert offset.box_ms(end_ms + 5_000.0 + end_ms * 1e-4) == pytest.approx(end_ms, abs=1.0)


@pytest.mark.parametrize("step_ms", [-3_600_000.0, -40.0, 40.0, 3_600_000.0])
def test_clock_offset_follows_a_step_of_the_clock_at_once(step_ms: float) -> None:
    """By hand: round trips of 20 and 30 ms allow (20 + 30) / 2 + 5 = 30 ms between two exchanges, no more: the one
    after the step is believed though it took longer. Without a step the quicker one stays believed.
    """
    offset = ClockOffset()
    exchange(offset, 1000.0, 500.0, 10.0, 10.0)
    exchange(offset, 1200.0, 500.0, 0.0, 30.0)  # uneven: 15 ms off, as its round trip allows
    assert offset.box_ms(2500.0) == pytest.approx(2000.0)
    exchange(offset, 1400.0, 500.0 + step_ms, 15.0, 15.0)
    assert offset.rtt_ms == pytest.approx(30.0)
    assert offset.box_ms(2500.0 + step_ms) == pytest.approx(2000.0)


@pytest.mark.parametrize(
    ("of_ms", "of_came_ms", "sent_ms"),
    [
        (999.0, 0.0, 0.0),
        (1000.0, float("nan"), 5.0),
        (1000.0, 5.0, float("nan")),
        (1000.0, 5.0, float("inf")),
        (1000.0, 5.0, 4.0),
        (1000.0, 5.0, 500.0),
        (float("nan"), 5.0, 6.0),
        (1000.0, 1e16, 1e16),
    ],
    ids=[
        "of no message",
        "came never",
        "sent never",
        "sent at no time",
        "sent before",
        "held too long",
        "none",
        "huge",
    ],
)
def test_clock_offset_ignores_false_answers(of_ms: float, of_came_ms: float, sent_ms: float) -> None:
    """Answers to what was not asked, times that are none, and answers that left too early or were held too long."""
    offset = ClockOffset()
    offset.asked(1000.0)
    offset.answered(of_ms, of_came_ms, sent_ms, 1040.0)
    assert offset.box_ms(10.0) is None
    exchange(offset, 2000.0, 50.0, 5.0, 5.0)
    assert offset.box_ms(60.0) == pytest.approx(10.0)
