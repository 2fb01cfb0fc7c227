"""Devices' sessions: what is asked for, what was promised, what to send, and what became of the frames."""

from typing import Annotated, Literal

from pydantic import ConfigDict, Field, ValidationInfo, field_validator

from appliance.domain.accuracy import ACCURACY
from appliance.domain.catalogue import SLO_MS_MAX
from appliance.domain.session import FPS_MAX, RATE_MIN, SLO_MS_MIN, Reference
from appliance.domain.states import SessionState
from appliance.wire.fields import Flag, Real, Text
from appliance.wire.shape import WEIGHT_MAX, Order, Shape

RTT_MS_MAX = 10_000.0


class LatencyPromiseShape(Order):
    """Each frame is answered in time, with the most accurate variant that allows it."""

    kind: Literal["latency"]
    slo_ms: Real = Field(ge=SLO_MS_MIN, le=SLO_MS_MAX, examples=[150.0])
    """From the capture of a frame to its answer at the device."""
    rate_rps: Real = Field(ge=RATE_MIN, le=FPS_MAX, examples=[15.0])
    """Frames that the device sends in a second; more than the session's `fps` is promised, and shown, as `fps`."""
    accuracy_min: Real | None = Field(None, ge=0, le=1)
    """No variant below this serves it, 0..1; null: as the application has it."""


class AccuracyPromiseShape(Order):
    """What the device shows, tracked between results, is about as accurate as fresh results."""

    kind: Literal["accuracy"]
    drop_max: Real = Field(gt=0, le=1, examples=[0.03])
    """Mean drop of accuracy that is allowed, as a share of 1."""
    reference: Reference = Reference.FRESH
    """Against a fresh result of the most accurate variant on the same frame, or against a box that serves nobody else,
    over the same link.
    """


PromiseOrder = Annotated[LatencyPromiseShape | AccuracyPromiseShape, Field(discriminator="kind")]


class LinkOrder(Order):
    """What a device knows of its link when it joins; frames correct it."""

    rtt_ms: Real | None = Field(None, ge=0, le=RTT_MS_MAX)
    """Of a small message to the box and back."""
    uplink_mbps: Real | None = Field(None, gt=0, le=100_000)
    """10⁶ bit/s."""


class SessionOrder(Order):
    """What a device asks for."""

    application: Text | None = Field(None, max_length=63, examples=["gate"])
    pipeline: Text | None = Field(None, max_length=63, validate_default=True)
    """In the place of an application: frames go through several networks. There is a promise of latency only."""
    name: Text = Field("", max_length=63, examples=["glasses-1"])
    """For people; need not be unique."""
    fps: Real = Field(ge=RATE_MIN, le=FPS_MAX, examples=[30.0])
    """Frames that the device captures in a second."""
    weight: Real = Field(1.0, gt=0, le=WEIGHT_MAX)
    """Beside the tenant's other sessions: who has more is let in before them, and removed after them."""
    wait: Flag = False
    """Wait for room where the promise cannot be kept now, in place of 409."""
    promise: PromiseOrder
    link: LinkOrder | None = None

    @field_validator("pipeline")
    @classmethod
    def _is_one_of_two(cls, value: str | None, info: ValidationInfo) -> str | None:
        if "application" in info.data and (value is None) == (info.data["application"] is None):
            raise ValueError("either an application or a pipeline has to be named")
        return value

    @field_validator("promise")
    @classmethod
    def _is_kept_by_pipelines(cls, value: PromiseOrder, info: ValidationInfo) -> PromiseOrder:
        if info.data.get("pipeline") is None:
            return value
        if isinstance(value, AccuracyPromiseShape):
            raise ValueError("of a pipeline there is a promise of latency only")
        if value.accuracy_min is not None:
            raise ValueError("accuracy_min: the stages of a pipeline have their own")
        return value


class SessionChange(Order):
    """What is to be another way; what is left out stays."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"promise": {"kind": "latency", "slo_ms": 200, "rate_rps": 10}}]}
    )

    promise: PromiseOrder | None = None
    paused: Flag | None = None
    """A paused session sends nothing and holds no capacity."""


class StageVariantShape(Shape):
    """What answers at a stage of a pipeline."""

    stage: str = Field(examples=["read"])
    variant: str = Field(examples=["int8"])
    """Empty: nothing can now."""
    accuracy: float | None = Field(examples=[0.89])
    """Of the variant, 0..1; null: not measured."""


class SessionPlanShape(Shape):
    """What to send until the next plan."""

    number: int = Field(examples=[3])
    """Rises with each plan of the session."""
    variant: str = Field(examples=["int8-320"])
    """That answers; empty where stages of a pipeline do, each with its own."""
    stages: list[StageVariantShape] | None
    """Of a pipeline: what answers at each stage that asks a network; null of an application."""
    size: int | None = Field(examples=[320])
    """Pixels of the longer side to send; null: as the device likes."""
    quality: int = Field(examples=[75])
    """Of the JPEG, 1 to 100."""
    interval: int = Field(examples=[2])
    """Every so many frames one is sent."""
    frames: tuple[int, ...] = Field(examples=[[132, 136]])
    """The frames to send next, as the device numbers them; empty: every `interval`-th."""
    next: int | None = Field(examples=[132])
    """The next frame to send; null: the next one that is captured."""
    wait_ms: float = Field(examples=[66.0])
    """Until its capture."""
    valid_ms: float = Field(examples=[1000.0])
    """How long the plan holds; then the device goes on by `interval`."""
    accuracy: float | None = Field(examples=[0.412])
    """Of the variant, 0..1; null: not measured."""
    expected_drop: float | None = Field(examples=[0.021])
    """Where accuracy is promised."""


class DecisionTimesShape(Shape):
    """What deciding takes."""

    count: int = Field(examples=[84])
    mean_ms: float = Field(examples=[1.2])
    """Of the latest, as is the next."""
    p99_ms: float = Field(examples=[4.8])


class DropCurveShape(Shape):
    """What results of a variant lose as a device tracks them: gap + rate · age."""

    gap: float = Field(examples=[0.021])
    """Share of 1 that they are behind those of the best variant at an age of no frames: by the device's measurement,
    else by their accuracies."""
    rate: float = Field(examples=[0.0061])
    """Share of 1 with each frame of age."""


class SessionFiguresShape(Shape):
    """Figures of a session since it began, or since the box was started; null: nothing was measured yet."""

    miss_rate: float | None = Field(examples=[0.004])
    """(late + dropped) / (answered + late + dropped); a frame that never came whole does not count."""
    mean_drop: float | None = Field(examples=[0.019])
    """Mean `drop` of all windows that were served, to be held against `drop_max` of the promise."""
    drop_error: float | None = Field(examples=[0.001])
    """Mean of estimated less measured drop. The estimate is the plan's at the beginning of each window; the measured
    drop follows from the age of the results shown and the rate that the device measured. Above 0: too high."""
    batch_rows: float | None = Field(examples=[2.4])
    """Mean rows of the runs that answered its frames, rows of other sessions included."""
    start_difference_ms: float | None = Field(examples=[0.8])
    """Mean of real less planned start of its runs, where accuracy is promised; below 0: earlier than planned."""
    start_difference_max_ms: float | None = Field(examples=[4.1])
    """The largest, without its sign."""
    utilisation: float | None = Field(examples=[0.41])
    """Share of all workers' time that runs of any kind took since the session began; the idle share is 1 less this.
    Null for a session of a pipeline."""
    against_original: float | None = Field(examples=[0.93])
    """Mean agreement with the original, the network as uploaded at full size, of the frames answered in time. Each
    frame counts with its variant's agreement on requests, or on samples without labels. For objects it is the F1 at
    an IoU of 0.5. Null where no variant that answered has such a figure."""
    against_original_frames: int = Field(examples=[1200])
    """Frames that this is the mean of."""


class SessionShape(Shape):
    """A session as it stands. captured = sent + skipped; sent = answered + late + dropped + lost + those under way."""

    id: str = Field(examples=["5f0c2a9be1d04377"])
    tenant: str = Field(examples=["harbour"])
    application: str | None = Field(examples=["gate"])
    """Null where it names a pipeline."""
    pipeline: str | None
    """Null where it names an application."""
    name: str = Field(examples=["glasses-1"])
    fps: float = Field(examples=[30.0])
    weight: float
    wait: bool
    paused: bool
    state: SessionState
    reason: str = Field(examples=["processor: all workers are taken"])
    """Why it is in its state; empty where there is nothing to say."""
    beyond_share: bool
    """It takes more than its tenant's share of the processors: the first to be removed."""
    promise: PromiseOrder
    accuracy_meaning: str = Field(ACCURACY, examples=["agreement with fp32"])
    """What the accuracies of its application's model are called, here and in the plan."""
    plan: SessionPlanShape | None
    """Null while it waits."""
    captured: int
    """As the device says; of one that says nothing, what it sent."""
    sent: int
    unplanned: int
    """Of the sent, those beyond the promised rate: no part of the promise, and run only where there is room."""
    skipped: int
    """As the device says."""
    answered: int
    """In time."""
    late: int
    """After its deadline, or cut off at it."""
    dropped: int
    """Never run."""
    lost: int
    """The frame never came whole, or its run failed."""
    drops: dict[str, int] = Field(examples=[{"hopeless": 2}])
    """Of the dropped, by cause."""
    windows: int
    """Stretches of time that are over and in which it was served: 10 s each for latency, 1 s for accuracy."""
    kept: int
    """Those in which the promise was kept."""
    uplink_mbps: float = Field(examples=[14.2])
    """As its frames show it, 10⁶ bit/s."""
    rtt_ms: float
    """0: not known."""
    drop_rate: float
    """Share of 1 that a result loses with each frame that it grows older, as the device estimates it."""
    drop_curves: dict[str, DropCurveShape]
    """Variant → what its results lose, of those that the device tells apart."""
    drop: float | None
    """Of the last window, where accuracy is promised."""
    decisions: DecisionTimesShape
    """Of the planner, about the sessions that this one is planned with."""
    figures: SessionFiguresShape
