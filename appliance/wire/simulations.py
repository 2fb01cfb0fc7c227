"""What if: the running box simulated as it is, and with edits, beside each other."""

import datetime
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from appliance.domain.catalogue import SLO_MS_MAX
from appliance.domain.pipeline import CLIENTS_MAX, CostBy
from appliance.domain.session import FPS_MAX, RATE_MIN
from appliance.wire.fields import Real, Text, Whole
from appliance.wire.shape import Order, Shape

TIMES_MAX, RPS_MAX = 1000.0, 10_000.0
EDITS_MAX = 64


class RateEdit(Order):
    """More, or less, of an application: its rate times `times`, and `more_rps` beside."""

    kind: Literal["rate"]
    application: Text = Field(min_length=1, max_length=63, examples=["door"])
    tenant: Text = Field("default", min_length=1, max_length=63, examples=["harbour"])
    times: Real = Field(1.0, ge=0, le=TIMES_MAX, examples=[3.0])
    more_rps: Real = Field(0.0, ge=0, le=RPS_MAX, examples=[5.0])
    """Requests a second."""


class PipelineEdit(Order):
    """More, or less, of a pipeline, another SLO, or another measure of what it costs; what is left out stays."""

    kind: Literal["pipeline"]
    pipeline: Text = Field(min_length=1, max_length=63, examples=["signs"])
    tenant: Text = Field("default", min_length=1, max_length=63, examples=["harbour"])
    times: Real = Field(1.0, ge=0, le=TIMES_MAX, examples=[2.0])
    """So many times the clients that it has, a part of one with as many frames fewer, and of the frames of nobody who
    joined."""
    more_clients: Whole = Field(0, ge=0, le=CLIENTS_MAX, examples=[10])
    """Beside them."""
    client_fps: Real | None = Field(None, ge=RATE_MIN, le=FPS_MAX, examples=[5.0])
    """Frames a second of each of those; left out: as of the first client that is there."""
    latency_slo_ms: Real | None = Field(None, gt=0, le=SLO_MS_MAX, examples=[400.0])
    cost_by: CostBy | None = None


class MemoryEdit(Order):
    """Another budget for what is loaded."""

    kind: Literal["memory"]
    budget_mb: Real = Field(gt=0, le=1e7, examples=[512.0])


class PolicyEdit(Order):
    """Another policy of a family."""

    kind: Literal["policy"]
    family: Text = Field(max_length=63, examples=["eviction"])
    name: Text = Field(max_length=63, examples=["lru"])


Edit = Annotated[RateEdit | PipelineEdit | MemoryEdit | PolicyEdit, Field(discriminator="kind")]


class SimulationOrder(Order):
    """Simulate the box with these edits, made one after the other."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "edits": [
                        {"kind": "rate", "application": "door", "tenant": "harbour", "times": 3.0},
                        {"kind": "memory", "budget_mb": 512.0},
                    ],
                    "duration_s": 300,
                }
            ]
        }
    )

    edits: list[Edit] = Field(min_length=1, max_length=EDITS_MAX)
    duration_s: Real = Field(300.0, ge=1, le=86_400)
    """Of the box's time that is simulated."""


class LatencyFigures(Shape):
    """Percentiles over the answered, milliseconds."""

    p50: float | None
    p99: float | None


class ApplicationFigures(Shape):
    """An application over the simulated time."""

    requests: int
    warm: int
    cold: int
    failed: int
    dropped: int
    accuracy_mean: float | None
    """Per cent, over the answered."""
    latency_ms: LatencyFigures


class ClientFigures(Shape):
    """Clients of a pipeline that asked to be let in over the simulated time."""

    joined: int
    refused: int
    """There was no room for them: their frames are not sent."""


class PipelineFigures(Shape):
    """A pipeline over the simulated time."""

    frames: int
    finished_in_time: int
    """Of these, with all of their items, within the pipeline's SLO."""
    cost: float | None = Field(examples=[12.4])
    """What all of them took, in what the pipeline's `cost_by` counts: seconds of processors, joules, or a price; null:
    not known of its processors.
    """
    clients: ClientFigures


class SimulatedFigures(ApplicationFigures):
    """The box over the simulated time; as `appliance simulate --json` has them."""

    late: int
    slo_attainment: float | None
    memory_peak_mb: float
    loads: int
    replacements: int
    evictions: int
    processors: dict[str, dict[str, float]]
    """`busy` and `idle` as shares, `batches`."""
    applications: dict[str, ApplicationFigures]
    """By name; by `tenant/name` where several tenants have one of the name."""
    pipelines: dict[str, PipelineFigures] = Field({})
    """By `tenant/name`; empty where the box has none."""


class SimulationShape(Shape):
    """A simulation, and its figures once it is done."""

    id: str = Field(examples=["9f8a3c5be01d4f7a"])
    state: Literal["queued", "running", "done", "failed"]
    percent: float = Field(examples=[62.5])
    error: str
    """Why it failed; empty when all is well."""
    duration_s: float
    edits: list[dict[str, Any]]
    left_out: list[str]
    """Applications that have no measured variant, and pipelines that ask one of them, or cannot be simulated."""
    created_at: datetime.datetime
    today: SimulatedFigures | None
    """The box as it is: its mean rates since the start, its budget, its policies."""
    edited: SimulatedFigures | None


class SimulationsShape(Shape):
    """Those since the start that are kept, and what an edit may choose from."""

    items: list[SimulationShape]
    """Newest first."""
    policies: dict[str, list[str]] = Field(examples=[{"eviction": ["expected-utility", "lru"]}])
    """Family → names."""
