"""The adaptation family: which network on which worker, in which batch, and which client to which worker (Jellyfish
§IV, problem P1).

Constraints, for client i on a worker that runs network j in batches of b: 2·l_j(b) ≤ L_ij, with L_ij = slo_i −
8000·input_bytes_j/bandwidth_i (eq. 5: one execution of waiting, one of its own), and Σ rate ≤ 1000·b/l_j(b) over the
clients of the worker (eq. 6); and the transfer of a frame takes at most what the client allows. Objective, in this
order: most clients mapped (O1), then Σ accuracy·rate (O2). A policy reads no clock (but `exact`, which has a time
limit) and draws no number of its own.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

TOLERANCE = 1e-9
"""Relative slack of both constraints, so that 0.1 + 0.2 fits into 0.3."""


@dataclass(frozen=True, slots=True)
class Network:
    """One network of the zoo. `latency_ms` is the P99 by batch size; only the sizes given exist."""

    name: str
    accuracy: float
    input_bytes: float
    latency_ms: Mapping[int, float]


@dataclass(frozen=True, slots=True)
class Client:
    """One session as the planner sees it: requests per second, end-to-end SLO, estimated uplink."""

    name: str
    rate_rps: float
    slo_ms: float
    bandwidth_bps: float
    transfer_ms_max: float = math.inf
    """Of a frame, so that the link keeps up with the rate; the smallest network's frames are taken to do."""


@dataclass(frozen=True, slots=True)
class AdaptationInput:
    """`previous` holds the network of each worker before (None: empty), by worker; only a start and the target of
    matching. `seed` drives annealing.
    """

    networks: tuple[Network, ...]
    workers: int
    clients: tuple[Client, ...]
    previous: tuple[str | None, ...] = ()
    seed: int = 0
    prefetch_per_worker: int = 5
    """Networks kept loaded around an active one, itself included (§VI-G: 5, or 3)."""
    time_limit_s: float = 60.0
    """For `exact` only; no other policy has a limit in time."""


@dataclass(frozen=True, slots=True)
class WorkerPlan:
    """What one worker does: its index, the network and batch it runs, the clients it serves (at least one, by name)."""

    worker: int
    network: str
    batch: int
    clients: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AdaptationPlan:
    """`workers` in the order of their index; one without clients is left out and stays as it is.

    `unmapped` clients fit nowhere: a state to report
    and to retry (JF-23)."""

    workers: tuple[WorkerPlan, ...]
    unmapped: tuple[str, ...]
    objective: float
    """Σ accuracy·rate over the mapped clients."""
    prefetch: tuple[str, ...]
    reason: str
    facts: Mapping[str, float] = field(default_factory=dict)
    """What a policy knows beyond the plan, such as the proven bound of `exact`."""


class AdaptationPolicy(Protocol):
    """`plan` is total and deterministic; permuting clients or networks permutes the answer (ties break by name)."""

    def plan(self, problem: AdaptationInput) -> AdaptationPlan: ...
