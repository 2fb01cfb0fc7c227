"""What both kinds of plans are made in: the pools, what they may run, whose share is what, who asks the planners; and
what they both do with a session: let it in, and remove it.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from appliance.domain.session import Cause, LatencyPromise, PromiseKind
from appliance.domain.states import SessionState
from appliance.runtime.decisions.sessions import unasked
from appliance.runtime.servable import Servable
from appliance.runtime.sessions import adapting
from appliance.runtime.sessions.deciding import Deciding
from appliance.runtime.sessions.environment import SessionEnvironment
from appliance.runtime.sessions.ledger import ProcessorLedger
from appliance.runtime.sessions.live import LiveSession
from appliance.runtime.sessions.pools import Pool, PoolKey, Pools, holds, key_of
from appliance.runtime.sessions.promised_memory import PromisedMemory
from appliance.runtime.sessions.shares import Shares
from appliance.runtime.sessions.verdict import Verdict
from appliance.runtime.sessions.worker_lanes import WorkerLanes
from appliance.runtime.sessions.zoo import Zoo
from appliance.runtime.sessions.zoos import Zoos

AT_ONCE = 32
"""Sessions that are looked at in one turn of the event loop: a box may have a thousand."""


@dataclass(slots=True)
class Figures:
    """Counts since the start."""

    plans: int = 0
    late_plans: int = 0
    removals: int = 0
    switches: Counter[str] = field(default_factory=Counter)
    """Of devices to another variant, by how that was in memory then: `awake`, `asleep` or `absent`; ..."""
    selections: Counter[str] = field(default_factory=Counter)
    """... variants of plans, the same ones as before among them; ..."""
    changes: Counter[str] = field(default_factory=Counter)
    """... and those of them that the plan before did not have."""
    admissions: int = 0
    refusals: int = 0


_FAMILIES = {PromiseKind.LATENCY: "adaptation", PromiseKind.ACCURACY: "offload"}


class PlanningContext:
    """Of all pools. Event-loop thread only."""

    def __init__(
        self,
        environment: SessionEnvironment,
        deciding: Deciding,
        ledger: ProcessorLedger,
        sessions: Mapping[str, LiveSession],
    ) -> None:
        """`sessions`: those that have not ended, by id; kept by the registry."""
        self.environment = environment
        self.deciding = deciding
        self.ledger = ledger
        self.sessions = sessions
        self.pools = Pools(environment.clock, environment.queue)
        self.zoos = Zoos(environment)
        self.worker_lanes = WorkerLanes()
        self.shares = Shares(environment.clock, ledger, sessions, environment.weights, self.least)
        self.memory = PromisedMemory(environment, self.pools, self.zoos, self.shares, self.beside)
        self.figures = Figures()

    def put(self, live: LiveSession) -> None:
        """A session has come, or what decides of its pool has changed."""
        self.pools.members.put(live)
        self.shares.forget()
        self.memory.changed(key_of(live, live.lane))

    def take(self, live: LiveSession) -> None:
        """A session has gone."""
        self.pools.members.take(live)
        self.shares.forget()
        self.memory.changed(key_of(live, live.lane))

    def admit(self, live: LiveSession, verdict: Verdict) -> None:
        """Serve it from now on, as the verdict says."""
        if verdict.mapped is not None:  # the next search may overlook it
            self.pools.pool(key_of(live)).plan = verdict.mapped
        for victim in verdict.displaced:
            self.remove(victim, Cause.SHARE, "it was beyond its tenant's share, which another tenant wants now")
        live.lane = verdict.lane
        least = self.least(live) if isinstance(live.promise, LatencyPromise) else verdict.load
        self.ledger.sell(key_of(live, live.lane), live.session.tenant, least)
        live.become(SessionState.SERVED)
        if live.id in self.sessions:
            self.put(live)
        self.figures.admissions += 1

    def is_held(self, live: LiveSession, now_ns: int) -> bool:
        """Whether it is there, and capacity is kept for it."""
        return live.id in self.sessions and holds(live, now_ns)

    def taken(self, live: LiveSession) -> float:
        """Share of all workers that a session keeps others from; none of one that capacity is not kept for."""
        return self.least(live) if holds(live, self.environment.clock.now_ns()) else 0.0

    def give_back(self, live: LiveSession) -> None:
        """A session leaves its pool, whose next plan may be some time off."""
        taken = self.taken(live)
        self.ledger.give_back(key_of(live, live.lane), max(live.load, taken), taken)
        self.memory.changed(key_of(live, live.lane))

    def remove(self, live: LiveSession, cause: Cause, reason: str, *, is_recorded: bool = False) -> None:
        """It waits from now on, and is told why; it is tried again. What it took is free at once: for whom it goes is
        planned before its own pool is. `is_recorded`: as a decision of a planner."""
        if live.state in (SessionState.SERVED, SessionState.SUSPENDED):
            self.give_back(live)
        if live.state is SessionState.SERVED:
            self.figures.removals += 1
            live.patience.removed(self.environment.clock.now_ns())
            live.become(SessionState.WAITING, f"{cause.value}: {reason}", is_broken=True)
            if not is_recorded:
                self.record(live, "removed", live.reason)
        elif live.state is SessionState.SUSPENDED:
            live.holds_until_ns = 0
        self.memory.changed(key_of(live, live.lane))

    def refused(self, live: LiveSession, verdict: Verdict) -> Verdict:
        """The verdict on a session that no planner was asked about, which is in the log from now on."""
        self.record(live, "refused", verdict.told)
        return verdict

    def record(self, live: LiveSession, outcome: str, reason: str) -> None:
        """What became of a session, of which no planner was asked."""
        family = _FAMILIES[live.promise.kind]
        self.environment.decisions.record(family, unasked(live.session, family, outcome, reason))

    def zoo_for(self, pool: Pool, members: Sequence[LiveSession], others: Sequence[LiveSession] = ()) -> Zoo | None:
        """None where nobody is to be planned for, or nothing can serve them: the pool is closed."""
        if members or others:
            zoo = self.zoos.of(pool.key)
            if zoo.rungs:
                return zoo
            for live in members:
                self.remove(live, *zoo.lack)
        self.close(pool)
        return None

    def taken_away(self, pool: Pool, members: Sequence[LiveSession], zoo: Zoo) -> frozenset[str]:
        """Variants that members send for, that have been in memory for them, and are so no more. To be asked at each
        plan."""
        used = {live.variant for live in members}.intersection(zoo.by_name)
        there = {name for name in used if self.is_there(zoo.by_name[name].servable)}
        pool.found = frozenset(there | (pool.found & used))
        return pool.found - there

    def is_there(self, servable: Servable) -> bool:
        """Whether a variant is in memory, awake or asleep."""
        return self.environment.is_resident(servable) or self.environment.is_asleep(servable)

    def close(self, pool: Pool) -> None:
        """Nobody of it is served any more."""
        self.ledger.remove(pool.key)
        self.memory.changed(pool.key)
        self.worker_lanes.plan(pool.key, ())
        if self.pools.close(pool):
            self.zoos.forget(pool.key)

    def beside(self, key: PoolKey) -> adapting.FrameOverhead:
        """The longest run of others: another pool's, or as long as requests without a session take."""
        others = [pool.run_ms_max for pool in self.pools if pool.key != key]
        if self.ledger.unplanned > 0.01:
            others.append(self.ledger.unplanned_run_ms)
        foreign = max(others, default=0.0) / self.environment.workers
        return adapting.FrameOverhead(self.environment.decode_ms(key.tenant, key.application_id), foreign)

    def least(self, live: LiveSession) -> float:
        """Share of all workers that a promise takes at least; of one that is served, by its last plan."""
        if not isinstance(live.promise, LatencyPromise):
            return live.load
        if live.state is SessionState.SERVED and live.least_load is not None:
            return live.least_load
        key = key_of(live)
        return adapting.least_load(live, self.zoos.of(key).rungs, self.environment.workers, self.beside(key))
