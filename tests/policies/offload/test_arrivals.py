"""The arrival regression: levels, trends, outliers."""

from random import Random

import pytest

from appliance.policies.offload.arrivals import predicted_uplink_ms

FRAME_MS = 1000.0 / 60.0


def test_uplink_without_arrivals_is_the_prior() -> None:
    """Nothing was seen, so the given uplink is all there is."""
    assert predicted_uplink_ms((), 12.0, 60.0, 100.0) == 12.0


def test_uplink_with_jitter_around_a_level_has_no_trend() -> None:
    """Ten arrivals at 20 ± 2 ms predict about 20 ms far ahead."""
    random = Random(4)
    arrivals = [(f, f * FRAME_MS + 20.0 + random.uniform(-2.0, 2.0)) for f in range(0, 60, 6)]
    assert predicted_uplink_ms(arrivals, 5.0, 60.0, 120.0) == pytest.approx(20.0, abs=2.0)


def test_uplink_prediction_is_met_by_three_of_four_frames() -> None:
    """A batch waits for the last of its frames: what is expected of each is no median."""
    random = Random(5)
    delays = [20.0 + random.gauss(0.0, 3.5) for _ in range(400)]
    later = 0
    for at in range(16, 400):
        arrivals = [(f, f * FRAME_MS + delays[f]) for f in range(at - 16, at)]
        later += delays[at] > predicted_uplink_ms(arrivals, 5.0, 60.0, float(at))
    assert 0.15 < later / 384 < 0.35


def test_uplink_prediction_follows_a_steady_trend() -> None:
    """0.1 ms more a frame for 60 frames: 30 frames on it is 3 ms more."""
    arrivals = [(f, f * FRAME_MS + 10.0 + 0.1 * f) for f in range(0, 66, 6)]
    assert predicted_uplink_ms(arrivals, 5.0, 60.0, 90.0) == pytest.approx(19.0, abs=0.01)


def test_uplink_prediction_ignores_two_outliers_in_ten() -> None:
    """A frame that was late by half a second says nothing about the next one."""
    arrivals = [(f, f * FRAME_MS + 15.0) for f in range(0, 60, 6)]
    arrivals[3] = (arrivals[3][0], arrivals[3][1] + 500.0)
    arrivals[7] = (arrivals[7][0], arrivals[7][1] + 300.0)
    assert predicted_uplink_ms(arrivals, 5.0, 60.0, 90.0) == pytest.approx(15.0, abs=0.01)


def test_uplink_of_a_single_frame_seen_repeatedly_has_no_trend() -> None:
    """Five arrivals of frame 6, captured at 100 ms: three of four came no later than 18 ms after it, however far
    ahead one looks."""
    arrivals = [(6, 100.0 + delay) for delay in (20.0, 12.0, 16.0, 18.0, 14.0)]
    assert predicted_uplink_ms(arrivals, 5.0, 60.0, 600.0) == pytest.approx(18.0)
