"""What frames show of a link."""

import random
from statistics import median

import pytest

from appliance.clock import NS_PER_MS, NS_PER_S
from appliance.policies.adaptation.budgets import harmonic_mean_bps
from appliance.runtime.sessions.link import LinkEstimate

START_NS = 5 * NS_PER_S


def sent(link: LinkEstimate, frame: int, at_ns: int, body_bytes: int, ms: float) -> int:
    """A frame that takes so long after its head; returns when it was whole."""
    link.begin(frame, body_bytes, at_ns)
    done_ns = at_ns + int(ms * NS_PER_MS)
    link.end(frame, body_bytes, done_ns)
    return done_ns


def test_frames_of_one_size_are_averaged_harmonically() -> None:
    """The bandwidth of the past second is the harmonic mean of its frames' (JF-06)."""
    link = LinkEstimate()
    times = (20.0, 40.0, 30.0)
    for at, ms in enumerate(times):
        sent(link, at, START_NS + at * 100 * NS_PER_MS, 40_000, ms)
    expected = harmonic_mean_bps(8000.0 * 40_000 / ms for ms in times)
    assert link.bandwidth_bps == pytest.approx(expected)


def test_small_frames_on_a_quick_link_do_not_starve_themselves() -> None:
    """What a frame takes however small it is counts as that, and not as a narrow link."""
    link = LinkEstimate()
    at_ns = START_NS
    for frame, size in enumerate((6_000, 10_000, 6_000, 14_000, 8_000, 12_000)):
        at_ns = sent(link, frame, at_ns + 60 * NS_PER_MS, size, 30.0 + size * 8000 / 50e6)
    assert link.bandwidth_bps == pytest.approx(50e6, rel=0.01)
    assert link.fixed_ms == pytest.approx(30.0, rel=0.01)
    assert link.transfer_ms(50_000) == pytest.approx(38.0, rel=0.02)


def test_a_frame_on_the_heels_of_another_counts_from_its_end() -> None:
    """Two frames share the link: the second one's own time begins when the first has come."""
    link = LinkEstimate()
    link.begin(0, 40_000, START_NS)
    link.begin(1, 40_000, START_NS + NS_PER_MS)
    assert link.end(0, 40_000, START_NS + 30 * NS_PER_MS) == pytest.approx(30.0)
    assert link.end(1, 40_000, START_NS + 60 * NS_PER_MS) == pytest.approx(30.0)


def test_a_frame_that_does_not_come_shows_a_worse_link() -> None:
    """What is under way for ten times as long as it should makes the next one expected as late."""
    link = LinkEstimate()
    sent(link, 0, START_NS, 40_000, 20.0)
    usual = link.transfer_ms(40_000, START_NS + 100 * NS_PER_MS)
    link.begin(1, 40_000, START_NS + 100 * NS_PER_MS)
    assert link.transfer_ms(40_000, START_NS + 300 * NS_PER_MS) == pytest.approx(10 * usual)
    link.broken(1)
    assert link.transfer_ms(40_000, START_NS + 300 * NS_PER_MS) == pytest.approx(usual)


def test_transfer_times_of_changing_links_are_predicted() -> None:
    """The median error over 6-50 KB on a link that wanders is at most 15 %."""
    rng = random.Random(3)
    errors = []
    for _ in range(20):
        link, at_ns, mbps = LinkEstimate(), START_NS, rng.uniform(3, 60)
        for frame in range(150):
            mbps = min(80.0, max(1.0, mbps * rng.uniform(0.93, 1.07)))
            size = rng.randrange(6_000, 50_000)
            ms = (rng.uniform(2, 4) + size * 8 / (mbps * 1000)) * rng.uniform(0.95, 1.05)
            if frame > 5:
                errors.append(abs(link.transfer_ms(size) - ms) / ms)
            at_ns = sent(link, frame, at_ns + 66 * NS_PER_MS, size, ms)
    assert median(errors) <= 0.15


def test_what_the_device_says_counts_until_frames_come() -> None:
    """A prior; absurd ones are passed over."""
    link = LinkEstimate(20e6)
    assert link.bandwidth_bps == pytest.approx(20e6)
    link.expect(float("inf"))
    link.expect(30e6)
    assert link.bandwidth_bps == pytest.approx(30e6)
    sent(link, 0, START_NS, 40_000, 40.0)
    assert link.bandwidth_bps == pytest.approx(8e6)
