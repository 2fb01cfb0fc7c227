"""The estimate of a link, against links whose truth is known."""

from random import Random
from statistics import median

import pytest

from appliance.policies.sending.transfer import PRIOR_LATENCY_MS, PRIOR_MS_A_BYTE, TransferEstimate, Unacknowledged
from tests.instances.sending.links import Link, lte_like, synthetic, wifi_like


def _carried(link: Link, estimate: TransferEstimate, sizes: list[int], every_ms: float) -> list[float]:
    """Send frames over a link; the relative error of what was expected of each before it was sent."""
    errors, under_way = [], list[tuple[int, float, float]]()
    for at, size in enumerate(sizes):
        now = at * every_ms
        for done in [one for one in under_way if one[2] <= now]:
            estimate.observe(*done)
            under_way.remove(done)
        line = estimate.line(now, [Unacknowledged(*one[:2]) for one in under_way])
        acknowledged = link.sent(size, now) + link.one_way_ms()
        errors.append(abs(line.acknowledged_ms(size) - acknowledged) / (acknowledged - now))
        under_way.append((size, now, acknowledged))
    return errors


@pytest.mark.parametrize("rates", [lte_like(1), lte_like(2, scale=0.5), wifi_like(3), synthetic()])
@pytest.mark.parametrize("round_trip_ms", [8.0, 32.0])
def test_transfer_estimate_is_within_15_percent_for_half_of_the_frames(
    rates: tuple[float, ...], round_trip_ms: float
) -> None:
    """Frames of 6 to 50 kB, links that change by the second: half of the expectations are within 15 %."""
    random = Random(5)
    sizes = [int(6000 * (50 / 6) ** random.random()) for _ in range(1500)]
    link = Link(rates, round_trip_ms=round_trip_ms, jitter_ms=1.0)
    assert median(_carried(link, TransferEstimate(), sizes, 100.0)) <= 0.15


def test_transfer_estimate_from_small_frames_keeps_the_rate_of_a_quick_link() -> None:
    """50 Mbit/s behind 30 ms: 6 kB a frame take 31 ms, of which the link's rate is one. With size / (time − round trip)
    a later larger frame would be expected at a fraction of the rate.
    """
    estimate = TransferEstimate()
    link = Link((50.0,), round_trip_ms=30.0, jitter_ms=0.5)
    _carried(link, estimate, [6000, 12000] * 40, 100.0)
    assert estimate.line(9000.0).acknowledged_ms(50_000) - 9000.0 == pytest.approx(38.0, rel=0.15)


def test_transfer_estimate_tells_overlapping_frames_apart() -> None:
    """Two on the line at once: each counts its own bytes, not the wait for the other."""
    estimate = TransferEstimate()
    _carried(Link((8.0,), round_trip_ms=20.0), estimate, [30_000, 60_000] * 30, 46.0)
    assert estimate.mbps == pytest.approx(8.0, rel=0.15)


def test_transfer_estimate_learns_the_latency_of_a_changed_link() -> None:
    """From 20 to 3 Mbit/s behind 6 ms, and frames of one size from then on: a large one before and a small one after
    have no latency between them. It would be ten times too long for ever, and the link ten times too quick."""
    estimate = TransferEstimate()
    link = Link((20.0,) * 3 + (3.0,) * 10, round_trip_ms=6.0)
    for at in range(40):  # as clocks are exchanged
        estimate.observe_round_trip(6.0 + at % 2)
    _carried(link, estimate, [47_000] * 46 + [18_000] * 60, 66.0)
    assert estimate.latency_ms < 12.0
    assert estimate.mbps == pytest.approx(3.0, rel=0.25)


def test_transfer_estimate_starts_with_its_priors() -> None:
    """Then small messages tell the latency, and a single frame the rate."""
    estimate = TransferEstimate()
    assert (estimate.latency_ms, estimate.ms_a_byte) == (PRIOR_LATENCY_MS, PRIOR_MS_A_BYTE)
    estimate.observe_round_trip(0.0)  # of a clock that stood still
    assert estimate.latency_ms == PRIOR_LATENCY_MS
    estimate.observe_round_trip(20.0)
    assert estimate.latency_ms == 20.0
    estimate.observe(10_000, 0.0, 30.0)
    assert estimate.ms_a_byte == pytest.approx(0.001)
    assert estimate.mbps == pytest.approx(8.0)


def test_transfer_latency_without_small_messages_is_half_of_the_quickest() -> None:
    """Until frames of different sizes say more."""
    estimate = TransferEstimate()
    estimate.observe(10_000, 0.0, 30.0)
    assert estimate.latency_ms == 15.0


def test_transfer_rate_ignores_a_single_stall() -> None:
    """One frame that an outage held up changes nothing, a second one in a row is a slower link."""
    estimate = TransferEstimate()
    _carried(Link((8.0,), round_trip_ms=20.0), estimate, [10_000, 20_000] * 10, 100.0)
    before = estimate.ms_a_byte
    estimate.observe(20_000, 3000.0, 4500.0)
    assert estimate.ms_a_byte == before
    estimate.observe(20_000, 4600.0, 5100.0)
    assert estimate.ms_a_byte > 5 * before


def test_transfer_estimate_slows_with_an_overdue_frame() -> None:
    """Before it is acknowledged; a new connection is not held up by it."""
    estimate = TransferEstimate()
    _carried(Link((8.0,), round_trip_ms=20.0), estimate, [10_000, 20_000] * 10, 100.0)
    waited = estimate.line(3000.0, [Unacknowledged(10_000, 2900.0)])
    assert waited.ms_a_byte == pytest.approx(80.0 / 10_000, rel=0.1)
    assert waited.free_ms >= 2980.0
    estimate.interrupted()
    assert estimate.line(3000.0).free_ms == 3000.0


def test_transfer_estimate_ignores_impossible_observations() -> None:
    """An empty frame, and one that was acknowledged before it was sent."""
    estimate = TransferEstimate()
    estimate.observe(0, 0.0, 10.0)
    estimate.observe(1000, 20.0, 20.0)
    assert estimate.ms_a_byte == PRIOR_MS_A_BYTE
    assert estimate.latency_ms == PRIOR_LATENCY_MS


@pytest.mark.parametrize("ms", [1.0, 8.0, 60.0])
def test_transfer_rate_after_tiny_bodies_stays(ms: float) -> None:
    """A body of one packet says how long any message takes, and nothing of the rate."""
    estimate = TransferEstimate()
    for at in range(8):
        estimate.observe_round_trip(1.0)
        estimate.observe(40_000, at * 100.0, at * 100.0 + 1.0 + 40_000 * 8 / 471e3)
    before = estimate.mbps
    for at in range(8, 14):
        estimate.observe(35, at * 100.0, at * 100.0 + ms)
    assert estimate.mbps >= 0.99 * before
