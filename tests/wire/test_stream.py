"""Messages of a stream: what devices may say, what is clamped, what is refused, and that both sides may be newer."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.domain.session import FrameEnd, NoticeKind
from appliance.domain.states import SessionState
from appliance.wire.stream import (
    Ack,
    BoxClock,
    BoxMessage,
    DeviceClock,
    ErrorMessage,
    FrameHead,
    Notice,
    Picture,
    PlanMessage,
    ResultMessage,
    StageVariant,
    VariantDrop,
    read_box_message,
    read_device_message,
    write_message,
)

HEAD = {"type": "frame", "frame": 17, "captured_ms": 183402.5, "bytes": 23411}
FROM_BOX: tuple[BoxMessage, ...] = (
    Ack(frame=17, bytes=23411, took_ms=31.2),
    ResultMessage(frame=17, outcome=FrameEnd.ANSWERED, answer={"labels": [], "accuracy": None}),
    ResultMessage(frame=18, outcome=FrameEnd.DROPPED, cause="hopeless"),
    ResultMessage(frame=19, outcome=FrameEnd.LATE, picture=Picture(media_type="image/png", bytes=9)),
    PlanMessage(number=3, variant="fp32", quality=75, frames=(132, 136)),
    BoxClock(sent_ms=1.0, of_ms=2.0, of_came_ms=3.0),
    Notice(kind=NoticeKind.VARIANT, state=SessionState.SERVED, variant="int8", accuracy=0.4),
    Notice(
        kind=NoticeKind.VARIANT,
        state=SessionState.SERVED,
        variant="",
        stages=[StageVariant(stage="read", variant="int8", accuracy=0.4), StageVariant(stage="find", variant="")],
    ),
    ErrorMessage(problem={"type": "/problems/bad-media", "status": 422}, frame=17, outcome=FrameEnd.DROPPED),
)


@pytest.mark.parametrize("message", FROM_BOX, ids=lambda message: type(message).__name__)
def test_box_message_is_read_back_as_written(message: BoxMessage) -> None:
    """Also the nulls inside an answer; those of a message are left out."""
    text = write_message(message)
    assert read_box_message(text) == message
    assert all(value is not None for value in json.loads(text).values())


def test_frame_and_clock_messages_are_read_by_type() -> None:
    """Missing fields are None."""
    head = read_device_message(json.dumps(HEAD))
    assert isinstance(head, FrameHead)
    assert (head.frame, head.bytes, head.skipped, head.variant) == (17, 23411, None, None)
    assert isinstance(read_device_message('{"type": "clock", "sent_ms": 5}'), DeviceClock)


@pytest.mark.parametrize(
    ("said", "taken"),
    [
        ({"skipped": math.nan}, {"skipped": None}),
        ({"skipped": -5}, {"skipped": 0}),
        ({"skipped": math.inf}, {"skipped": 2**53}),
        ({"captured": 1e300}, {"captured": 2**53}),
        ({"drop_rate": math.nan}, {"drop_rate": None}),
        ({"drop_rate": 1e9}, {"drop_rate": 1.0}),
        ({"drop_rate": -0.5}, {"drop_rate": 0.0}),
        ({"drop_base": 2.0}, {"drop_base": 1.0}),
        ({"uplink_mbps": -3.0}, {"uplink_mbps": 0.0}),
        ({"rtt_ms": math.inf}, {"rtt_ms": 60_000.0}),
        ({"downlink_ms": -1}, {"downlink_ms": 0.0}),
        ({"shown": 2**70}, {"shown": 2**53}),
        ({"skipped": 10**400, "drop_rate": -(10**400)}, {"skipped": 2**53, "drop_rate": 0.0}),
        ({"drop_curves": {"a": {"rate": 10**400}}}, {"drop_curves": {"a": VariantDrop(rate=1.0)}}),
        (
            {"drop_curves": {"a": {"rate": 7.0, "gaps": {"b": -1.0, "c": math.nan}}}},
            {"drop_curves": {"a": VariantDrop(rate=1.0, gaps={"b": 0.0, "c": None})}},
        ),
    ],
)
def test_device_report_out_of_range_is_clamped(said: dict[str, object], taken: dict[str, object]) -> None:
    """A value beyond a bound is the bound, and NaN is no report; the frame itself stays valid."""
    for base in (HEAD, {"type": "clock", "sent_ms": 5}):
        message = read_device_message(json.dumps(base | said))
        assert {name: getattr(message, name) for name in taken} == taken


@pytest.mark.parametrize(
    "broken",
    [
        "",
        "[]",
        "17",
        "{",
        "{}",
        '{"type": "ack", "frame": 1, "bytes": 2, "took_ms": 3}',
        '{"type": "frame"}',
        json.dumps(HEAD | {"frame": "17"}),
        json.dumps(HEAD | {"frame": True}),
        json.dumps(HEAD | {"frame": -1}),
        json.dumps(HEAD | {"frame": 1.5}),
        json.dumps(HEAD | {"bytes": 0}),
        json.dumps(HEAD | {"bytes": 2**60}),
        json.dumps(HEAD | {"captured_ms": None}),
        json.dumps(HEAD | {"skipped": "many"}),
        json.dumps(HEAD | {"skipped": 1.5}),
        json.dumps(HEAD | {"variant": "a\nb"}),
        "[" * 4000,
    ],
)
def test_broken_device_message_is_refused_in_one_line(broken: str) -> None:
    """Without the text of the message."""
    with pytest.raises(ValueError, match=r"^[^\n]{5,300}$") as caught:
        read_device_message(broken)
    assert "pydantic" not in str(caught.value)


@given(st.binary(max_size=200) | st.text(max_size=200))
def test_random_stream_message_is_read_or_raises_value_error(text: str | bytes) -> None:
    for read in (read_device_message, read_box_message):
        try:
            read(text)
        except ValueError:
            continue


def test_stream_message_of_a_newer_peer_is_tolerated() -> None:
    """Unknown fields are ignored; a device ignores messages of a type that it does not know, the box refuses them."""
    assert isinstance(read_device_message(json.dumps(HEAD | {"mood": "fine"})), FrameHead)
    assert read_box_message('{"type": "weather", "rain": true}') is None
    assert read_box_message("[1]") is None
    with pytest.raises(ValueError, match="weather"):
        read_device_message('{"type": "weather"}')
