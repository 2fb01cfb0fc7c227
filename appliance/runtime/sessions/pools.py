"""Pools: the sessions that are planned together, what is remembered of their last plan, and which pools there are.

The sessions of one tenant at one application: those with promises of latency above one accuracy, and those with
promises of accuracy of one frame rate on one worker. So no tenant's plan tells of another's devices.
"""

from collections import deque
from collections.abc import Awaitable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import TypeVar

from appliance.clock import NS_PER_MS, NS_PER_S, Clock
from appliance.domain.session import AccuracyPromise, LatencyPromise, PromiseKind
from appliance.domain.states import SessionState
from appliance.policies.adaptation.base import AdaptationPlan
from appliance.policies.offload.base import Batch
from appliance.runtime.engine.lanes import BatchCounts
from appliance.runtime.serving.queue import Queue
from appliance.runtime.sessions.batches import Batches
from appliance.runtime.sessions.changes import Changes
from appliance.runtime.sessions.deciding import RECENT
from appliance.runtime.sessions.live import LiveSession
from appliance.runtime.sessions.offloading import Scale, Shift

BEFORE_NS = 10 * NS_PER_S
"""How long before a pool's first plan its epoch lies: frames that were captured before are counted from 0, too."""

PlanT = TypeVar("PlanT")


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
    changes: Changes = field(default_factory=Changes)
    """Of adaptation: of variants that are as accurate."""
    mapping: tuple[tuple[str, int, tuple[str, ...]], ...] = ()
    """Of adaptation: what was recorded last."""
    plan: AdaptationPlan | None = None
    """Of adaptation: the last one."""
    wanted: tuple[str, ...] = ()
    """Of adaptation: the variants of the plan; they are switched to when they are in memory."""
    prefetch: tuple[str, ...] = ()
    enough: frozenset[str] = frozenset()
    """Variants of which each would keep the promises of all its sessions, as links and runs were at the last plan."""
    found: frozenset[str] = frozenset()
    """Variants that its devices send for which have been in memory since; one that is so no more was taken away."""
    batches: tuple[Batch, ...] = ()
    """Of offload."""
    paces: dict[str, tuple[str | None, int]] = field(default_factory=dict)
    """Of offload: variant and interval in frames by session, as they were recorded last."""
    shifts: dict[str, Shift] = field(default_factory=dict)
    tried_ns: int = 0
    """Of offload: when one that waits was tried last."""
    bandwidth_bps: dict[str, float] = field(default_factory=dict)
    """By session, as the last plan took it."""
    run_ms_max: float = 0.0
    """The longest run of its present plan."""
    decided: int = 0
    """Decisions about it since it began, ..."""
    decided_ms: deque[float] = field(default_factory=lambda: deque(maxlen=RECENT))
    """... and what the latest of them took, until they were there."""

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


class Members:
    """Sessions by pool. Whoever changes what decides of a session's pool puts it again."""

    def __init__(self) -> None:
        self._pools: dict[PoolKey, dict[str, LiveSession]] = {}
        self._keys: dict[str, PoolKey] = {}
        """Of each session, by id."""
        self._lanes: dict[PoolKey, set[PoolKey]] = {}
        """Pools that have a session, by what they have in common whatever their worker."""

    def put(self, live: LiveSession) -> None:
        """It is there, in the pool that it belongs to now."""
        key = key_of(live, live.lane)
        if self._keys.get(live.id) != key:
            self.take(live)
            self._keys[live.id] = key
        self._pools.setdefault(key, {})[live.id] = live
        self._lanes.setdefault(replace(key, lane=0), set()).add(key)

    def take(self, live: LiveSession) -> None:
        """It is there no more; one that is not is no error."""
        key = self._keys.pop(live.id, None)
        if key is not None:
            del self._pools[key][live.id]
            if not self._pools[key]:
                del self._pools[key]
                lanes = self._lanes[replace(key, lane=0)]
                lanes.discard(key)
                if not lanes:
                    del self._lanes[replace(key, lane=0)]

    def of(self, key: PoolKey) -> Iterable[LiveSession]:
        """Those of a pool."""
        return self._pools.get(key, {}).values()

    def of_any_lane(self, key: PoolKey) -> list[LiveSession]:
        """Those of a pool and of its like on other workers."""
        return [live for other in self._lanes.get(replace(key, lane=0), ()) for live in self._pools[other].values()]

    def keys(self) -> Iterable[PoolKey]:
        """Pools that have a session."""
        return self._pools.keys()

    def pools_of(self, tenant: str) -> set[PoolKey]:
        """How a tenant's sessions differ, whatever workers they are planned on."""
        return {key for key in self._lanes if key.tenant == tenant}


class Pools:
    """Those there are, with their sessions. Event-loop thread only."""

    def __init__(self, clock: Clock, queue: Queue) -> None:
        self._clock = clock
        self._queue = queue
        self._pools: dict[PoolKey, Pool] = {}
        self._gone = BatchCounts()
        """Of pools that are no more."""
        self.members = Members()

    def __iter__(self) -> Iterator[Pool]:
        return iter(self._pools.values())

    def __len__(self) -> int:
        return len(self._pools)

    def get(self, key: PoolKey) -> Pool | None:
        """None: nobody has planned it."""
        return self._pools.get(key)

    def pool(self, key: PoolKey) -> Pool:
        """Made where there is none."""
        pool = self._pools.get(key)
        if pool is None:
            gates = Batches(self._clock, self._queue, key, key.tenant)
            pool = self._pools[key] = Pool(key, max(0, self._clock.now_ns() - BEFORE_NS), gates)
        return pool

    def keys(self, kind: PromiseKind, lanes: int = 1) -> list[PoolKey]:
        """All pools of a kind that have a session, or had one, and those of `lanes` in which one that waits may be."""
        keys = {key for key in (*self._pools, *self.members.keys()) if key.kind is kind}
        if lanes > 1:
            waits = [key for key in keys if any(live.state is SessionState.WAITING for live in self.members.of(key))]
            keys |= {replace(key, lane=lane) for key in waits for lane in range(lanes)}
        return sorted(keys, key=lambda key: (key.tenant, key.application_id, key.floor, key.fps, key.lane))

    def held(self, key: PoolKey, without: LiveSession | None = None) -> list[LiveSession]:
        """The sessions that capacity is kept for, by id."""
        found = held(self.members.of(key), self._clock.now_ns())
        return [live for live in found if without is None or live.id != without.id]

    def waiting(self, key: PoolKey) -> list[LiveSession]:
        """The sessions that wait, in the order in which they are tried: on any worker, whichever they were on."""
        return waiting(self.members.of_any_lane(key), self._clock.now_ns())

    def close(self, pool: Pool) -> bool:
        """Nobody of it is served any more; whether nobody of it is left."""
        pool.gates.plan(())
        pool.plan = None
        pool.mapping, pool.batches, pool.run_ms_max, pool.prefetch, pool.wanted = (), (), 0.0, (), ()
        pool.paces, pool.enough = {}, frozenset()
        if any(True for _ in self.members.of(pool.key)):
            return False
        self._gone = _sum([self._gone, self._queue.scheduler.lanes.forget(pool.key)])
        self._pools.pop(pool.key, None)
        return True

    def batch_counts(self) -> BatchCounts:
        """Of all pools."""
        return _sum([self._gone, *(pool.gates.counts for pool in self._pools.values())])

    def beginning(self, until_ns: int) -> int:
        """How many planned batches have yet to begin, and are to by then."""
        return sum(pool.gates.beginning(until_ns) for pool in self._pools.values() if pool.batches)

    async def timed(self, key: PoolKey, deciding: Awaitable[PlanT]) -> PlanT:
        """A decision about a pool."""
        pool, start_ns = self.pool(key), self._clock.now_ns()
        plan = await deciding
        pool.decided += 1
        pool.decided_ms.append((self._clock.now_ns() - start_ns) / NS_PER_MS)
        return plan


def _sum(counts: Iterable[BatchCounts]) -> BatchCounts:
    found = list(counts)
    return BatchCounts(sum(one.full for one in found), sum(one.short for one in found), sum(one.late for one in found))


def holds(live: LiveSession, now_ns: int) -> bool:
    """Whether capacity is kept for it."""
    if live.state is SessionState.SUSPENDED:
        return now_ns < live.holds_until_ns and not live.session.is_paused
    return live.state is SessionState.SERVED


def held(members: Iterable[LiveSession], now_ns: int) -> list[LiveSession]:
    """The sessions of a pool that capacity is kept for, by id."""
    return sorted((live for live in members if holds(live, now_ns)), key=lambda live: live.id)


def waiting(members: Iterable[LiveSession], now_ns: int) -> list[LiveSession]:
    """Those of a pool that wait and may be tried, by weight and then in the order in which they came; who was tried in
    vain is last."""
    found = [live for live in members if live.state is SessionState.WAITING and now_ns >= live.patience.again_ns]
    return sorted(found, key=lambda live: (live.tries, -live.session.weight, live.session.began_at, live.id))
