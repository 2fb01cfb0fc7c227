"""Pipelines: how they are defined, who sends frames, and what came of one."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Discriminator, Field, Tag
from pydantic_core import PydanticCustomError

from appliance.domain.catalogue import SLO_MS_MAX
from appliance.domain.errors import TooManyStages
from appliance.domain.pipeline import ITEMS_MAX, STAGES_MAX, CostBy, NoAnswer, OnError, PickBy
from appliance.domain.session import FPS_MAX, RATE_MIN
from appliance.wire.fields import INTEGER_MAX, Flag, Real, Text, Whole
from appliance.wire.shape import WEIGHT_MAX, Order, Shape

_SORTS = "crop", "pick", "join"
"""Of stages beside those that ask an application."""
_SORT_SHOWN = 20
"""Characters of a sort of stage that nobody knows."""
NAMES_MAX = 64
"""Names in one list of a stage."""
Name = Annotated[Text, Field(max_length=200)]
Names = Annotated[list[Name], Field(max_length=NAMES_MAX)]
Items = Annotated[Whole, Field(ge=1, le=INTEGER_MAX)]
"""How many; above `ITEMS_MAX` it is `too-many-stages`."""


def _few(value: Any) -> Any:
    """Before any of them is looked at. Raises: TooManyStages."""
    if isinstance(value, list) and len(value) > STAGES_MAX:
        raise TooManyStages(key="stages", count=len(value), most=STAGES_MAX, what="stages")
    return value


class WhereOrder(Order):
    """Which regions a crop cuts out."""

    score_min: Real = Field(0.0, ge=0, le=1, examples=[0.6])
    label: Name | Names | None = Field(None, examples=["car"])
    """Only regions with this label, or one of these; left out: any."""
    label_not: Name | Names | None = Field(None, examples=[["tree", "sky"]])
    size_min: Real = Field(0.0, ge=0, le=1, examples=[0.01])
    """Of the region's area in the picture's, as a share of 1."""


class WhenOrder(Order):
    """Under which answer of another stage, about the same item or one that it was cut from, a stage asks at all."""

    stage: Name = Field(examples=["side"])
    label: Name | Names | None = Field(None, examples=["0"])
    """The best label of a classification, the label of a crop's region or of any region that was found, or a text that
    was read: it, or one of these; left out: any."""
    label_not: Name | Names | None = Field(None, examples=["180"])
    score_min: Real = Field(0.0, ge=0, le=1)


class StageOrder(Order):
    """What every stage has."""

    name: Name = Field(examples=["lines"])
    """1 to 63 of a-z 0-9 . _ - and starting with a letter or digit."""
    after: Names = Field([], examples=[["find"]])
    """The stages whose answers it waits for; none: it begins with the frame."""
    when: WhenOrder | None = None
    at_most: Items = Field(ITEMS_MAX, examples=[16])
    """Items of a frame that it takes, 64 at most; the best by score go first, the others have none: `condition`."""
    on_error: OnError = OnError.SKIP
    """`skip`: an item that fails, or comes too late, has no answer here and none behind; all else goes on. `fail`: the
    frame ends there, answered with what it has."""


class AskOrder(StageOrder):
    """An application, asked about each item."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"name": "find", "application": "find-text"}]})

    application: Name = Field(examples=["find-text"])
    """One of the tenant's, or a shared one, as it is called now; the stage stays with it."""
    variant: Name | None = Field(None, examples=["int8"])
    """The only one that may answer; left out: the box chooses."""
    accuracy_min: Real | None = Field(None, ge=0, le=1, examples=[0.9])
    """No variant below this answers, 0..1; left out: as the application has it."""
    stateful: Flag = False
    """Frames of one client go through it in their order."""


class CropOrder(StageOrder):
    """An item for each region that a stage found, cut out of the original picture: boxes as they stand, quads made
    upright.
    """

    do: Literal["crop"]
    of: Literal["regions", "objects"] = Field(examples=["regions"])
    """The list in the answer: `regions` of text detection, `objects` of object and face detection."""
    where: WhereOrder = WhereOrder()


class PickOrder(StageOrder):
    """The best of the items that were cut from the same one."""

    do: Literal["pick"]
    best: Items = Field(examples=[3])
    """How many, 64 at most."""
    by: PickBy = PickBy.SCORE
    """`score`: of the answer that it comes after, or of the region where that is a crop; `size`: of the region."""
    labels: Names = Field([], examples=[["car", "bus"]])
    """Of the same; empty: any."""


class JoinOrder(StageOrder):
    """The answers about all items of one parent, put together."""

    do: Literal["join"]


def _sort_of(stage: Any) -> str:
    """Which of the four a stage is meant to be."""
    given = stage.get("do") if isinstance(stage, dict) else getattr(stage, "do", None)
    return "ask" if given is None else str(given)


def _known(stage: Any) -> Any:
    """What is none of them is told as it was sent, shortened. Raises: PydanticCustomError."""
    given = stage.get("do") if isinstance(stage, dict) else None
    if given is not None and given not in _SORTS:
        told = "do: {sort} is not one of: {sorts}; a stage without it asks an application"
        facts = {"sort": repr(str(given)[:_SORT_SHOWN]), "sorts": ", ".join(_SORTS)}
        raise PydanticCustomError("unknown_do", told, facts)
    return stage


AnyStage = Annotated[
    Annotated[AskOrder, Tag("ask")]
    | Annotated[CropOrder, Tag("crop")]
    | Annotated[PickOrder, Tag("pick")]
    | Annotated[JoinOrder, Tag("join")],
    Discriminator(_sort_of),
    BeforeValidator(_known),
]
Stages = Annotated[list[AnyStage], BeforeValidator(_few), Field(min_length=1)]


class PipelineOrder(Order):
    """A pipeline: stages that a frame goes through, with one SLO over all of it."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "name": "signs",
                    "latency_slo_ms": 600,
                    "stages": [
                        {"name": "find", "application": "find-text"},
                        {
                            "name": "lines",
                            "do": "crop",
                            "after": ["find"],
                            "of": "regions",
                            "where": {"score_min": 0.6},
                            "at_most": 16,
                        },
                        {"name": "read", "application": "read-text", "after": ["lines"]},
                    ],
                }
            ]
        }
    )

    name: Name = Field(examples=["signs"])
    """1 to 63 of a-z 0-9 . _ - and starting with a letter or digit."""
    latency_slo_ms: Real = Field(gt=0, le=SLO_MS_MAX, examples=[600])
    """From the arrival of a frame to its answer; also the deadline of a frame that states none."""
    stages: Stages
    """16 at most, in any order."""
    cost_by: CostBy = CostBy.SECONDS
    """What a plan makes as little of as it can: `seconds` of processors, `energy`, or `price`."""
    weight: Real = Field(1.0, gt=0, le=WEIGHT_MAX)
    """Beside the other pipelines, where not all can be served."""


class PipelineChange(Order):
    """What to change; fields left out stay as they are."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"latency_slo_ms": 400}]})

    latency_slo_ms: Real | None = Field(None, gt=0, le=SLO_MS_MAX)
    stages: Stages | None = None
    """All of them: they replace those that were there."""
    cost_by: CostBy | None = None
    weight: Real | None = Field(None, gt=0, le=WEIGHT_MAX)


class PipelineShape(Shape):
    """A pipeline as it is defined; `name`, `latency_slo_ms`, `stages`, `cost_by` and `weight` can be posted again."""

    name: str = Field(examples=["signs"])
    tenant: str = Field(examples=["harbour"])
    latency_slo_ms: float
    stages: list[AnyStage]
    """Empty in a list with `summary=true`."""
    cost_by: CostBy
    weight: float
    fastest_ms: float | None = Field(None, examples=[38.2])
    """What the fastest variants take on the longest path, as measured at their import; null: not all are measured."""
    takes: str = Field("picture", examples=["picture"])
    """What a frame is: picture, text, sound or tensor; any: the networks do not say."""


class StagePlanShape(Shape):
    """How one stage is run: a row per configuration, each with its part of the rate."""

    stage: str
    worker: str = Field(examples=["cpu"])
    """Kind of processor; `host` of CPU stages."""
    variant: str = Field(examples=["int8"])
    """Empty of CPU stages."""
    batch: int
    concurrency: int
    rate_rps: float
    """Items a second."""
    instances: float
    """Workers that it takes, with fractions."""
    latency_ms: float
    """Of an item, at worst: waiting for company, and the run."""
    wait_ms: float
    """How long an item waits for company at most."""


class PipelinePlanShape(Shape):
    """What the box does for a pipeline until the next plan."""

    number: int
    feasible: bool
    """False: it is served by dispatch and early drop alone."""
    cost: float | None
    """In the unit of `cost_by`, a second."""
    cost_by: CostBy
    """As of the pipeline; seconds where watts, or prices, are not known of all processors."""
    latency_ms: float | None
    """Of the critical path, at worst."""
    reason: str
    fps: float
    """Frames a second that it was made for."""
    degraded: bool
    """Cheaper variants than asked for serve, or fewer frames are planned with than come, because not all fits: onto the
    processors, or into memory."""
    stages: list[StagePlanShape]


class ClientOrder(Order):
    """A client that will send frames."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"fps": 15}]})

    fps: Real = Field(ge=RATE_MIN, le=FPS_MAX, examples=[15])
    """Frames a second."""


class ClientShape(Shape):
    """A client that has joined: it leaves by DELETE, or by 10 s without a frame."""

    id: str = Field(examples=["5f0c2a9be1d04377"])
    """To be sent as `X-Client` with each frame."""
    fps: float


class FrameCountsShape(Shape):
    """Frames since the start of the box: answered in time or late, failed, or under way."""

    answered: int = 0
    in_time: int = 0
    late: int = 0
    dropped: int = 0
    """Of the answered: those with an item that could no longer be in time."""
    errors: int = 0
    """Of the answered: those with an item that failed; none of these is in time."""
    failed: int = 0
    """Never answered: the input could not be read, or a stage that must not fail did."""
    under_way: int = 0


class FrameSecondShape(Shape):
    """What became of the frames of one second."""

    second: int
    """Of those of the last ten, the newest last."""
    sent: int
    in_time: int


class StageFiguresShape(Shape):
    """What a stage did of late."""

    items: int = 0
    items_per_frame: float | None = None
    ballooning: float | None = None
    """What runs take over what was measured before; null: none yet, or a CPU stage."""
    dropped: int = 0
    errors: int = 0
    no_condition: int = 0
    outdone: int = 0
    """Of these: its condition held, but others were better."""
    p50_ms: float | None = None
    """Of an item, from when it could begin to its answer."""
    variant: str | None = None
    """The last that answered."""


class CostShape(Shape):
    """What something costs; null: the box cannot say."""

    seconds: float = 0.0
    """Of processors."""
    joules: float | None = None
    price: float | None = None


class PipelineCostShape(Shape):
    """What a pipeline costs now."""

    per_frame: CostShape = CostShape()
    per_second: CostShape = CostShape()
    energy_by: Literal["measured", "declared"] | None = None
    """Where the watts come from: sensors, or the settings; null: nowhere."""


class PipelineRowShape(PipelineShape):
    """A pipeline in a list, with its main figures."""

    rate_fps: float = 0.0
    """Measured: of all frames, also of those that nobody joined for."""
    in_time: float | None = Field(None, examples=[0.998])
    """Part of the frames of the last ten seconds that was in time; null: none has come."""
    cost_per_frame: CostShape = CostShape()


class PipelineStatusShape(PipelineShape):
    """A pipeline with what the box does for it, and what became of its frames."""

    plan: PipelinePlanShape | None = None
    """Null: none yet."""
    clients: list[ClientShape] = Field([])
    rate_fps: float = 0.0
    """Measured: of all frames, also of those that nobody joined for."""
    frames: FrameCountsShape = FrameCountsShape()
    finish_rate: list[FrameSecondShape] = Field([])
    """The last ten seconds."""
    figures: dict[str, StageFiguresShape] = Field({})
    """By stage."""
    cost: PipelineCostShape = PipelineCostShape()


class ItemShape(Shape):
    """A stage's answer about an item, and below it those of the stages behind."""

    stage: str = Field(examples=["read"])
    variant: str | None = Field(None, examples=["int8"])
    """That answered; absent of CPU stages."""
    box: tuple[float, float, float, float] | None = None
    """Of an item that a crop made: left, top, right, bottom in the original picture."""
    quad: list[tuple[float, float]] | None = None
    """The same of a text region: four corners."""
    answer: dict[str, Any] | None = None
    """The task's fields, as `predict` has them."""
    none: NoAnswer | None = None
    """Why there is no answer."""
    items: list["ItemShape"] = Field([])


class FrameShape(Shape):
    """What came of a frame."""

    pipeline: str = Field(examples=["signs"])
    items: list[ItemShape]
    timings_ms: dict[str, float] = Field(examples=[{"find": 24.1, "lines": 0.4, "read": 11.2}])
    """By stage, from when its first item could begin to when its last had ended."""
    cost: CostShape
    in_time: bool
    request_id: str = ""
