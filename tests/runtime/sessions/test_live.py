"""A session's frames: whatever comes in whatever order, each is counted once."""

import asyncio
import gc
import weakref
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.clock import NS_PER_MS
from appliance.domain.errors import (
    ApplianceError,
    BadMedia,
    CreditExceeded,
    DeadlineExceeded,
    FrameDropped,
    FrameMismatch,
    OutOfMemory,
    QueueFull,
    RunFailed,
)
from appliance.domain.session import DropCause, FrameEnd, NoticeKind, SessionPlan
from appliance.domain.states import SessionState
from appliance.runtime.sessions.frame import PLANNED_PRIORITY, Frame, FrameCall, FrameResult
from tests.runtime.sessions.stage import Stage, running

ERRORS: Sequence[ApplianceError | None] = (
    None,
    BadMedia(reason="no picture"),
    DeadlineExceeded(waited_ms=1.0),
    DeadlineExceeded(waited_ms=1.0, ran_ms=1.0),
    RunFailed(variant_id="v", reason="r"),
    OutOfMemory(build_id="b", need_bytes=1, budget_bytes=1, variant="v"),
)
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["begin", "receive", "answer", "lose", "wait", "pause", "serve", "roll"]),
        st.integers(0, 12),
        st.integers(0, len(ERRORS) - 1),
    ),
    max_size=40,
)


@given(STEPS)
def test_session_counts_every_frame_once(steps: list[tuple[str, int, int]]) -> None:
    """Heads in any order, repeats, bodies that come or not, runs that end in every way."""

    async def story() -> None:
        stage = Stage()
        live, open_frames = stage.live, list[Frame]()
        numbers: set[int] = set()
        for step, number, how in steps:
            frame = open_frames[number % len(open_frames)] if open_frames else None
            if step == "begin":
                try:
                    open_frames.append(live.begin(stage.head(number, age_ms=how * 30.0)))
                except (FrameDropped, CreditExceeded, FrameMismatch):
                    pass
                numbers |= {number}
            elif step == "wait":
                stage.clock.pass_s(number / 50)
            elif step == "roll":
                live.roll(stage.clock.now_ns())
            elif step == "pause" and live.state is SessionState.SERVED:
                live.become(SessionState.SUSPENDED)
            elif step == "serve" and live.state is SessionState.SUSPENDED:
                live.become(SessionState.SERVED)
            elif frame is not None and step == "receive":
                frame.received(b"body")
            elif frame is not None and step == "lose":
                frame.lost()
            elif frame is not None and step == "answer":
                await frame.run(running(ERRORS[how]))
            counts = live.counts
            assert counts.captured == counts.sent + counts.skipped
            assert counts.under_way >= 0
            assert counts.sent == len(stage.ended) + counts.under_way
        for frame in open_frames:
            frame.lost()
        assert live.counts.under_way == 0
        assert live.counts.sent == len(stage.ended) == len({result.frame for result in stage.ended})
        assert {result.frame for result in stage.ended} <= numbers

    asyncio.run(story())


@pytest.mark.anyio
async def test_frame_that_has_run_does_not_count_as_dropped() -> None:
    """The deadline passes while the answer is written: late. There is no room for writing the answer: lost. Neither is
    said to have kept the processor free.
    """
    stage = Stage()
    full = QueueFull(application_id="a", queue_len_max=1)
    for number, error in enumerate((DeadlineExceeded(waited_ms=1.0), full)):
        frame = stage.frame(number)

        async def work(call: FrameCall, error: ApplianceError = error) -> bytes:
            call.ran("v")
            raise error

        await frame.run(work)
    counts = stage.live.counts
    assert (counts.late, counts.lost, dict(counts.drops)) == (1, 1, {})


@pytest.mark.anyio
async def test_frame_answered_after_deadline_is_late() -> None:
    """The device has its answer all the same."""
    stage = Stage()
    frame = stage.frame(0)

    async def slow(call: FrameCall) -> bytes:
        assert call.deadline_ns == frame.captured_ns + 100 * NS_PER_MS
        stage.clock.pass_s(200 / 1000)
        return b"{}"

    result = await frame.run(slow)
    assert (result.end, result.body) == (FrameEnd.LATE, b"{}")


@pytest.mark.anyio
async def test_session_keeps_answers_for_two_seconds() -> None:
    """Then the frame number is known, and the answer is not."""
    stage = Stage()
    frame = stage.frame(3)
    result = await frame.run(running(None))
    assert stage.live.results_since(None) == [result]
    stage.clock.pass_s(2100 / 1000)
    stage.live.roll(stage.clock.now_ns())
    assert stage.live.results_since(None) == []
    with pytest.raises(FrameMismatch):
        stage.live.begin(stage.head(3))
    assert stage.live.counts.sent == 1


@pytest.mark.anyio
async def test_kept_answers_of_session_are_bounded_in_bytes() -> None:
    """The oldest go first, and an answer that finds no room at all is sent once; how a frame ended stays known."""
    stage = Stage()

    async def answered(number: int, count: int) -> FrameResult:
        frame = stage.frame(number)

        async def work(call: FrameCall) -> bytes:
            return b"x" * count

        result = await frame.run(work)
        stage.clock.pass_s(0.1)
        return result

    told = [await answered(number, count) for number, count in enumerate((300, 300, 300, 1001))]
    assert [len(one.body or b"") for one in told] == [300, 300, 300, 1001]
    kept = stage.live.results_since(None)
    assert [(one.frame, one.end, len(one.body or b"")) for one in kept] == [
        (0, FrameEnd.ANSWERED, 0),
        (1, FrameEnd.ANSWERED, 300),
        (2, FrameEnd.ANSWERED, 300),
        (3, FrameEnd.ANSWERED, 0),
    ]
    assert stage.room.taken == 600
    with pytest.raises(FrameMismatch):
        stage.live.begin(stage.head(0))
    stage.live.become(SessionState.ENDED, "left")
    assert stage.room.taken == 0, "nobody can ask for them any more"


@pytest.mark.anyio
async def test_ended_session_keeps_no_answers() -> None:
    """A frame that was under way then is answered, once."""
    stage = Stage()
    frame = stage.frame(0)

    async def work(call: FrameCall) -> bytes:
        stage.live.become(SessionState.ENDED, "left")
        return b"{}"

    assert (await frame.run(work)).body == b"{}"
    assert stage.room.taken == 0
    assert frame.result is not None
    assert frame.result.body is None


class Mistake(Exception):
    """Our own."""


@pytest.mark.anyio
@pytest.mark.parametrize("is_ours", [False, True])
async def test_failed_frame_keeps_error_facts_only(is_ours: bool) -> None:
    """Neither the picture nor what was raised: each repeat gets a new error of the same facts."""
    stage = Stage()
    frame = stage.live.begin(stage.head(0))
    kept: list[weakref.ref[Exception]] = []

    async def work(call: FrameCall) -> bytes:
        raised = Mistake() if is_ours else BadMedia(reason="no picture")
        kept.append(weakref.ref(raised))
        raise raised

    first, again = await frame.run(work), await frame.run(work)
    gc.collect()
    assert [one() for one in kept] == [None]
    assert first.error is not None
    assert again.error is not None
    assert first.error is not again.error
    assert str(first.error) == str(again.error)
    assert frame.result is not None
    with pytest.raises(type(first.error)):
        raise first.error
    assert frame.result.error is not None
    assert frame.result.error.__traceback__ is None
    assert frame.result.error.__cause__ is None


@pytest.mark.anyio
async def test_dropped_frame_is_refused_with_new_error_each_time() -> None:
    """An error that was raised once is never raised again: its traceback would grow with every repeat."""
    stage = Stage()
    errors = []
    for _ in range(3):
        with pytest.raises(FrameDropped) as caught:
            stage.live.begin(stage.head(0, age_ms=500.0))
        errors.append(caught.value)
    assert len({id(one) for one in errors}) == 3
    assert {one.facts() == errors[0].facts() for one in errors} == {True}
    stored = stage.ended[0].error
    assert stored is not None
    assert stored.__traceback__ is None


@pytest.mark.anyio
async def test_session_memory_is_bounded() -> None:
    """However many frames come, few are remembered, and fewer with their answers."""
    stage = Stage()
    for number in range(2000):
        frame = stage.frame(number)
        await frame.run(running(None))
        stage.clock.pass_s(33 / 1000)
        if number % 15 == 0:
            stage.live.roll(stage.clock.now_ns())
    assert stage.live.frames_kept() < 120
    assert len(stage.live.results_since(None)) <= 61


@pytest.mark.anyio
async def test_device_hears_of_newest_plan_only() -> None:
    """Plans that the device did not fetch are replaced; another variant is told as such."""
    live = Stage().live
    notices = live.listen()
    for number, variant in enumerate(("a", "a", "a", "b"), 1):
        live.take(SessionPlan(number, variant, 320, 75, 2, (), 0.0, 0))
    told = []
    async for notice in notices:
        told.append((notice.kind, notice.plan and notice.plan.number))
        if notice.kind is NoticeKind.VARIANT:
            live.become(SessionState.ENDED, "left")
    assert told == [(NoticeKind.VARIANT, 4), (NoticeKind.ENDED, None)]


def test_frames_beyond_promised_rate_do_not_count_for_promise() -> None:
    """30 frames a second of a session that was promised 15: half of them are not planned. They run at no priority while
    there is room, and are dropped with a cause of their own where there is none; no window is broken by that.
    """
    stage = Stage()
    live = stage.live
    refused = planned = 0
    for number in range(330):
        stage.has_room = number % 4 != 3
        stage.clock.pass_s(1 / 30)
        try:
            frame = live.begin(stage.head(number))
        except FrameDropped:
            refused += 1
            continue
        frame.received(b"picture")
        assert (live.call_of(frame).priority == PLANNED_PRIORITY) is frame.is_planned
        planned += frame.is_planned
        frame.end(FrameResult(number, FrameEnd.ANSWERED, stage.clock.now_ns(), b""))
    live.roll(stage.clock.now_ns())
    counts = live.counts
    assert planned == counts.sent - counts.unplanned
    assert 160 <= planned <= 175
    assert refused == counts.drops[DropCause.OVER_RATE] == counts.dropped > 30
    assert counts.answered == 330 - refused
    assert (live.windows, live.kept) == (1, 1)


@pytest.mark.parametrize("size", [320, None])
def test_expected_frame_bytes_are_of_usual_quality_after_lower_quality(size: int | None) -> None:
    """A device on a narrow link sends 0.63 times the bytes at quality 45: the planner does not take that for smaller
    pictures, and ask for larger ones.
    """
    stage = Stage()
    for number, (quality, count) in enumerate([(75, 10_000), (45, 6_300), (None, 10_000)] * 4):
        frame = stage.live.begin(replace(stage.head(number), size=size, quality=quality))
        frame.received(bytes(count))
        frame.end(FrameResult(number, FrameEnd.ANSWERED, stage.clock.now_ns(), b""))
        assert stage.live.sent.body_bytes == pytest.approx(10_000)
        assert stage.live.lowers_quality is (quality is not None)
        if size is not None:
            assert stage.live.sent.expected_bytes(320) == pytest.approx(10_000)


def test_frames_held_up_by_link_are_within_promised_rate() -> None:
    """A link that brings three frames at once, five times a second, is no reason to drop any."""
    stage = Stage()
    stage.has_room = False
    for number in range(0, 300, 2):
        stage.clock.pass_s(0.2 if number % 6 == 0 else 0.0)
        frame = stage.live.begin(stage.head(number))
        frame.received(b"picture")
        frame.end(FrameResult(number, FrameEnd.ANSWERED, stage.clock.now_ns(), b""))
    assert stage.live.counts.unplanned == 0
