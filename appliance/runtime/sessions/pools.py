"""Pools: the sessions that are planned together, and what is remembered of their last plan.

The sessions of one tenant at one application: those with promises of latency above one accuracy, and those with
promises of accuracy of one frame rate on one worker. So no tenant's plan tells of another's devices.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from appliance.clock import NS_PER_S
from appliance.domain.session import AccuracyPromise, LatencyPromise, PromiseKind
from appliance.domain.states import SessionState
from appliance.policies.offload.base import Batch
from appliance.runtime.sessions.batches import Batches
from appliance.runtime.sessions.live import LiveSession
from appliance.runtime.sessions.offloading import Scale, Shift

BEFORE_NS = 10 * NS_PER_S
"""How long before a pool's first plan its epoch lies: frames that were captured before are counted from 0, too."""


@dataclass(frozen=True, slots=True)
class PoolKey:
    """Who is planned together."""

    tenant: str
    application_id: str
    kind: PromiseKind
    floor: float = 0.0
    """Least accuracy in points, of promises of latency."""
    fps: float = 0.0
    """Of promises of accuracy."""
    lane: int = 0
    """The worker that promises of accuracy are planned on."""


@dataclass(slots=True)
class Pool:
    """What is remembered of one between two plans."""

    key: PoolKey
    epoch_ns: int
    gates: Batches
    """Of offload: who waits for whom."""
    previous: tuple[str | None, ...] = ()
    """Of adaptation: the network of each worker."""
    mapping: tuple[tuple[str, int, tuple[str, ...]], ...] = ()
    """Of adaptation: what was recorded last."""
    wanted: tuple[str, ...] = ()
    """Of adaptation: the variants of the plan; they are switched to when they are in memory."""
    prefetch: tuple[str, ...] = ()
    batches: tuple[Batch, ...] = ()
    """Of offload."""
    shifts: dict[str, Shift] = field(default_factory=dict)
    tried_ns: int = 0
    """Of offload: when one that waits was tried last."""
    bandwidth_bps: dict[str, float] = field(default_factory=dict)
    """By session, as the last plan took it."""
    run_ms_max: float = 0.0
    """The longest run of its present plan."""

    @property
    def scale(self) -> Scale:
        return Scale(self.epoch_ns, self.key.fps)


def key_of(live: LiveSession, lane: int = 0) -> PoolKey:
    """The pool that a session belongs to; `lane` of a promise of accuracy."""
    session, promise = live.session, live.promise
    if isinstance(promise, LatencyPromise):
        return PoolKey(session.tenant, session.application_id, promise.kind, promise.accuracy_min or 0.0)
    assert isinstance(promise, AccuracyPromise)
    return PoolKey(session.tenant, session.application_id, promise.kind, 0.0, session.fps, lane)


def holds(live: LiveSession, now_ns: int) -> bool:
    """Whether capacity is kept for it."""
    if live.state is SessionState.SUSPENDED:
        return now_ns < live.holds_until_ns and not live.session.is_paused
    return live.state is SessionState.SERVED


def held(sessions: Iterable[LiveSession], key: PoolKey, now_ns: int) -> list[LiveSession]:
    """The sessions of a pool that capacity is kept for, by id."""
    found = [live for live in sessions if key_of(live, live.lane) == key and holds(live, now_ns)]
    return sorted(found, key=lambda live: live.id)


def waiting(sessions: Iterable[LiveSession], key: PoolKey) -> list[LiveSession]:
    """Those of it that wait, by weight and then in the order in which they came; who was tried in vain comes last."""
    found = [live for live in sessions if live.state is SessionState.WAITING and key_of(live, live.lane) == key]
    return sorted(found, key=lambda live: (live.tries, -live.session.weight, live.session.began_at, live.id))
