"""The dispatch family: which subgraph of which job runs on which processor next (Band §4.2-4.3).

It is asked whenever a job comes and whenever a run ends, and commits one run only: what remains of the job goes back
into the queue and is decided anew (BA-09, BA-15). A policy reads no clock and draws no number of its own.
"""

from dataclasses import dataclass
from typing import Protocol

from appliance.policies.dispatch.partition import Partition

FOREVER = float("inf")


@dataclass(frozen=True, slots=True)
class Processor:
    """One that can be used. `busy_until_ms`: when what runs there now is expected to end."""

    name: str
    busy_until_ms: float = 0.0


@dataclass(frozen=True, slots=True)
class Tenant:
    """Processor time goes to tenants by `weight`; `served_ms` is what a tenant has had of it."""

    name: str
    weight: float = 1.0
    served_ms: float = 0.0


@dataclass(frozen=True, slots=True)
class Job:
    """A request with its network's parts. `done`: units that have run, as bits. `at`: the processor that holds their
    results; None: in nobody's memory yet. `queued_ms`: when it last came into the queue; None: on its arrival.
    """

    name: str
    partition: Partition
    arrival_ms: float
    deadline_ms: float = FOREVER
    done: int = 0
    at: str | None = None
    tenant: str = ""
    priority: int = 0
    queued_ms: float | None = None
    fixed: str | None = None
    """Its processor under the policy `fixed`; None: whichever runs most of it, then the quickest."""


@dataclass(frozen=True, slots=True)
class DispatchInput:
    """`transfer_ms`: to go on with a job on another processor than before. Jobs that are running are not among `jobs`.
    Without `tenants`, nobody's turn comes before another's.
    """

    now_ms: float
    processors: tuple[Processor, ...]
    jobs: tuple[Job, ...]
    transfer_ms: float = 0.0
    tenants: tuple[Tenant, ...] = ()


@dataclass(frozen=True, slots=True)
class Decision:
    """The next run: `start_ms` may lie ahead while its processor is busy. `expected_latency_ms`: from now until the
    whole job is done, by the best that can follow (BA-12, BA-13). `slack_ms` is infinite without an SLO.
    """

    job: str
    units: int
    ops: tuple[str, ...]
    processor: str
    start_ms: float
    expected_latency_ms: float
    slack_ms: float


@dataclass(frozen=True, slots=True)
class DispatchPlan:
    """`decision` is None only when no job can run on the processors there are. `violated`: jobs, by name, whose best
    finish is past their deadline; one of them is decided on only when no other job can run.
    """

    decision: Decision | None
    violated: tuple[str, ...]
    reason: str


class DispatchPolicy(Protocol):
    """`plan` is total and deterministic: permuting jobs or processors does not change the answer."""

    requeues_at_head: bool
    """Where what remains of a job goes: to the head of the queue, else to its tail (Band's EnqueueRemaining)."""

    def plan(self, problem: DispatchInput) -> DispatchPlan: ...
