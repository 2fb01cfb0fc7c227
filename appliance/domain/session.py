"""A session: one device's stay on the box, what it was promised, and what became of its frames.

Times within a plan are milliseconds of the device's stream; instants (`_ns`) are on the box's monotonic clock.
Accuracies are points, 0 to 100; drops are shares of 1, as devices estimate them.
"""

import datetime
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from appliance.domain.states import SessionState

RATE_MIN, FPS_MAX = 0.01, 1000.0
"""Frames per second: intervals between frames stay numbers that one can count with."""
SLO_MS_MIN = 1.0


class PromiseKind(StrEnum):
    """What a session is promised; decides which planner cares for it."""

    LATENCY = "latency"
    """Each frame is answered in time, with the most accurate variant that allows it (Jellyfish)."""
    ACCURACY = "accuracy"
    """What the device shows, tracked between results, is about as accurate as fresh results (ARISE)."""


class Reference(StrEnum):
    """What a drop of accuracy is measured against."""

    FRESH = "fresh"
    """A result of the most accurate variant on the same frame."""
    DEDICATED = "dedicated"
    """A box that serves nobody else, behind the device's own link, as in the paper: it moves with the link."""


class Cause(StrEnum):
    """What keeps a promise from being made, or being kept."""

    LINK = "link"
    """The frame takes too long on its way."""
    PROCESSOR = "processor"
    """The runs take too long, or the processor's time is sold."""
    MEMORY = "memory"
    """No variant that would keep it fits into memory."""
    SHARE = "share"
    """The tenant has its share of the processor, and others want theirs."""


@dataclass(frozen=True, slots=True)
class LatencyPromise:
    """`rate_rps` frames per second, each answered within `slo_ms` of its capture."""

    slo_ms: float
    rate_rps: float
    accuracy_min: float | None = None
    """Points; no variant below serves it. None: as the application has it."""

    @property
    def kind(self) -> PromiseKind:
        return PromiseKind.LATENCY


@dataclass(frozen=True, slots=True)
class AccuracyPromise:
    """The mean drop of what is shown is at most `drop_max`, a share of 1."""

    drop_max: float
    reference: Reference = Reference.FRESH

    @property
    def kind(self) -> PromiseKind:
        return PromiseKind.ACCURACY


Promise = LatencyPromise | AccuracyPromise


@dataclass(frozen=True, slots=True)
class Offer:
    """A promise that can be made in place of one that cannot, ready to be asked for."""

    promise: Promise


@dataclass(frozen=True, slots=True)
class Session:
    """What is stored of a session: who has it, for what, and what was promised."""

    id: str
    tenant: str
    """Who is served, and whose share of the processor it takes."""
    application_id: str
    """Empty of one whose frames go through a pipeline."""
    name: str
    fps: float
    """Frames that the device captures in a second."""
    promise: Promise
    key_id: str
    """The key that began it: a device's key sees only its own sessions."""
    began_at: datetime.datetime
    weight: float = 1.0
    wait: bool = False
    """Whether it waits for room where it cannot be served."""
    is_paused: bool = False
    pipeline_id: str = ""
    """Empty of one whose frames go to an application."""

    @property
    def target_id(self) -> str:
        """Of the application or the pipeline that its frames go to."""
        return self.pipeline_id or self.application_id

    @property
    def target(self) -> str:
        """The same, by its name."""
        return self.target_id.partition("/")[2]


class FrameEnd(StrEnum):
    """How a frame ended; each ends in exactly one of these ways."""

    ANSWERED = "answered"
    """In time."""
    LATE = "late"
    """After its deadline, or cut off at it while it ran."""
    DROPPED = "dropped"
    """Never run."""
    LOST = "lost"
    """Its body never came whole, or its run failed."""


class DropCause(StrEnum):
    """Why a frame was never run."""

    EXPIRED = "expired"
    """Its capture lies too long back, or in the future."""
    HOPELESS = "hopeless"
    """It could no longer be in time, by what its body, what waits before it and its run would take."""
    LATE = "late"
    """Its deadline came while it waited."""
    NOT_SERVED = "not-served"
    """The session waits, or is paused."""
    BAD_MEDIA = "bad-media"
    """No picture, or one that the application does not take."""
    CREDIT = "credit"
    """More frames under way than the session has credit for."""
    OVER_RATE = "over-rate"
    """Beyond the promised rate, and no processor was free."""
    LIMIT = "limit"
    """A quota, or a bound of the box."""
    MEMORY = "memory"
    """Its variant found no room."""
    UNAVAILABLE = "unavailable"
    """The application is not in service, a processor is lost, or the box stops."""


@dataclass(slots=True)
class FrameCounts:
    """A session's frames: captured = sent + skipped; sent = answered + late + dropped + lost + under way."""

    sent: int = 0
    """Frames whose head has come."""
    unplanned: int = 0
    """Of those, beyond the promised rate: no part of the promise."""
    skipped: int = 0
    """Frames that the device says it did not send."""
    answered: int = 0
    late: int = 0
    lost: int = 0
    drops: Counter[DropCause] = field(default_factory=Counter)

    @property
    def captured(self) -> int:
        return self.sent + self.skipped

    @property
    def dropped(self) -> int:
        return self.drops.total()

    @property
    def under_way(self) -> int:
        return self.sent - self.answered - self.late - self.dropped - self.lost

    @property
    def miss_rate(self) -> float | None:
        """Return the share of frames that were late or dropped, 0 to 1; None before the first has ended."""
        missed = self.late + self.dropped
        ended = self.answered + missed
        return missed / ended if ended else None

    def end(self, end: FrameEnd, cause: DropCause | None = None) -> None:
        """Count one frame out. `cause` of one that is dropped."""
        if end is FrameEnd.ANSWERED:
            self.answered += 1
        elif end is FrameEnd.LATE:
            self.late += 1
        elif end is FrameEnd.LOST:
            self.lost += 1
        else:
            assert cause is not None
            self.drops[cause] += 1


@dataclass(frozen=True, slots=True)
class StageVariant:
    """What answers at a stage of a pipeline."""

    stage: str
    variant: str
    """Empty: nothing can now."""
    accuracy: float | None = None
    """Points, of the variant; None: not measured."""


@dataclass(frozen=True, slots=True)
class SessionPlan:
    """What a device is told: what to send, and when, until the next plan."""

    number: int
    """Grows with every plan of the session."""
    variant: str
    """That its frames will run on; a frame that was made for another is served all the same. Empty of a pipeline."""
    size: int | None
    """Longer side of the picture to send, in pixels; None: as the device likes."""
    quality: int
    """Of the JPEG, 1 to 100."""
    interval: int
    """Every so many frames one is sent."""
    frames: tuple[int, ...]
    """The frames to send next, as the device numbers them; empty: every `interval`-th."""
    wait_ms: float
    """From now to the capture of the next frame to send."""
    valid_until_ns: int
    """After that the device goes on by `interval`."""
    accuracy: float | None = None
    """Points, of the variant; None: not measured."""
    expected_drop: float | None = None
    """Of a session with a promise of accuracy."""
    stages: tuple[StageVariant, ...] = ()
    """Of a pipeline: the stages that ask a network, each with its own variant."""

    @property
    def answering(self) -> tuple[str, ...]:
        """What its frames run on; of a pipeline at each stage."""
        return self.variant, *(f"{one.stage}: {one.variant}" for one in self.stages)


class NoticeKind(StrEnum):
    """What a device is told beside its results."""

    PLAN = "plan"
    """A new plan of the same variant."""
    VARIANT = "variant"
    """A new plan with another variant, or with another one at a stage of its pipeline: accuracy and perhaps size
    change."""
    SERVED = "served"
    """It was waiting, or its link is back."""
    REMOVED = "removed"
    """It is served no more, and waits, because the promise cannot be kept; `reason` says why."""
    ENDED = "ended"
    """The session is over; `reason` says why."""


@dataclass(frozen=True, slots=True)
class Notice:
    """A message to the device."""

    kind: NoticeKind
    state: SessionState
    plan: SessionPlan | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class VariantDrop:
    """What results of one variant lose as a device tracks them, by its own measurement."""

    rate: float
    """Share of 1 with each frame of age."""
    gaps: Mapping[str, float] = field(default_factory=dict)
    """Variant → share of 1 that they are behind its fresh results at an age of no frames."""


@dataclass(frozen=True, slots=True)
class DeviceReport:
    """What a device says of itself, none of it believed beyond reason; None: it does not say."""

    skipped: int | None = None
    """Frames not sent since the session began."""
    drop_rate: float | None = None
    """Share of 1 per frame of tracking, as its estimator has it."""
    drop_base: float | None = None
    """Share of 1 that tracking loses at once."""
    drop_curves: Mapping[str, VariantDrop] | None = None
    """The same by variant, of all that it knows of."""
    uplink_bps: float | None = None
    """What it takes its uplink for; counts only until frames have come."""
    rtt_ms: float | None = None
    """Of a small message to the box and back."""
    downlink_ms: float | None = None
    """Of a result, from the box to the device."""
    shown: int | None = None
    """The frame of the newest result that it has."""


@dataclass(frozen=True, slots=True)
class FrameHead:
    """What comes before a frame's body."""

    frame: int
    """As the device numbers its captures from 0; a repeat is the same frame."""
    arrived_ns: int
    """When the head had come: the clock of the link starts."""
    captured_ns: int | None = None
    """On the box's clock, where its offset to the device's is known."""
    age_ms: float | None = None
    """Else: from the capture to the sending of the head."""
    body_bytes: int | None = None
    """Of the picture, where the head says."""
    size: int | None = None
    """Longer side of the picture in pixels."""
    variant: str | None = None
    """That it was made for."""
    report: DeviceReport | None = None
    quality: int | None = None
    """Of its JPEG, 1 to 100; None: that of the plan."""


@dataclass(frozen=True, slots=True)
class FrameAck:
    """The body is complete."""

    frame: int
    transfer_ms: float
    """From the head to the end of the body."""
