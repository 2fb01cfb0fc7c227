"""The messages of a session's stream, both ways, as docs/streams.md says: JSON objects as text messages, each with its
`type`. A frame's picture follows its head as one binary message, a result's picture follows the result.

Shared by the box and devices, so free of FastAPI. Both sides ignore fields that they do not know, and a device ignores
messages that it does not know; the box answers those with an error. Times are milliseconds of the sender's own clock,
which begins anywhere and never steps.
"""

import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic_core import from_json

from appliance.domain.session import FrameEnd, NoticeKind
from appliance.domain.states import SessionState
from appliance.wire.fields import INTEGER_MAX, Text, Whole

ERRORS_MAX = 3
"""Of a message that is wrong in more places the first ones are named."""
HEAD_BYTES_MAX = 4096
"""Of a text message that a device sends."""
CREDIT = 2
"""Frames that a device may have begun to send and that are not acknowledged."""
SEEN = "seen"
"""Query parameter of the stream's address: the frame up to which the device knows the end of all that it sent."""
DELAY_MS_MAX = 60_000.0
RATE_MBPS_MAX = 100_000.0


class Close:
    """Codes that the box closes a stream with: those of RFC 6455, and one of its own."""

    NORMAL = 1000
    """The session has ended."""
    GOING_AWAY = 1001
    """The box stops; the session goes on when it is there again."""
    PROTOCOL = 1002
    """Not the WebSocket protocol."""
    NOT_UNDERSTOOD = 1003
    """A head that is none, or a binary message without a head."""
    POLICY = 1008
    """More frames than the credit allows, or a message that does not end."""
    TOO_LARGE = 1009
    """A head above `HEAD_BYTES_MAX`, or a frame above what the box takes; it must not be sent again."""
    REPLACED = 4000
    """A newer connection carries the session."""


def _clamped(lowest: float, highest: float) -> BeforeValidator:
    """A report that boasts is taken as the bound that it passes; one that is no number at all, as no report."""

    def clamp(value: object) -> object:
        if isinstance(value, bool) or not isinstance(value, int | float):
            return value  # for the type to refuse
        # Whole numbers of JSON may be larger than any float: they are compared, never converted.
        return None if isinstance(value, float) and math.isnan(value) else min(max(value, lowest), highest)

    return BeforeValidator(clamp)


Count = Annotated[Whole | None, _clamped(0, INTEGER_MAX)]
DelayMs = Annotated[Annotated[float, Field(strict=True)] | None, _clamped(0.0, DELAY_MS_MAX)]
RateMbps = Annotated[Annotated[float, Field(strict=True)] | None, _clamped(0.0, RATE_MBPS_MAX)]
Share = Annotated[Annotated[float, Field(strict=True)] | None, _clamped(0.0, 1.0)]
ClockMs = Annotated[float, Field(strict=True)]
"""Of a clock; one that is not finite belongs to no time, which is the reader's to see."""


class Message(BaseModel):
    """Immutable; unknown fields are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore", use_attribute_docstrings=True)


class VariantDrop(Message):
    """What a device has measured of one variant's results: what they lose with age, and what they are behind others."""

    rate: Share = None
    """Share of 1 with each frame of age."""
    gaps: dict[Text, Share] = Field({})
    """Variant → share of 1 that they are behind fresh results of it, at an age of no frames."""


class Reports(Message):
    """What a device tells of itself with whatever it sends, as far as it knows it. The box believes its own
    measurements first.
    """

    captured: Count = None
    """Frames that the camera has given since the session began; captured = sent + skipped."""
    skipped: Count = None
    """Frames since then that the device decided not to send."""
    drop_base: Share = None
    """Accuracy that tracking loses at once, as a share of 1: what is lost at an age of no frames at all."""
    drop_rate: Share = None
    """The same lost with each frame that a result grows older, of the plan's variant."""
    drop_curves: dict[Text, VariantDrop] | None = None
    """The same by variant, of all that the device has compared of late, the plan's among them."""
    uplink_mbps: RateMbps = None
    """What the device takes its uplink for, 10⁶ bit/s; counts until the box has seen frames come."""
    rtt_ms: DelayMs = None
    """Of a small message to the box and back."""
    downlink_ms: DelayMs = None
    """How long results are under way to the device."""
    shown: Count = None
    """The frame of the newest result that it has."""


# -- from the device ---------------------------------------------------------------------------------------------------


class FrameHead(Reports):
    """A frame that follows as one binary message of `bytes` bytes. It starts the clock of the link."""

    type: Literal["frame"] = "frame"
    frame: Whole = Field(ge=0, le=INTEGER_MAX, examples=[17])
    """Rises with the frames of a session; the same one again is the same frame, and gets the same answer."""
    captured_ms: ClockMs = Field(examples=[183402.5])
    """When it was captured, on the device's clock."""
    bytes: Whole = Field(ge=1, le=INTEGER_MAX, examples=[23411])
    """Of the picture. One that ends earlier is withdrawn: it is not run."""
    variant: Text | None = Field(None, max_length=63, examples=["int8-320"])
    """The variant that it was made for: that of the plan when it was encoded."""
    size: Count = Field(None, examples=[320])
    """Pixels of its longer side."""
    quality: Count = Field(None, examples=[75])
    """Of its JPEG, 1 to 100; where it is not said, that of the plan."""


class DeviceClock(Reports):
    """What a device sends now and then, above all while it sends no frames: it keeps the line awake, and both sides
    learn from it what the other's clock shows.
    """

    type: Literal["clock"] = "clock"
    sent_ms: ClockMs = Field(examples=[183300.0])
    """When it left, on the device's clock."""
    of_ms: ClockMs | None = Field(None, examples=[90211.4])
    """`sent_ms` of the last `clock` of the box; with the next field it tells the box the offset and the round trip."""
    of_came_ms: ClockMs | None = Field(None, examples=[183219.0])
    """When that one came, on the device's clock."""


# -- from the box ------------------------------------------------------------------------------------------------------


class Ack(Message):
    """The body of a frame is complete: the device may send one more."""

    type: Literal["ack"] = "ack"
    frame: int = Field(examples=[17])
    bytes: int = Field(examples=[23411])
    took_ms: float = Field(examples=[41.2])
    """From the head to the last byte, as the box saw them come."""


class End(Message):
    """How a frame ended; exactly one for each frame that was sent."""

    frame: int = Field(examples=[17])
    outcome: FrameEnd
    cause: str | None = Field(None, examples=["expired"])
    """Why it was not answered in time; a word that stays the same."""


class Picture(Message):
    """What a binary message after a result is."""

    media_type: str = Field(examples=["image/png"])
    bytes: int = Field(examples=[18211])


class ResultMessage(End):
    """The end of a frame, with its answer where there is one."""

    type: Literal["result"] = "result"
    answer: dict[str, Any] | None = None
    """What `predict` answers; null for a frame that was dropped or lost, and where it was not kept until the device
    came back.
    """
    picture: Picture | None = None
    """The answer is a picture, which follows as one binary message."""


class StageVariant(Message):
    """What answers at a stage of a pipeline."""

    stage: str = Field(examples=["read"])
    variant: str = Field(examples=["int8"])
    """Empty: nothing can now."""
    accuracy: float | None = Field(None, examples=[0.89])
    """Of the variant, 0..1; null: not measured."""


class PlanMessage(Message):
    """What to send from now on; the newest holds."""

    type: Literal["plan"] = "plan"
    number: int = Field(examples=[3])
    """Rises with each plan of the session."""
    variant: str = Field(examples=["int8-320"])
    """Which variant is to answer; empty where stages of a pipeline do."""
    size: int | None = Field(None, examples=[320])
    """Pixels of the longer side to send; smaller where the link carries no more. Null: as the device likes."""
    quality: int = Field(examples=[75])
    """Of the JPEG, 1 to 100."""
    frames: tuple[int, ...] = Field((), examples=[[132, 136, 140]])
    """The frames to send next; empty: every `interval`-th."""
    next: int | None = Field(None, examples=[132])
    """The next frame to send; null: the next one that is captured."""
    wait_ms: float = Field(0.0, examples=[66.0])
    """From this message to the capture of the next frame to send."""
    interval: int = Field(1, examples=[4])
    """Every so many frames one is sent, after those in `frames`."""
    valid_ms: float = Field(1000.0, examples=[1000.0])
    """How long it holds; a device that hears of no other one then goes on by `interval`."""
    accuracy: float | None = Field(None, examples=[0.412])
    """Of the variant, 0..1; null: not measured."""
    expected_drop: float | None = Field(None, examples=[0.021])
    """Of what the device shows, a share of 1; where accuracy is promised."""
    stages: list[StageVariant] | None = None
    """Of a pipeline: what answers at each stage that asks a network."""
    credit: int = CREDIT
    """Frames that may be begun and not acknowledged."""


class BoxClock(Message):
    """The answer to a device's `clock`, at once."""

    type: Literal["clock"] = "clock"
    sent_ms: float = Field(examples=[90211.4])
    """When it left, on the box's clock."""
    of_ms: float = Field(examples=[183300.0])
    """`sent_ms` of the device's."""
    of_came_ms: float = Field(examples=[90211.3])
    """When that one came, on the box's clock."""


class Notice(Message):
    """Something that the device should know of its session."""

    type: Literal["notice"] = "notice"
    kind: NoticeKind
    """`variant`: another one answers, of a pipeline at some stage, so accuracy and perhaps size change; `served`: from
    now on; `removed`: it waits, for its promise cannot be kept; `ended`.
    """
    state: SessionState
    variant: str | None = Field(None, examples=["int8-320"])
    """Empty of a pipeline."""
    accuracy: float | None = Field(None, examples=[0.412])
    """Of that variant, 0..1."""
    stages: list[StageVariant] | None = None
    """Of a pipeline: what answers now at each stage that asks a network; `reason` says which have changed."""
    reason: str = Field("", examples=["memory: fp32-640 made room for harbour/gate"])
    """For a person."""


class ErrorMessage(Message):
    """Something that was sent is wrong."""

    type: Literal["error"] = "error"
    problem: dict[str, Any]
    """The problem document (RFC 9457) that a request gets."""
    frame: int | None = Field(None, examples=[17])
    """The frame that it is about; null: the connection."""
    outcome: FrameEnd | None = None
    """As of a result, where the frame has ended with it; null: it was never taken, and does not count."""
    close: int | None = Field(None, examples=[1003])
    """The code that the box closes the connection with now; null: it goes on."""


DeviceMessage = FrameHead | DeviceClock
BoxMessage = Ack | ResultMessage | PlanMessage | BoxClock | Notice | ErrorMessage

_DEVICE: TypeAdapter[DeviceMessage] = TypeAdapter(Annotated[DeviceMessage, Field(discriminator="type")])
_BOX: Mapping[str, type[BoxMessage]] = {
    "ack": Ack,
    "result": ResultMessage,
    "plan": PlanMessage,
    "clock": BoxClock,
    "notice": Notice,
    "error": ErrorMessage,
}


def read_device_message(text: str | bytes) -> DeviceMessage:
    """What a device sent. Raises: ValueError, which says in a line what is wrong, and repeats nothing of it."""
    try:
        return _DEVICE.validate_json(text)
    except ValidationError as error:
        found = error.errors(include_url=False, include_context=False, include_input=False)[:ERRORS_MAX]
        told = ((".".join(map(str, one["loc"])), one["msg"]) for one in found)
        raise ValueError("; ".join(f"{where}: {what}" if where else what for where, what in told)) from None


def read_box_message(text: str | bytes) -> BoxMessage | None:
    """What the box sent; None: a newer box's message. Raises: ValueError (pydantic's, too)."""
    content = from_json(text)
    kind = _BOX.get(str(content.get("type"))) if isinstance(content, dict) else None
    return None if kind is None else kind.model_validate(content)


def write_message(message: Message) -> str:
    """The text of a message; what is null is left out."""
    return message.model_dump_json(exclude_none=True)
