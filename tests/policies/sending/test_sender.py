"""What a device sends, on links that are known: in time, counted once, and never stuck."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.domain.session import DropCause, FrameEnd
from appliance.policies.sending.schedule import Orders
from appliance.policies.sending.sender import CREDIT, TRY_MS, Send, Sender, Skip
from tests.harness.lanes import examples
from tests.instances.sending.links import Link, lte_like
from tests.instances.sending.play import Fixed, play, sender
from tests.present import present

OUTAGE = ((10_000.0, 11_500.0),)


def _offered(made: Sender, frame: int, now_ms: float, size: int = 10_000) -> Send | None:
    """Capture a frame, and send it if it is to be sent."""
    made.captured(frame, now_ms)
    send = made.next(now_ms)
    if send is not None and made.smaller(size, now_ms) is None:
        made.sent(size, now_ms)
    return send


def test_sender_on_a_slow_link_with_an_outage_keeps_frames_in_time() -> None:
    """15 frames of some 40 kB a second, 150 ms each, over LTE at a third of its rate: at least 0.80 of what was
    captured is in time, at most 5 % of what was sent is late. Sending everything, or the newest two, is far from that.
    """
    for seed in range(5):
        rates = lte_like(seed, scale=0.35)
        links = [Link(rates, outages=OUTAGE, jitter_ms=3.0) for _ in range(2)]
        own = play(sender(15.0, 150.0), links.pop(), fps=15.0, seconds=40.0, deadline_ms=150.0)
        newest = play(Fixed(2, 150.0), links.pop(), fps=15.0, seconds=40.0, deadline_ms=150.0)
        assert own.in_time >= 0.80 * own.captured
        assert own.late <= 0.05 * own.sent
        assert own.in_time > newest.in_time
        assert own.reconnects == 1


@examples(gate=25)
@given(
    seed=st.integers(0, 1000),
    scale=st.floats(0.02, 2.0),
    fps=st.sampled_from([2.0, 10.0, 15.0, 60.0]),
    deadline=st.sampled_from([60.0, 150.0, 1000.0]),
    begin=st.floats(0.0, 8_000.0),
    length=st.floats(0.0, 4_000.0),
)
def test_sender_counts_every_frame_once(
    seed: int, scale: float, fps: float, deadline: float, begin: float, length: float
) -> None:
    """captured = sent + skipped, sent = answered + late + dropped + lost, over any link."""
    made = sender(fps, deadline)
    link = Link(lte_like(seed, scale=scale), outages=((begin, begin + length),), jitter_ms=5.0)
    played = play(made, link, fps=fps, seconds=12.0, deadline_ms=deadline)
    made.closed()
    counts = made.counts
    assert counts.captured == played.captured == counts.sent + counts.skipped
    assert counts.sent == played.sent == counts.ends.total()
    assert counts.ends[FrameEnd.ANSWERED] == played.in_time


def test_sender_finds_out_that_a_link_recovered() -> None:
    """After ten seconds on which nothing could be in time."""
    made = sender(15.0, 150.0)
    played = play(made, Link((0.1,) * 10 + (8.0,) * 30), fps=15.0, seconds=40.0, deadline_ms=150.0)
    assert played.in_time >= 0.6 * played.captured
    assert played.late <= 12


@pytest.mark.parametrize(("mbps", "round_trip_ms"), [(0.8, 40.0), (0.8, 10.0), (0.6, 10.0), (1.0, 40.0)])
def test_sender_on_a_much_worse_link_sends_small_frames(mbps: float, round_trip_ms: float) -> None:
    """From 6 Mbit/s to a tenth, behind a box that answers heads which come too late: the smallest frames, 4 kB, take 32
    to 55 ms of the 150 and go on. What transfers took when the link fell does not keep them from being sent."""
    for seed in range(3):
        link = Link((6.0,) * 5 + (mbps,) * 25, round_trip_ms=round_trip_ms, jitter_ms=2.0)
        played = play(sender(15.0, 150.0), link, fps=15.0, seconds=30.0, deadline_ms=150.0, drops=True, seed=seed)
        assert played.in_time >= 0.85 * played.captured
        assert played.late <= 0.05 * played.sent


def test_sender_after_two_frames_dropped_as_too_late_sends_the_smallest() -> None:
    """Nothing is acknowledged of them. Not so where the box drops them for another reason."""
    for cause, size_px in ((DropCause.HOPELESS, 192), (DropCause.OVER_RATE, 640)):
        made = sender(15.0, 150.0)
        assert _offered(made, 0, 0.0) is not None
        made.answered(0, 30.0)
        for frame in (1, 2):
            send = present(_offered(made, frame, 66.0 * frame))
            assert send.size_px == 640
            made.ended(frame, FrameEnd.DROPPED, cause)
        send = present(_offered(made, 6, 400.0))
        assert send.size_px == size_px


def test_sender_has_two_frames_unacknowledged_and_keeps_the_newest() -> None:
    """A frame that waits gives way to a newer frame; an acknowledgement lets it go."""
    made = Sender(fps=100.0, deadline_ms=None)
    made.orders = Orders(size_px=160)
    assert [_offered(made, frame, 10.0 * frame) is not None for frame in range(5)] == [True] * CREDIT + [False] * 3
    assert made.counts.skips == {Skip.NEWER: 2}
    made.acknowledged(0, 60.0)
    made.acknowledged(0, 61.0)  # once is enough
    made.acknowledged(77, 61.0)  # never sent
    send = present(made.next(61.0))
    assert send.frame == 4
    assert made.next(61.0) is None  # that one is in hand
    made.given_up()
    assert made.counts.skips == {Skip.NEWER: 2, Skip.LATE: 1}


def test_sender_sends_no_frame_outside_the_plan() -> None:
    """Neither before the first plan, nor a frame that the plan leaves out."""
    made = Sender(fps=15.0, deadline_ms=150.0)
    assert not made.captured(0, 0.0)
    made.orders = Orders(interval=3.0)
    assert made.captured(1, 66.0)
    assert not made.captured(2, 133.0)
    assert made.counts.skips == {Skip.NOT_SERVED: 1, Skip.NOT_PLANNED: 1}
    made.orders = None  # served no more
    assert made.next(140.0) is None


def test_sender_shrinks_a_picture_that_would_be_late() -> None:
    """A picture that takes three times what was expected would be late."""
    made = Sender(fps=15.0, deadline_ms=250.0)
    made.orders = Orders()
    made.captured(0, 0.0)
    send = present(made.next(0.0))
    smaller = present(made.smaller(90_000, 1.0))
    assert (smaller.frame, smaller.size_px < send.size_px or smaller.quality < send.quality) == (0, True)
    assert made.smaller(1_000_000, 240.0) is None  # nothing would be in time: as it is, then
    made.sent(4_000, 2.0)
    assert made.counts.sent == 1


def test_sender_counts_one_end_per_frame() -> None:
    """The first end that comes counts; a result stands for its acknowledgement, too."""
    made = Sender(fps=15.0, deadline_ms=150.0)
    made.orders = Orders(size_px=160)
    for frame in range(6):
        now = 1000.0 * frame
        assert _offered(made, frame, now) is not None
        assert made.under_way == 1
        assert made.is_under_way(frame)
        assert not made.is_idle
        assert made.known_to == frame - 1
        made.answered(frame, now + (60.0 if frame else 200.0))
    assert made.answered(3, 9000.0) is None
    assert made.ended(3, FrameEnd.DROPPED) is None
    assert made.counts.ends == {FrameEnd.LATE: 1, FrameEnd.ANSWERED: 5}
    assert made.known_to == 5
    assert made.is_idle


def test_sender_counts_frames_on_a_broken_connection_as_lost() -> None:
    """What the box has whole may still be answered over the next connection."""
    made = Sender(fps=15.0, deadline_ms=1000.0)
    made.orders = Orders(size_px=160)
    _offered(made, 0, 0.0)
    made.acknowledged(0, 30.0)
    _offered(made, 1, 66.0)
    assert not made.is_silent(100.0)
    assert made.is_silent(2000.0)
    made.interrupted()
    assert not made.is_silent(2000.0)
    assert made.counts.ends == {FrameEnd.LOST: 1}
    assert made.answered(0, 500.0) is FrameEnd.ANSWERED
    _offered(made, 2, 600.0)
    made.captured(3, 650.0)
    made.next(650.0)
    made.captured(4, 700.0)
    made.closed()
    assert made.counts.captured == 5 == made.counts.sent + made.counts.skipped
    assert made.counts.ends.total() == made.counts.sent


def test_sender_learns_no_service_time_from_a_result_over_a_new_connection() -> None:
    """The result waited for the connection. Taken for the box's time it would keep the device from sending for
    seconds."""
    made = sender(15.0, 150.0)
    assert _offered(made, 0, 0.0) is not None
    made.acknowledged(0, 20.0)
    before_ms = made.service_ms
    made.interrupted()
    made.answered(0, 2_000.0)
    assert made.service_ms == before_ms
    assert _offered(made, 30, 2_010.0) is not None, "the next frame is sent"


def test_sender_skips_hopeless_frames_except_for_rare_tries() -> None:
    """The link is silent, and the last thing known of it is bad."""
    made = Sender(fps=15.0, deadline_ms=50.0)
    made.orders = Orders()
    assert _offered(made, 0, 0.0) is not None
    made.answered(0, 900.0)
    assert _offered(made, 1, 901.0) is None
    assert made.counts.skips == {Skip.LATE: 1}
    assert _offered(made, 2, 2.0 * TRY_MS) is not None
    made.answered(2, 1800.0)
    assert _offered(made, 3, 4.0 * TRY_MS) is None
    assert _offered(made, 4, 6.0 * TRY_MS) is not None  # twice as long each time


def test_sender_of_a_small_camera_never_exceeds_its_size() -> None:
    """The plan's size is the most that is sent."""
    made = Sender(fps=15.0, deadline_ms=None)
    made.resized(320, 240)
    made.orders = Orders(size_px=640)
    assert made.pixels(640) == 320 * 240
    send = present(_offered(made, 0, 0.0))
    assert send.size_px <= 320


def test_sender_closed_while_encoding_counts_the_frame_as_skipped() -> None:
    """The frame was to be encoded, and never was sent."""
    made = Sender(fps=15.0, deadline_ms=None)
    made.orders = Orders(size_px=160)
    made.captured(0, 0.0)
    assert made.next(0.0) is not None
    made.closed()
    assert (made.counts.captured, made.counts.sent, made.counts.skipped) == (1, 0, 1)
