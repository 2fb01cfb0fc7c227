"""The allocation family: worker type, batch and concurrency of each module of a pipeline, and which instances they go
to (Scrooge §3.3-3.4).

A module of input rate r is served by full instances (each takes its configuration's whole throughput; W = d +
1000·w/throughput) and at most one partial instance (rate t; W* = d + 1000·w/t), where w is what a batch waits for
(`BatchWait`). Its latency is the worst of its instances; the critical path over the edges must fit the SLO. Cost is Σ
instances × cost of one, a partial instance by its share t/throughput. An instance takes a worker of its own type, and
of others what it `draws`. A policy reads no clock and draws no random number.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from appliance.domain.pipeline import CostBy

TOLERANCE = 1e-9
"""Relative slack of rates, latencies and shares, so that a third and two thirds fill a worker."""


class BatchWait(StrEnum):
    """How many items a batch of b waits for before it runs, each for 1/rate."""

    FULL = "full"
    """b, the paper's eq. 3; a batch of one waits for another one."""
    REST = "rest"
    """b − 1: the first one is there, so a batch of one waits for nobody."""
    NONE = "none"
    """0: batches are of items that come together."""

    def items(self, batch: int) -> int:
        return {BatchWait.FULL: batch, BatchWait.REST: batch - 1, BatchWait.NONE: 0}[self]


@dataclass(frozen=True, slots=True)
class WorkerType:
    """One kind of processor.

    `available` counts the box's workers of it, those in `existing` included; None: as many as wanted. Kinds on the same
    cores are of one `group`: `available` is that of all of them together, the same for each, and a worker of any takes
    one of these.
    """

    name: str
    cost: float
    available: int | None = None
    group: str | None = None

    @property
    def pool(self) -> str:
        """What its workers are taken from: the group, or the type itself."""
        return self.group or self.name


@dataclass(frozen=True, slots=True)
class Draw:
    """What a full instance takes beside its own worker: so much of the time of one of another type, a share of 1 at
    most, and of its cost.
    """

    worker: str
    share: float


@dataclass(frozen=True, slots=True)
class Profile:
    """One point of a module's profile: `concurrency` batches of `batch` items at once, each for `latency_ms`."""

    worker: str
    batch: int
    concurrency: int
    latency_ms: float
    throughput_rps: float | None = None
    """None: 1000·batch·concurrency/latency."""
    power_w: float | None = None
    """Of a full instance with what it draws. Needed when cost is energy."""
    draws: tuple[Draw, ...] = ()
    """Where a run goes over to processors of other types: each one once."""


@dataclass(frozen=True, slots=True)
class Module:
    """One stage.

    `rate_rps` counts items at its input, scaling factors of the edges applied; 0 needs no instance. `ballooning` is
    observed / profiled latency (SC-20)."""

    name: str
    rate_rps: float
    profiles: tuple[Profile, ...]
    ballooning: float = 1.0


@dataclass(frozen=True, slots=True)
class Part:
    """The share of one worker that a module takes."""

    module: str
    share: float


@dataclass(frozen=True, slots=True)
class Existing:
    """A worker that runs already: what other pipelines take of it, and the modules loaded there. In a group equal
    indices mean the same one of its workers, whatever the type.
    """

    worker: str
    index: int
    parts: tuple[Part, ...] = ()
    loaded: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AllocationInput:
    """One pipeline to serve.

    `edges` are pairs of module names without a cycle; the SLO excludes the way to and from the client.
    """

    slo_ms: float
    workers: tuple[WorkerType, ...]
    modules: tuple[Module, ...]
    edges: tuple[tuple[str, str], ...] = ()
    existing: tuple[Existing, ...] = ()
    cost_by: CostBy = CostBy.PRICE
    batch_wait: BatchWait = BatchWait.FULL


@dataclass(frozen=True, slots=True)
class Allocation:
    """One configuration of a module: whole `instances` at full rate, or the partial one with a fraction.

    `rate_rps` is that of all of them.
    """

    module: str
    worker: str
    batch: int
    concurrency: int
    rate_rps: float
    instances: float
    worst_latency_ms: float


@dataclass(frozen=True, slots=True)
class Placed:
    """What this pipeline takes of one worker, as of `existing`. `is_new`: it is none of these."""

    worker: str
    index: int
    parts: tuple[Part, ...]
    is_new: bool


@dataclass(frozen=True, slots=True)
class AllocationPlan:
    """`cost` in the unit of `cost_by`, `latency_ms` of the critical path; both None when nothing fits."""

    feasible: bool
    cost: float | None
    latency_ms: float | None
    allocations: tuple[Allocation, ...]
    placement: tuple[Placed, ...]
    reason: str
    facts: Mapping[str, float | int | bool] = field(default_factory=dict)
    """What a policy knows beyond the plan: whether it is proven optimal, what was searched."""


class AllocationPolicy(Protocol):
    """`plan` is total and deterministic; permuting workers, modules, profiles or edges permutes the answer (ties
    break by name).
    """

    def plan(self, problem: AllocationInput) -> AllocationPlan: ...
