"""What frames show of a link."""

import random
from statistics import harmonic_mean, median

import pytest

from appliance.clock import NS_PER_MS, NS_PER_S
from appliance.domain.session import FrameHead, LatencyPromise
from appliance.domain.states import SessionState
from appliance.runtime.sessions.link import LinkEstimate
from appliance.tasks.base import Media
from tests.fakes.clock import story
from tests.fakes.processor import Cost
from tests.runtime.sessions.fleet import PICTURE, box_with

START_NS = 5 * NS_PER_S


def sent(link: LinkEstimate, frame: int, at_ns: int, body_bytes: int, ms: float) -> int:
    """A frame that takes so long after its head; returns when it was whole."""
    link.begin(frame, body_bytes, at_ns)
    done_ns = at_ns + int(ms * NS_PER_MS)
    link.end(frame, body_bytes, done_ns)
    return done_ns


def sent_apart(link: LinkEstimate, *frames: tuple[int, float], from_ns: int = START_NS, first: int = 0) -> int:
    """Frames of so many bytes that take so many milliseconds, each 60 ms after the one before; returns when the last
    was whole.
    """
    for at, (body_bytes, ms) in enumerate(frames, first):
        from_ns = sent(link, at, from_ns + 60 * NS_PER_MS, body_bytes, ms)
    return from_ns


def test_link_bandwidth_is_harmonic_mean_of_frames_of_one_size() -> None:
    """The bandwidth of the past second is the harmonic mean of its frames' (JF-06)."""
    link = LinkEstimate()
    times = (20.0, 40.0, 30.0)
    for at, ms in enumerate(times):
        sent(link, at, START_NS + at * 100 * NS_PER_MS, 40_000, ms)
    expected = harmonic_mean([8000.0 * 40_000 / ms for ms in times])
    assert link.bandwidth_bps == pytest.approx(expected)


def test_link_estimate_separates_fixed_time_from_rate_of_small_frames() -> None:
    """What a frame takes however small it is counts as fixed time, and not as a narrow link."""
    link = LinkEstimate()
    sizes = (6_000, 10_000, 6_000, 14_000, 8_000, 12_000)
    sent_apart(link, *((size, 30.0 + size * 8000 / 50e6) for size in sizes))
    assert link.bandwidth_bps == pytest.approx(50e6, rel=0.01)
    assert link.fixed_ms == pytest.approx(30.0, rel=0.01)
    assert link.transfer_ms(50_000) == pytest.approx(38.0, rel=0.02)


def test_link_counts_frame_right_after_another_from_end_of_first() -> None:
    """Two frames share the link: the second one's own time begins when the first has come."""
    link = LinkEstimate()
    link.begin(0, 40_000, START_NS)
    link.begin(1, 40_000, START_NS + NS_PER_MS)
    assert link.end(0, 40_000, START_NS + 30 * NS_PER_MS) == pytest.approx(30.0)
    assert link.end(1, 40_000, START_NS + 60 * NS_PER_MS) == pytest.approx(30.0)


def test_overdue_frame_shows_worse_link() -> None:
    """A frame under way for ten times as long as it should makes the next one expected as late."""
    link = LinkEstimate()
    sent(link, 0, START_NS, 40_000, 20.0)
    usual = link.transfer_ms(40_000, START_NS + 100 * NS_PER_MS)
    link.begin(1, 40_000, START_NS + 100 * NS_PER_MS)
    assert link.transfer_ms(40_000, START_NS + 300 * NS_PER_MS) == pytest.approx(10 * usual)
    link.broken(1)
    assert link.transfer_ms(40_000, START_NS + 300 * NS_PER_MS) == pytest.approx(usual)


def test_link_predicts_transfer_times_while_rate_wanders() -> None:
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


def test_link_rate_from_device_counts_until_frames_come() -> None:
    """A prior; absurd ones are passed over."""
    link = LinkEstimate(20e6)
    assert link.bandwidth_bps == pytest.approx(20e6)
    link.expect(float("inf"))
    link.expect(30e6)
    assert link.bandwidth_bps == pytest.approx(30e6)
    sent(link, 0, START_NS, 40_000, 40.0)
    assert link.bandwidth_bps == pytest.approx(8e6)


LOOPBACK_MS = 40_000 * 8 / 471e3
"""What 40 kB take at 471 Mbit/s."""


def on_loopback(link: LinkEstimate, count: int = 4) -> int:
    """Frames of 40 kB at 471 Mbit/s; returns when the last was whole."""
    return sent_apart(link, *[(40_000, LOOPBACK_MS)] * count)


@pytest.mark.parametrize("ms", [0.2, 1.0, 20.0, 500.0])
def test_link_estimate_is_unchanged_by_tiny_bodies(ms: float) -> None:
    """What a body of one packet takes is the box's turn, not the link's rate: not for the estimate, nor for what is
    allowed beyond it."""
    link = LinkEstimate()
    at_ns = on_loopback(link)
    before, margin = link.transfer_ms(40_000), link.margin
    sent_apart(link, *((size, ms) for size in (35, 61, 35, 250, 90, 35)), from_ns=at_ns, first=10)
    assert link.bandwidth_bps == pytest.approx(471e6, rel=0.01)
    assert link.transfer_ms(40_000) == pytest.approx(before)
    assert link.margin == margin


def test_link_of_tiny_bodies_alone_keeps_rate_from_device() -> None:
    """Tiny bodies say how long any frame takes, and nothing of the rate."""
    link = LinkEstimate(20e6)
    sent_apart(link, *((size, 3.0) for size in (35, 61, 35, 250)))
    assert link.bandwidth_bps == pytest.approx(20e6)
    assert link.transfer_ms(40) == pytest.approx(3.0, abs=0.1)
    assert link.last_ns is None


def test_link_weighs_frames_by_bytes() -> None:
    """Of 40 kB in 0.7 ms three times and 2 kB in 4 ms there are 122 kB in 6.1 ms, 160 Mbit/s; a mean of the four rates
    is 15."""
    link = LinkEstimate()
    at_ns = on_loopback(link, 3)
    sent(link, 3, at_ns + 60 * NS_PER_MS, 2_000, 4.0)
    assert link.bandwidth_bps == pytest.approx(8000 * 122_000 / (3 * LOOPBACK_MS + 4.0), rel=0.01)


@pytest.mark.parametrize(
    ("body_bytes", "times_ms", "least_bps", "most_bps"),
    [
        pytest.param(40_000, (40.0, 40.0, 0.05, 40.0), 7.99e6, 8.01e6, id="one was already received: the box was busy"),
        pytest.param(10_000, (0.1, 0.1, 0.1, 5.0, 0.1, 0.1), 50e6, 1e12, id="the box takes one up 5 ms late"),
    ],
)
def test_link_rate_does_not_follow_a_box_that_was_busy(
    body_bytes: int, times_ms: tuple[float, ...], least_bps: float, most_bps: float
) -> None:
    """What it then takes to read a frame says nothing of the link."""
    link = LinkEstimate()
    sent_apart(link, *((body_bytes, ms) for ms in times_ms))
    assert least_bps < link.bandwidth_bps < most_bps


def test_tiny_body_under_way_does_not_slow_quick_link() -> None:
    """The body is there a millisecond later than its bytes take, as everything is."""
    link = LinkEstimate()
    at_ns = on_loopback(link)
    link.begin(9, 35, at_ns + 60 * NS_PER_MS)
    assert link.transfer_ms(40_000, at_ns + 61 * NS_PER_MS) <= LOOPBACK_MS + 1.0


@story
async def test_frames_after_tiny_body_on_quick_link_are_answered() -> None:
    """One body of 35 bytes that takes a millisecond; the pictures after it are in time as those before."""
    async with box_with({640: Cost(run_ms=20)}) as (fleet, gate):
        live = await fleet.join(gate, LatencyPromise(150.0, 10.0), mbps=471.0, rtt_ms=0.2)
        for number in range(30):
            size = 35 if number == 5 else 40_000
            head = FrameHead(number, fleet.clock.now_ns(), None, None, size, 640, None, None)
            frame = fleet.sessions.frame_begins(live, head)
            await fleet.bench.pause(1.0 if number == 5 else LOOPBACK_MS)
            body = PICTURE.ljust(size)
            frame.received(body)
            await frame.answer(Media(body, "application/json"), f"r{number}")
            await fleet.pass_s(0.1)
        assert live.state is SessionState.SERVED
        assert live.counts.answered == 30
