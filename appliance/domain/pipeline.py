"""A pipeline: a frame goes through several networks and CPU stages, with one SLO over all of it (Scrooge §3.1).

The stages are a graph without a cycle. A stage works on *items*: at first the one item that is the whole input of the
frame; a crop makes an item of each region that it cuts out. Times are milliseconds, accuracies points (0 to 100).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

STAGES_MAX = 16
ITEMS_MAX = 64
"""Items of one frame, at one stage."""
CLIENTS_MAX = 256
"""Of one pipeline, at once."""
PIPELINES_MAX = 640
"""Of all tenants together."""


class CostBy(StrEnum):
    """What a plan makes as little of as it can (SC-30): a box has no price list of its own."""

    PRICE = "price"
    """What the operator says that an hour of a processor costs."""
    ENERGY = "energy"
    """Watts while it runs."""
    SECONDS = "seconds"
    """Processor-seconds."""


class OnError(StrEnum):
    """What becomes of a frame when an item of a stage fails or comes too late."""

    SKIP = "skip"
    """The item has no answer of this stage, and none of those behind it; all else goes on."""
    FAIL = "fail"
    """The frame ends there, answered with what it has."""


class PickBy(StrEnum):
    """What makes an item better than another."""

    SCORE = "score"
    SIZE = "size"


class NoAnswer(StrEnum):
    """Why an item has no answer of a stage."""

    CONDITION = "condition"
    """Its `when` did not hold, or `at_most` others were better."""
    DROPPED = "dropped"
    """It could no longer be in time, and never ran."""
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Region:
    """Where an item lies in the upright original picture, in pixels, edges at integers."""

    corners: tuple[tuple[float, float], ...]
    """Four, clockwise from the top left of what is in the picture."""
    is_box: bool
    """Its sides are those of the picture; else it is a quad, to be made upright."""
    score: float = 1.0
    label: str = ""

    @property
    def area(self) -> float:
        """In pixels; 0 of one without an inside."""
        turns = zip(self.corners, (*self.corners[1:], self.corners[0]), strict=True)
        return abs(sum(x * next_y - next_x * y for (x, y), (next_x, next_y) in turns)) / 2


@dataclass(frozen=True, slots=True)
class Where:
    """Which regions of an answer a crop makes items of."""

    score_min: float = 0.0
    labels: tuple[str, ...] = ()
    """Empty: any."""
    labels_not: tuple[str, ...] = ()
    size_min: float = 0.0
    """Of the region's area in the picture's, as a share of 1."""


@dataclass(frozen=True, slots=True)
class When:
    """Under which answer of another stage, about the same item, a stage asks at all: a conditional edge."""

    stage: str
    labels: tuple[str, ...] = ()
    """Empty: any."""
    labels_not: tuple[str, ...] = ()
    score_min: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One stage. `after`: the stages whose answers it waits for; none: it begins with the frame."""

    name: str
    after: tuple[str, ...] = ()
    when: When | None = None
    at_most: int = ITEMS_MAX
    """Items of a frame that it takes; the best by score go first."""
    on_error: OnError = OnError.SKIP

    @property
    def before(self) -> tuple[str, ...]:
        """All stages that it waits for, that of its condition among them."""
        if self.when is None or self.when.stage in self.after:
            return self.after
        return (*self.after, self.when.stage)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask(Stage):
    """An application of the tenant, or a shared one, asked about each item."""

    application_id: str
    variant: str | None = None
    """The only one that may answer; None: the box chooses."""
    accuracy_min: float | None = None
    """Points; None: as the application has it."""
    is_stateful: bool = False
    """Frames of one client go through it in their order (SC-02)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Crop(Stage):
    """An item for each region of an answer, cut out of the original picture: boxes as they stand, quads upright."""

    of: str
    """The answer's list: `regions` or `objects`."""
    where: Where = field(default_factory=Where)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pick(Stage):
    """The best of the items that have the same parent."""

    best: int
    by: PickBy = PickBy.SCORE
    labels: tuple[str, ...] = ()
    """Empty: any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Join(Stage):
    """The answers about all items of one parent, put together."""


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A tenant's, as it is defined. `id` is `tenant/name`."""

    id: str
    tenant: str
    name: str
    latency_slo_ms: float
    """From the arrival of a frame to its answer."""
    stages: tuple[Stage, ...]
    cost_by: CostBy = CostBy.SECONDS
    weight: float = 1.0
    """Beside the other pipelines, where not all can be served."""

    def stage(self, name: str) -> Stage:
        return next(stage for stage in self.stages if stage.name == name)

    @property
    def application_ids(self) -> frozenset[str]:
        """That it asks."""
        return frozenset(stage.application_id for stage in self.stages if isinstance(stage, Ask))


@dataclass(frozen=True, slots=True)
class PipelineClient:
    """One that said how many frames it sends (SC-03); it leaves when it says so, or is silent for long."""

    id: str
    pipeline_id: str
    fps: float
    is_session: bool = False
    """It is a device's session, which knows by itself when its device has gone; nobody else speaks for it."""
    within_ms: float | None = None
    """What its frames may take in the box; None: what all of the pipeline's may."""


@dataclass(frozen=True, slots=True)
class StagePlan:
    """How one stage is to be run: a row per configuration, each with its part of the rate."""

    stage: str
    worker: str
    """Kind of processor; `host` of CPU stages."""
    variant: str
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
    drawn: Mapping[str, float] = field(default_factory=dict)
    """Of a network in parts: workers of other kinds that it takes beside them, with fractions."""


@dataclass(frozen=True, slots=True)
class PipelinePlan:
    """What the box does for a pipeline until the next plan."""

    number: int
    """Grows with each plan of the pipeline."""
    feasible: bool
    """False: it is served by dispatch and early drop alone."""
    cost: float | None
    """In the unit of `cost_by`, a second."""
    latency_ms: float | None
    """Of the critical path, at worst."""
    stages: tuple[StagePlan, ...]
    reason: str
    """For a person: what was decided by, and what is degraded."""
    fps: float
    """Frames a second that it was made for."""
    wanted_fps: float = 0.0
    """Frames a second that come; more than `fps` where not all fit."""
    degraded: bool = False
    """Cheaper variants than asked for serve, or fewer frames are planned with than come, because not all fits: onto the
    processors, or into memory."""
    is_short: bool = False
    """It is degraded because of the processors."""
    cost_by: CostBy = CostBy.SECONDS
    """What `cost` is in: seconds where what the pipeline asks for is not known of all processors."""
    takes_ms: Mapping[str, float] = field(default_factory=dict)
    """Stage → milliseconds that an item is expected to take there."""

    @property
    def has_all(self) -> bool:
        """Whether it was made for all frames that come."""
        return self.fps >= self.wanted_fps * (1.0 - 1e-6)
