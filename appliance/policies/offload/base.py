"""The offload family: which client sends which frame, and in which batch it runs (ARISE §4.4).

Frame f is captured at 1000·f/fps, reaches the box `uplink_ms` later and its result the client `downlink_ms` after the
batch ends; it then serves every displayed frame until the next result. Drop of a client over the displayed frames of
[now, now + horizon) = rate of its variant · mean stride + gap of its variant − drop_rate · reference mean stride; it
must not exceed `accuracy_slo`. Gap and rate together are the drop curve of a variant; with no rate of its own that is
the client's, and gap and stride add up. Objective: most clients served. Times are milliseconds as floats: the plans are
about tens of milliseconds, and the problems come and go as JSON.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol


@dataclass(frozen=True, slots=True)
class Variant:
    """One candidate network of a client: what it loses against the reference network at a stride of 0, the uplink of
    its input, its latency by batch size.
    """

    name: str
    accuracy_gap: float
    uplink_ms: float
    inference_ms: Mapping[int, float]
    drop_rate: float | None = None
    """What it loses with each frame of stride; None: as much as the reference network."""


@dataclass(frozen=True, slots=True)
class Client:
    """A session as the planner sees it. The four `last_` values are None until its first frame and its first result.

    Its clock may lie beside the planner's: a client that captures frame f by `x` ms after 1000·f/fps has an uplink that
    is longer by as much, and a downlink that is shorter, and may so be below 0.
    """

    name: str
    drop_rate: float
    """Of the reference network, with each frame of stride."""
    accuracy_slo: float
    uplink_ms: float
    downlink_ms: float
    last_frame: int | None = None
    last_arrival_ms: float | None = None
    last_result_frame: int | None = None
    last_result_ms: float | None = None
    arrivals: tuple[tuple[int, float], ...] = ()
    """Recent (frame, arrival in ms); with them `uplink_ms` is only a prior (AR-20)."""
    variants: tuple[Variant, ...] = ()
    """Candidates of the joint choice; none: the problem's own network."""
    kept_free: float = 0.0
    """Of `accuracy_slo`, what plans aim to leave: the client is paced, and others are admitted beside it, as if it
    allowed less by as much. Nobody is removed for it, and no plan is given up."""
    reference_stride: float | None = None
    """Mean stride in frames that its drop counts from; None: that of a dedicated box, by its own times (0: of a fresh
    result)."""


class Batch(NamedTuple):
    """Requests that run together: (client, frame), all of one variant, from `start_ms` for the latency of their number.

    A tuple, since a plan holds hundreds and tuples cost half as much to make.
    """

    start_ms: float
    variant: str | None
    requests: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class OffloadInput:
    """The box at `now_ms`: its network by batch size (only sizes given exist), who is served, who waits, what of the
    previous plan is under way.
    """

    fps: float
    now_ms: float
    horizon_ms: float
    inference_ms: Mapping[int, float]
    clients: tuple[Client, ...] = ()
    waiting: tuple[Client, ...] = ()
    busy_until_ms: float = 0.0
    grace: float = 0.1
    previous: tuple[Batch, ...] = ()

    @property
    def has_variants(self) -> bool:
        """Whether some client has candidates to choose from."""
        return any(client.variants for client in (*self.clients, *self.waiting))


class Served(NamedTuple):
    """What a served client is told: how often about, in what batches about, which frames exactly, and the drop to
    expect.
    """

    name: str
    interval: int
    batch: int
    variant: str | None
    frames: tuple[int, ...]
    expected_drop: float


@dataclass(frozen=True, slots=True)
class OffloadPlan:
    """`clients` = all that are served, by name, the `admitted` among them; `removed` were served and can be no more.

    Both sorted by name.
    """

    clients: tuple[Served, ...]
    admitted: tuple[str, ...]
    removed: tuple[str, ...]
    batches: tuple[Batch, ...]
    reason: str


class OffloadPolicy(Protocol):
    """`plan` is total and deterministic; permuting clients permutes the answer (ties break by name)."""

    def plan(self, problem: OffloadInput) -> OffloadPlan: ...
