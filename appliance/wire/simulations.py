"""What if: the running box simulated as it is, and with edits, beside each other."""

import datetime
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from appliance.domain.catalogue import SLO_MS_MAX
from appliance.domain.pipeline import CLIENTS_MAX, CostBy
from appliance.domain.session import FPS_MAX, RATE_MIN
from appliance.wire.fields import Real, Reason, Text, Whole
from appliance.wire.shape import Order, Shape

TIMES_MAX, RPS_MAX = 1000.0, 10_000.0
EDITS_MAX = 64


class RateEdit(Order):
    """Another rate of an application: its rate times `times`, plus `more_rps`."""

    kind: Literal["rate"]
    application: Text = Field(min_length=1, max_length=63, examples=["door"])
    tenant: Text = Field("default", min_length=1, max_length=63, examples=["harbour"])
    times: Real = Field(1.0, ge=0, le=TIMES_MAX, examples=[3.0])
    more_rps: Real = Field(0.0, ge=0, le=RPS_MAX, examples=[5.0])
    """Requests a second."""


class PipelineEdit(Order):
    """Other clients of a pipeline, another SLO, or another measure of its cost. Fields that are left out stay as they
    are.
    """

    kind: Literal["pipeline"]
    pipeline: Text = Field(min_length=1, max_length=63, examples=["signs"])
    tenant: Text = Field("default", min_length=1, max_length=63, examples=["harbour"])
    times: Real = Field(1.0, ge=0, le=TIMES_MAX, examples=[2.0])
    """Factor of its clients and of its frames without a client. A part of a client is a client with as many frames
    fewer.
    """
    more_clients: Whole = Field(0, ge=0, le=CLIENTS_MAX, examples=[10])
    """Clients that are added."""
    client_fps: Real | None = Field(None, ge=RATE_MIN, le=FPS_MAX, examples=[5.0])
    """Frames a second of each added client; left out: as of the first client that has joined."""
    latency_slo_ms: Real | None = Field(None, gt=0, le=SLO_MS_MAX, examples=[400.0])
    cost_by: CostBy | None = None


class MemoryEdit(Order):
    """Another budget. Guards and other processes take the same of it as now."""

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
    """Seconds of the box's time that are simulated."""


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
    """Mean accuracy of the answers, in percent; agreement with the original for models without labels."""
    latency_ms: LatencyFigures


class ClientFigures(Shape):
    """Clients of a pipeline that asked to be let in over the simulated time."""

    joined: int
    refused: int
    """Clients without room: their frames are not sent."""


class PipelineFigures(Shape):
    """A pipeline over the simulated time."""

    frames: int
    finished_in_time: int
    """Frames that finished with all of their items within the pipeline's SLO."""
    cost: float | None = Field(examples=[12.4])
    """Cost of all frames in the unit of the pipeline's `cost_by`: processor seconds, joules, or a price; null: not
    known for its processors.
    """
    clients: ClientFigures


class MemoryFigures(Shape):
    """Parts of the memory, in MB; together they are the budget."""

    builds: float
    processes: float
    """Guards and other processes beside builds."""
    runs: float
    """Activations of runs."""
    free: float
    """Free memory; below zero where runs take memory that the machine has beside the budget."""


class SimulatedFigures(ApplicationFigures):
    """The box over the simulated time; as `appliance simulate --json` has them."""

    late: int
    slo_attainment: float | None
    memory_peak_mb: float
    """The most that builds took."""
    memory_fullest_mb: MemoryFigures | None = None
    """The parts of the memory at the moment when least was free."""
    loads: int
    replacements: int
    evictions: int
    processors: dict[str, dict[str, float]]
    """`busy` and `idle` as shares, `batches`."""
    applications: dict[str, ApplicationFigures]
    """By name; by `tenant/name` where several tenants have one of the name."""
    pipelines: dict[str, PipelineFigures] = Field({})
    """By `tenant/name`; empty where the box has none."""


class SimulatedChange(Shape):
    """A change of what an application has in memory."""

    application: str = Field(examples=["default/door"])
    before: str = Field(examples=["fp32"])
    """The variant before; empty: none."""
    after: str = Field(examples=["int8"])
    """The variant after; empty: none."""


class SimulatedDecision(Shape):
    """A decision about memory in the simulated time."""

    at_s: float
    """Seconds after the start."""
    application: str = Field(examples=["default/door"])
    """The application that needed memory; empty: the memory was shared anew."""
    outcome: str = Field(examples=["cold"])
    changes: list[SimulatedChange]
    reason: Reason


class SimulationReport(Shape):
    """A simulated box over time. Every list has one entry for each entry of `at_s`."""

    at_s: list[float]
    """Seconds after the start at which the memory was looked at."""
    models_mb: dict[str, list[float]]
    """Model → memory of its variants, the largest first; `others` are the models beyond the first eight."""
    processes_mb: list[float]
    """Memory of guards and other processes."""
    runs_mb: list[float]
    """Memory of runs: their activations."""
    free_mb: list[float]
    """Free memory; with the other parts it adds up to the budget."""
    requests: dict[str, list[int]]
    """Requests that came around that time: `warm`, `cold`, `failed` and `dropped`."""
    decisions: list[SimulatedDecision]
    """The first decisions about memory."""
    decisions_in_all: int


class SimulationReports(Shape):
    """The report of the box as it is, and of the box with the edits."""

    today: SimulationReport
    edited: SimulationReport


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
    """Applications without a measured variant, pipelines that ask such an application, and pipelines that cannot be
    simulated.
    """
    created_at: datetime.datetime
    today: SimulatedFigures | None
    """The box as it is: its mean rates since the start, its budget, its policies."""
    edited: SimulatedFigures | None
    reports: SimulationReports | None = None
    """Both over time; null until it is done, and in the list."""


class SimulationsShape(Shape):
    """Simulations that are kept, and the policies that an edit may choose."""

    items: list[SimulationShape]
    """Newest first."""
    policies: dict[str, list[str]] = Field(examples=[{"eviction": ["expected-utility", "lru"]}])
    """Family → names."""
