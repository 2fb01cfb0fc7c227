"""Who is served and with which plan: the planners asked for each pool, their answers enacted, and why.

Decisions read a snapshot; a pool is planned by one decision at a time, and the sessions that have gone or come
meanwhile are left as they are. Event-loop thread only.
"""

import asyncio
import datetime
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TypeVar

from appliance.clock import NS_PER_MS, NS_PER_S, Clock
from appliance.domain.errors import ApplianceError
from appliance.domain.session import AccuracyPromise, Cause, LatencyPromise, PromiseKind, SessionPlan
from appliance.domain.states import SessionState
from appliance.log import get as get_log
from appliance.policies.adaptation.base import AdaptationInput, AdaptationPlan
from appliance.policies.adaptation.binding import Binding, binding
from appliance.policies.adaptation.going_on import gone_on
from appliance.policies.offload.base import OffloadInput, OffloadPlan
from appliance.policies.offload.drop import reference_stride
from appliance.policies.residency.base import Wish
from appliance.runtime.catalogue import Catalogue, Entry, Servable
from appliance.runtime.decisions.sessions import adaptation, offload
from appliance.runtime.ports import DecisionSink
from appliance.runtime.serving.reservations import Reservations
from appliance.runtime.sessions import adapting, offloading
from appliance.runtime.sessions.batches import BatchCounts, Batches
from appliance.runtime.sessions.deciding import Deciding
from appliance.runtime.sessions.ledger import Load, ProcessorLedger
from appliance.runtime.sessions.link import BPS_MAX
from appliance.runtime.sessions.live import LiveSession
from appliance.runtime.sessions.pools import BEFORE_NS, Members, Pool, PoolKey, held, holds, key_of, waiting
from appliance.runtime.sessions.zoo import Rung, zoo_of

LATE_NS = 200 * NS_PER_MS
"""A plan of frames that took longer than its period is about frames that were captured meanwhile: the old one stays."""
REFUSED_NS = 10 * NS_PER_S
"""So long a variant that memory has refused is not planned with."""
WISHED_NS = 5 * NS_PER_S
FORGIVEN_TURNS = 3
"""Plans of frames in a row in which a promise that cannot be kept is taken to allow more, before its session is
removed: a frame that was lost, or a link that stood for a moment, is made good by then."""
FORGIVING_TRIES = 2
REMOVALS_MAX = 8
"""Tries to find whom to remove in place of whom the planner leaves out."""
TRY_NS = 400 * NS_PER_MS
"""Who waits for a promise of accuracy is tried so often, one after another: that takes much longer than to go on."""
HEADROOM = 0.92
"""Share of what is free that is sold to who comes with a promise of latency: what was promised outlives estimates that
move a little. Of promises of accuracy a part is kept free (`Ageing`)."""
SNAPSHOT_NS = 50 * NS_PER_MS
"""So long is gone by what variants take, and by who wants some of the processors, before that is looked at again."""
AT_ONCE = 32
"""Sessions that are looked at in one turn of the event loop: a box may have a thousand."""
LINK_CHANGE = 0.2
"""Of a bandwidth since the last plan: the pool is planned anew (a fifth)."""

PlanT = TypeVar("PlanT")

log = get_log("sessions")


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a session can be served, and what it would be."""

    fits: bool
    cause: Cause | None = None
    reason: str = ""
    lane: int = 0
    displaced: tuple[LiveSession, ...] = ()
    """Sessions beyond their tenants' shares that have to go for it."""
    planned: tuple[OffloadInput, OffloadPlan] | None = None
    """Of a promise of accuracy: the plan that serves it beside all others."""
    mapped: AdaptationPlan | None = None
    """The same of a promise of latency."""


@dataclass(frozen=True, slots=True)
class Around:
    """What planning needs of the box."""

    clock: Clock
    catalogue: Catalogue
    decisions: DecisionSink
    workers: int
    fits_memory: Callable[[Servable], bool]
    """Whether it could be in memory at all, under its tenant's ceiling."""
    is_resident: Callable[[Servable], bool]
    """Whether it is in memory, awake."""
    bring: Callable[[Servable], Awaitable[None]]
    """Have it in memory, unless that takes too long or there is no room."""
    wish: Callable[[str, tuple[Wish, ...]], None]
    """Tell the residency loop which variants of an application to bring and to keep."""
    weights: Callable[[], Mapping[str, float]]
    """Of the tenants that want some of the processors now."""
    decode_ms: Callable[[str], float]
    """What decoding a frame of an application takes."""
    reservations: Reservations
    """Where the starts of planned batches are kept."""
    busy_for_ns: Callable[[], int]
    """For how long every worker is taken by the run that it has."""


@dataclass(slots=True)
class Figures:
    """Counts since the start."""

    plans: int = 0
    late_plans: int = 0
    removals: int = 0
    admissions: int = 0
    refusals: int = 0


@dataclass(slots=True)
class _Zoo:
    """What a pool may run now."""

    rungs: list[Rung]
    is_short: bool
    """Memory keeps others out."""
    by_name: dict[str, Rung] = field(default_factory=dict)
    entry: Entry | None = None
    """What it was made of: the application as the catalogue has it, ..."""
    without: frozenset[str] = frozenset()
    """... but for these variants, ..."""
    until_ns: int = 0
    """... and what runs took, which is looked at again then."""

    def __post_init__(self) -> None:
        self.by_name = {rung.name: rung for rung in self.rungs}


class Planning:
    """The planners, and the pools that they plan. It changes sessions; who has them is `Sessions`."""

    def __init__(
        self, around: Around, deciding: Deciding, ledger: ProcessorLedger, sessions: Mapping[str, LiveSession]
    ) -> None:
        """`sessions`: those that have not ended, by id; kept by the registry."""
        self._around = around
        self._deciding = deciding
        self.ledger = ledger
        self._sessions = sessions
        self._pools: dict[PoolKey, Pool] = {}
        self._members = Members()
        self._zoos: dict[tuple[str, float], _Zoo] = {}
        """By application and floor."""
        self._wanting: tuple[int, Mapping[str, float]] = (0, {})
        """Weights of the tenants that want some of the processors, and until when they hold."""
        self._refused: dict[tuple[str, str], int] = {}
        """(application, variant) that memory has refused → until when."""
        self._wished: dict[str, tuple[tuple[str, ...], int]] = {}
        """Application → what was wished for it, and when."""
        self._drop_rates: dict[str, float] = {}
        """Application → what its devices lose with a frame of age, as far as they have said so."""
        self._admissions = asyncio.Lock()
        """One promise after the other: what is free is sold once."""
        self.figures = Figures()
        self._gone = BatchCounts()
        """Of pools that are no more."""

    def put(self, live: LiveSession) -> None:
        """A session has come, or what decides of its pool has changed."""
        self._members.put(live)
        self._wanting = (0, {})

    def take(self, live: LiveSession) -> None:
        """A session has gone."""
        self._members.take(live)
        self._wanting = (0, {})

    def pools_of(self, tenant: str) -> set[PoolKey]:
        """How a tenant's sessions differ, as far as planning goes."""
        return self._members.pools_of(tenant)

    # -- may it come in ------------------------------------------------------------------------------------------------

    async def join(self, live: LiveSession) -> Verdict:
        """Serve a session that waits, with a plan, if the box can keep its promise beside all that it keeps."""
        async with self._admissions:
            found = await self.verdict(live)
            if found.fits and live.state is SessionState.WAITING:
                self.admit(live, found)
                pool = self._pool(key_of(live, live.lane))
                if live.promise.kind is PromiseKind.LATENCY:
                    await self._adapt(pool)
                elif found.planned is not None and not found.displaced:  # another plan might not have room for all
                    self._enact_offload(pool, *found.planned, self._zoo(pool.key), self._around.clock.now_ns())
                else:
                    await self._offload_turn(pool, ())
                self._wish_all()
        rung = self._zoo(key_of(live)).by_name.get(live.variant)
        if rung is not None and not self._around.is_resident(rung.servable):
            await self._around.bring(rung.servable)  # so that the first frame finds it there
        return found

    async def possible(self, live: LiveSession) -> Verdict:
        """As `verdict`, when no other promise is being made."""
        async with self._admissions:
            return await self.verdict(live)

    async def verdict(self, live: LiveSession) -> Verdict:
        """Whether the box can keep a promise beside all that it keeps; changes nothing."""
        self._mark_shares()
        return await self._verdict_as_marked(live)

    async def _verdict_as_marked(self, live: LiveSession) -> Verdict:
        """As `verdict`, with what is beyond shares as it was found last."""
        found = await self._verdict(live, 0.0)
        if found.fits or found.cause is not Cause.PROCESSOR or not self._is_within_share(live):
            return found
        victims: list[LiveSession] = []
        spared = 0.0
        for victim in self._beyond_share(live.session.tenant)[:REMOVALS_MAX]:
            victims.append(victim)
            spared += self._least(key_of(victim, victim.lane), victim)
            tried = await self._verdict(live, spared)
            if tried.fits:
                return Verdict(True, lane=tried.lane, displaced=tuple(victims))
        return found

    def admit(self, live: LiveSession, verdict: Verdict) -> None:
        """Serve it from now on, as the verdict says."""
        if verdict.mapped is not None:  # the next search may overlook it
            self._pool(key_of(live)).plan = verdict.mapped
        for victim in verdict.displaced:
            self._remove(victim, Cause.SHARE, "it was beyond its tenant's share, which another tenant wants now")
        live.lane = verdict.lane
        live.become(SessionState.SERVED)
        if live.id in self._sessions:
            self.put(live)
        self.figures.admissions += 1

    async def _verdict(self, live: LiveSession, spared: float) -> Verdict:
        if isinstance(live.promise, LatencyPromise):
            return await self._latency_verdict(live, spared)
        return await self._accuracy_verdict(live, spared)

    async def _latency_verdict(self, live: LiveSession, spared: float) -> Verdict:
        key = key_of(live)
        zoo = self._zoo(key)
        if not zoo.rungs:
            return _nothing(zoo)
        members = [*self._held(key, without=live), live]
        share = HEADROOM * min(1.0, self._admission_share(key) + spared)
        problem = await self._adaptation(key, members, zoo, share)
        plan = await self._timed(key, self._deciding.adapt(problem))
        outcome = "refused" if plan.unmapped else "admitted"
        self._record_adaptation(key, problem, plan, outcome, live.id)
        if not plan.unmapped:
            return Verdict(True, mapped=plan)
        return Verdict(False, self._cause(live, zoo, key), plan.reason)

    def _cause(self, live: LiveSession, zoo: _Zoo, key: PoolKey) -> Cause:
        """What keeps a session from being served: what would, were it alone on the box; then what would, were it on
        the box's own wire; else the others."""
        problem = self._alone(live, zoo, key)
        client = problem.clients[0]
        if binding(client, problem.networks) is Binding.WORKERS:
            return self._processor_or_share(live)
        at_the_box = replace(client, slo_ms=client.slo_ms + adapting.way_ms(live), bandwidth_bps=BPS_MAX)
        return Cause.LINK if binding(at_the_box, problem.networks) is Binding.WORKERS else Cause.PROCESSOR

    def _alone(self, live: LiveSession, zoo: _Zoo, key: PoolKey) -> AdaptationInput:
        """The problem of one session that has the box for itself."""
        client = adapting.client_of(live, 1.0, self._beside(key))
        return adapting.problem_of([live], [client], zoo.rungs, self._around.workers, ())

    def _is_able(self, live: LiveSession, zoo: _Zoo, key: PoolKey) -> bool:
        """Whether it would be served then."""
        problem = self._alone(live, zoo, key)
        return binding(problem.clients[0], problem.networks) is Binding.WORKERS

    async def _accuracy_verdict(self, live: LiveSession, spared: float) -> Verdict:
        zoo = self._zoo(key_of(live))
        if not zoo.rungs:
            return _nothing(zoo)
        reason = ""
        for lane in self._lanes(live):
            key = key_of(live, lane)
            problem = self._offload(key, self._held(key, without=live), [live], zoo, spared)
            if not problem.waiting:
                return Verdict(False, _out_of_reach(live, zoo), "even alone it would see results too late")
            plan = await self._timed(key, self._deciding.offloads(problem))
            is_in = live.id in plan.admitted and not plan.removed
            self._record_offload(key, problem, plan, "admitted" if is_in else "refused", live.id)
            if is_in:
                return Verdict(True, lane=lane, planned=(problem, plan))
            reason = plan.reason
        return Verdict(False, self._processor_or_share(live), reason)

    def _processor_or_share(self, live: LiveSession) -> Cause:
        """Whether the tenant has its part, and others have theirs."""
        is_shared = any(tenant != live.session.tenant for tenant in self._weights())
        return Cause.SHARE if is_shared and not self._is_within_share(live) else Cause.PROCESSOR

    def _lanes(self, live: LiveSession) -> list[int]:
        """Workers, the one with the fewest sessions of accuracy first."""
        lanes = range(self._around.workers)
        taken = dict.fromkeys(lanes, 0.0)
        for other in self._sessions.values():
            if isinstance(other.promise, AccuracyPromise) and other.id != live.id:
                taken[other.lane] = taken.get(other.lane, 0.0) + other.load
        return sorted(lanes, key=lambda lane: (taken[lane], lane))

    def _is_within_share(self, live: LiveSession) -> bool:
        """Whether its tenant has its share of the processors at most, with this one."""
        tenant = live.session.tenant
        weights = self._weights()
        key = key_of(live, live.lane)
        planned = self.ledger.planned_of(tenant) + (
            0.0 if live.state is SessionState.SERVED else self._least(key, live)
        )
        return planned <= self.ledger.share_of(tenant, {tenant: 1.0, **weights}) + 1e-9

    def _beyond_share(self, tenant: str) -> list[LiveSession]:
        """Sessions of other tenants beyond their shares, those of least weight first, the newest of equals."""
        found = [
            live
            for live in self._sessions.values()
            if live.beyond_share and live.session.tenant != tenant and live.state is SessionState.SERVED
        ]
        return sorted(found, key=_order, reverse=True)

    def _mark_shares(self) -> None:
        """Which sessions are beyond their tenants' shares as these are now: of each tenant those of least weight, the
        newest of equals.
        """
        weights = self._weights()
        taken: dict[str, float] = {}
        for live in sorted(self._sessions.values(), key=_order):
            if live.state is not SessionState.SERVED:
                live.beyond_share = False
                continue
            tenant = live.session.tenant
            taken[tenant] = taken.get(tenant, 0.0) + self._least(key_of(live, live.lane), live)
            live.beyond_share = taken[tenant] > self.ledger.share_of(tenant, {tenant: 1.0, **weights}) + 1e-9

    # -- the turns -----------------------------------------------------------------------------------------------------

    async def adapt_all(self) -> None:
        """Plan all pools of latency anew (JF-17), and try those that wait."""
        self._mark_shares()
        for key in self._keys(PromiseKind.LATENCY):
            with self._apart(key):
                async with self._admissions:
                    await self._adapt(self._pool(key))
                    await self._try_waiting(key)
            await others_first()
        self._wish_all()

    async def offload_all(self) -> None:
        """Plan all pools of accuracy anew (AR-07)."""
        for key in self._keys(PromiseKind.ACCURACY):
            with self._apart(key):
                await self._offload_pool(key)
            await others_first()

    async def _offload_pool(self, key: PoolKey) -> None:
        is_free = not self._admissions.locked()  # while another promise is being made, nobody is tried
        async with self._admissions:
            pool, others = self._pool(key), self._waiting(key)[:1]
            now_ns = self._around.clock.now_ns()
            if others and is_free and now_ns - pool.tried_ns >= TRY_NS:
                pool.tried_ns = now_ns
            else:
                others = []
            await self._offload_turn(pool, others)

    @contextmanager
    def _apart(self, key: PoolKey) -> Iterator[None]:
        """A pool whose planning fails keeps its old plan, and the pools behind it are planned all the same."""
        try:
            yield
        except Exception:
            log.exception("a pool was not planned", application=key.application_id, tenant=key.tenant)

    def has_changed(self, live: LiveSession) -> bool:
        """Whether its link is another one than its last plan went by."""
        pool = self._pools.get(key_of(live, live.lane))
        before = None if pool is None else pool.bandwidth_bps.get(live.id)
        return before is not None and abs(live.link.bandwidth_bps - before) > LINK_CHANGE * before

    def is_unplaced(self, live: LiveSession) -> bool:
        """Whether frames have come of it, and no plan knows yet how its numbers lie."""
        pool = self._pools.get(key_of(live, live.lane))
        is_planned = live.promise.kind is PromiseKind.ACCURACY and live.state is SessionState.SERVED
        return is_planned and pool is not None and live.id not in pool.shifts

    def gates_of(self, live: LiveSession) -> Batches | None:
        """Where its frames wait for the others of their batches; None: they wait for nobody."""
        pool = self._pools.get(key_of(live, live.lane))
        return None if pool is None or pool.key.kind is not PromiseKind.ACCURACY else pool.gates

    def beginning(self, until_ns: int) -> int:
        """How many planned batches have yet to begin, and are to by then."""
        return sum(pool.gates.beginning(until_ns) for pool in self._pools.values() if pool.batches)

    def refused(self, application_id: str, variant: str) -> None:
        """Memory has refused a variant: it is not planned with for a while."""
        self._refused[application_id, variant] = self._around.clock.now_ns() + REFUSED_NS

    @property
    def is_over(self) -> bool:
        """Whether nothing is left of any pool."""
        return not self._pools

    def batch_counts(self) -> BatchCounts:
        """Of all pools."""
        counts = [self._gone, *(pool.gates.counts for pool in self._pools.values())]
        return BatchCounts(
            sum(one.full for one in counts), sum(one.short for one in counts), sum(one.late for one in counts)
        )

    def decision_ms(self) -> tuple[int, float, float]:
        """Decisions since the start, and mean and P99 of the latest."""
        return self._deciding.count, *_mean_and_p99(self._deciding.recent_ms)

    def decisions_of(self, live: LiveSession) -> tuple[int, float, float]:
        """The same of those about the sessions that one is planned with."""
        pool = self._pools.get(key_of(live, live.lane))
        return (0, 0.0, 0.0) if pool is None else (pool.decided, *_mean_and_p99(pool.decided_ms))

    async def _timed(self, key: PoolKey, deciding: Awaitable[PlanT]) -> PlanT:
        """A decision about a pool."""
        pool, start_ns = self._pool(key), self._around.clock.now_ns()
        plan = await deciding
        pool.decided += 1
        pool.decided_ms.append((self._around.clock.now_ns() - start_ns) / NS_PER_MS)
        return plan

    async def _adapt(self, pool: Pool) -> None:
        key, now_ns = pool.key, self._around.clock.now_ns()
        members = self._held(key)
        zoo = self._zoo_for(pool, members)
        if zoo is None:
            return
        problem = await self._adaptation(key, members, zoo, self.ledger.for_plan(key, key.tenant, self._weights()))
        plan = await self._going_on(pool, problem)
        for is_cautious in (True, False):
            if not plan.unmapped:
                break
            share = self._admission_share(key)
            problem = await self._adaptation(key, members, zoo, share, is_cautious=is_cautious)
            plan = await self._going_on(pool, problem)
        for _ in range(REMOVALS_MAX):
            if not plan.unmapped:
                break
            victim = self._victim(key, members, plan.unmapped, zoo)
            self._remove(victim, self._cause(victim, zoo, key), plan.reason)
            members = [live for live in members if live is not victim]
            if not members:
                self._close(pool)
                return
            problem = await self._adaptation(key, members, zoo, self._admission_share(key), is_cautious=False)
            plan = await self._timed(key, self._deciding.adapt(problem))
        for live in members:
            if live.id in plan.unmapped:
                self._remove(live, Cause.PROCESSOR, plan.reason)
        await self._enact_adaptation(pool, problem, plan, members, zoo, now_ns)

    async def _going_on(self, pool: Pool, problem: AdaptationInput) -> AdaptationPlan:
        """A new plan, or the one before where only that serves all."""
        plan = await self._timed(pool.key, self._deciding.adapt(problem))
        before = gone_on(problem, pool.plan) if plan.unmapped and pool.plan is not None else None
        return plan if before is None else before

    async def _enact_adaptation(
        self,
        pool: Pool,
        problem: AdaptationInput,
        plan: AdaptationPlan,
        members: Sequence[LiveSession],
        zoo: _Zoo,
        now_ns: int,
    ) -> None:
        key = pool.key
        self.figures.plans += 1
        beside = self._beside(key)
        for at, live in enumerate(members, 1):
            live.least_load = adapting.least_load(live, zoo.rungs, self._around.workers, beside)
            if at % AT_ONCE == 0:
                await others_first()
        there = [live for live in members if live.id in self._sessions and holds(live, now_ns)]
        mapping = tuple((worker.network, worker.batch, worker.clients) for worker in plan.workers)
        if mapping != pool.mapping:
            self._record_adaptation(key, problem, plan, "planned", None)
        pool.mapping = mapping
        pool.plan = plan
        pool.previous = _by_worker(plan, self._around.workers)
        pool.prefetch = plan.prefetch
        pool.run_ms_max = max((zoo.by_name[w.network].worst_ms[w.batch] for w in plan.workers), default=0.0)
        planned = adapting.loads_of(plan, members, zoo.by_name, self._around.workers)
        least = sum(live.least_load or 0.0 for live in there)
        self.ledger.put(key, Load(key.tenant, planned, min(planned, least)))
        told = adapting.plans_of(plan, members, zoo.by_name, now_ns)
        pool.wanted = tuple(worker.network for worker in plan.workers)
        pool.bandwidth_bps = {live.id: live.link.bandwidth_bps for live in there}
        for at, live in enumerate(there, 1):
            if live.id in told and live.id in self._sessions and holds(live, now_ns):
                live.take(self._as_memory_is(live, told[live.id], zoo, beside))
            if at % AT_ONCE == 0:  # each that is told has something to send
                await others_first()

    def _as_memory_is(self, live: LiveSession, plan: SessionPlan, zoo: _Zoo, beside: adapting.Beside) -> SessionPlan:
        """The plan; while its variant is not in memory yet, with the present one, if that keeps the promise, too."""
        old = zoo.by_name.get(live.variant)
        new = zoo.by_name[plan.variant]
        if old is None or old is new or self._around.is_resident(new.servable):
            return plan
        if not self._around.is_resident(old.servable) or not adapting.keeps(live, old, beside):
            return plan
        return replace(plan, variant=old.name, size=old.size, accuracy=adapting.accuracy_of(old))

    async def _offload_turn(self, pool: Pool, others: Sequence[LiveSession]) -> None:
        key, now_ns = pool.key, self._around.clock.now_ns()
        members = self._held(key)
        zoo = self._zoo_for(pool, members, others)
        if zoo is None:
            return
        problem = self._offload(key, members, others, zoo)
        known = {client.name for client in problem.clients}
        for live in members:
            if live.id not in known:
                self._remove(live, _out_of_reach(live, zoo), "even alone it would see results too late")
        plan = await self._timed(key, self._deciding.offloads(problem))
        if others and (plan.removed or not plan.admitted):  # nobody goes for who comes
            for live in others:
                live.tries += 1
            members = self._held(key)
            problem = self._offload(key, members, (), zoo)
            plan = await self._timed(key, self._deciding.offloads(problem))
        problem, plan = await self._forgiving(key, members, zoo, problem, plan)
        end_ns = self._around.clock.now_ns()
        if end_ns - now_ns > LATE_NS and pool.batches:
            self.figures.late_plans += 1
            return
        self._enact_offload(pool, problem, plan, zoo, end_ns)

    async def _forgiving(
        self, key: PoolKey, members: Sequence[LiveSession], zoo: _Zoo, problem: OffloadInput, plan: OffloadPlan
    ) -> tuple[OffloadInput, OffloadPlan]:
        """The plan, or another one where it leaves somebody out: for a few turns their promises are taken to allow
        more."""
        forgiven: set[str] = set()
        patient = {live.id for live in members if live.ageing.forgiven_turns < FORGIVEN_TURNS}
        for _ in range(FORGIVING_TRIES):
            more = patient.intersection(plan.removed) - forgiven
            if not more:
                break
            forgiven |= more
            problem = self._offload(key, members, (), zoo, forgiven=forgiven)
            plan = await self._timed(key, self._deciding.offloads(problem))
        for live in members:
            live.ageing.forgiven_turns = live.ageing.forgiven_turns + 1 if live.id in forgiven else 0
        return problem, plan

    def _enact_offload(self, pool: Pool, problem: OffloadInput, plan: OffloadPlan, zoo: _Zoo, now_ns: int) -> None:
        key = pool.key
        self.figures.plans += 1
        if plan.admitted or plan.removed:
            self._record_offload(key, problem, plan, "planned", None)
        for id in plan.removed:
            if id in self._sessions:
                self._remove(self._sessions[id], Cause.PROCESSOR, plan.reason)
        for id in plan.admitted:
            live = self._sessions.get(id)
            if live is not None and live.state is SessionState.WAITING:
                self.admit(live, Verdict(True, lane=key.lane))
        there_now = {live.id: live for live in self._held(key)}
        members = {one.name: there_now[one.name] for one in plan.clients if one.name in there_now}
        there = OffloadPlan(
            tuple(one for one in plan.clients if one.name in members), plan.admitted, plan.removed, plan.batches, ""
        )
        best = _best(zoo).name
        decode_ms = self._around.decode_ms(key.application_id)
        asked = {client.name: client for client in (*problem.clients, *problem.waiting)}
        for one in there.clients:
            live = members[one.name]
            live.reference_stride = offloading.dedicated_stride(live, zoo.by_name[best], key.fps, decode_ms)
            gap = max(0.0, zoo.by_name[best].accuracy - zoo.by_name[one.variant or best].accuracy) / 100.0
            client = asked[one.name]
            live.ageing.expect((one.expected_drop - gap) / client.drop_rate + (client.reference_stride or 0.0))
        pool.batches = plan.batches
        pool.gates.plan(offloading.gates_of(plan.batches, zoo.by_name, best, pool.scale, pool.shifts, now_ns))
        pool.run_ms_max = offloading.run_ms_max(plan.batches, zoo.by_name, best)
        load = offloading.loads_of(there, members, zoo.by_name, best) / self._around.workers
        self.ledger.put(key, Load(key.tenant, load, load))
        told = offloading.plans_of(there, members, zoo.by_name, best, pool.scale, pool.shifts, now_ns)
        for id, session_plan in told.items():
            members[id].take(session_plan)

    async def _try_waiting(self, key: PoolKey) -> None:
        """The first of those that wait; with it the next turn tries the next."""
        for live in self._waiting(key)[:1]:
            found = await self._verdict_as_marked(live)
            if found.fits and live.state is SessionState.WAITING:
                self.admit(live, found)
                await self._adapt(self._pool(key))
                self._mark_shares()
            elif not found.fits:
                live.tries += 1
                live.reason = _told(found)

    # -- what a decision is made of ------------------------------------------------------------------------------------

    async def _adaptation(
        self, key: PoolKey, members: Sequence[LiveSession], zoo: _Zoo, share: float, *, is_cautious: bool = True
    ) -> AdaptationInput:
        beside, clients = self._beside(key), []
        for at, live in enumerate(members, 1):
            clients.append(adapting.client_of(live, share, beside, is_cautious=is_cautious))
            if at % AT_ONCE == 0:
                await others_first()
        return adapting.problem_of(members, clients, zoo.rungs, self._around.workers, self._pool(key).previous)

    def _offload(
        self,
        key: PoolKey,
        members: Sequence[LiveSession],
        others: Sequence[LiveSession],
        zoo: _Zoo,
        spared: float = 0.0,
        forgiven: Collection[str] = (),
    ) -> OffloadInput:
        pool = self._pool(key)
        self._estimate_drop_rates(key.application_id, (*members, *others))
        there = {live.id for live in (*members, *others)}
        shifts = {id: shift for id, shift in pool.shifts.items() if id in there}
        for live in (*members, *others):
            shift = offloading.shift_of(live, pool.scale, shifts.get(live.id))
            if shift is not None:
                shifts[live.id] = shift
        pool.shifts = {**pool.shifts, **shifts}
        # The ledger counts all workers together, a lane is one of them: what others leave of it is its part.
        share = min(1.0, (self._admission_share(key) + spared) * self._around.workers)
        now_ns = self._around.clock.now_ns()
        lost_ms = {live.id: offloading.lost_ms(live, pool.scale.frame_ms) for live in (*members, *others)}
        previous, busy_ns = offloading.previous_of(pool.batches, pool.gates, pool.scale, shifts, now_ns, lost_ms)
        return offloading.problem_of(
            members,
            others,
            zoo.rungs,
            pool.scale,
            shifts,
            now_ns,
            share,
            self._around.decode_ms(key.application_id),
            max(busy_ns, self._busy_until_ns(key, now_ns)),
            previous,
            forgiven,
        )

    def _estimate_drop_rates(self, application_id: str, sessions: Sequence[LiveSession]) -> None:
        """Of devices that have not said yet how much they lose with each frame of age: as three of four others of the
        application do at most, or did."""
        known = sorted(
            live.drop_rate
            for live in self._sessions.values()
            if live.ageing.is_rate_known and live.session.application_id == application_id
        )
        if known:
            self._drop_rates[application_id] = known[3 * len(known) // 4]
        for live in sessions:
            if not live.ageing.is_rate_known:
                live.drop_rate = self._drop_rates.get(application_id, live.drop_rate)

    def _busy_until_ns(self, key: PoolKey, now_ns: int) -> int:
        """When the worker of a pool is free of what runs now and of the batches of other pools that have begun."""
        others = [
            other.gates.free_ns
            for other in self._pools.values()
            if other.key.kind is PromiseKind.ACCURACY and other.key.lane == key.lane and other.key != key
        ]
        return max([now_ns + self._around.busy_for_ns(), *others])

    def _beside(self, key: PoolKey) -> adapting.Beside:
        """The longest run of others: another pool's, or as long as requests without a session take."""
        others = [pool.run_ms_max for other, pool in self._pools.items() if other != key]
        if self.ledger.unplanned > 0.01:
            others.append(self.ledger.unplanned_run_ms)
        foreign = max(others, default=0.0) / self._around.workers
        return adapting.Beside(self._around.decode_ms(key.application_id), foreign)

    def _admission_share(self, key: PoolKey) -> float:
        return self.ledger.for_admission(key, key.tenant, self._weights())

    def _weights(self) -> Mapping[str, float]:
        """Of the tenants that want some of the processors, as of a moment ago."""
        until_ns, weights = self._wanting
        now_ns = self._around.clock.now_ns()
        if now_ns >= until_ns:
            weights = self._around.weights()
            self._wanting = (now_ns + SNAPSHOT_NS, weights)
        return weights

    def _zoo(self, key: PoolKey) -> _Zoo:
        """What there is now; nothing where the application is not in service."""
        now_ns = self._around.clock.now_ns()
        self._refused = {one: until for one, until in self._refused.items() if until > now_ns}
        without = frozenset(variant for application, variant in self._refused if application == key.application_id)
        try:
            entry = self._around.catalogue.entry(key.application_id)
        except ApplianceError:
            return _Zoo([], False)
        known = self._zoos.get((key.application_id, key.floor))
        if known is not None and now_ns < known.until_ns and known.entry is entry and known.without == without:
            return known
        rungs, is_short = zoo_of(entry, key.floor, self._around.workers, now_ns, self._around.fits_memory, without)
        zoo = _Zoo(rungs, is_short, entry=entry, without=without, until_ns=now_ns + SNAPSHOT_NS)
        self._zoos[key.application_id, key.floor] = zoo
        return zoo

    def _zoo_for(self, pool: Pool, members: Sequence[LiveSession], others: Sequence[LiveSession] = ()) -> _Zoo | None:
        """None where nobody is to be planned for, or nothing can serve them: the pool is closed."""
        if members or others:
            zoo = self._zoo(pool.key)
            if zoo.rungs:
                return zoo
            for live in members:
                self._remove(live, *_why(zoo))
        self._close(pool)
        return None

    def _least(self, key: PoolKey, live: LiveSession) -> float:
        """Share of all workers that a promise takes at least; of one that is served, by its last plan."""
        if not isinstance(live.promise, LatencyPromise):
            return live.load
        if live.state is SessionState.SERVED and live.least_load is not None:
            return live.least_load
        return adapting.least_load(live, self._zoo(key).rungs, self._around.workers, self._beside(key))

    def _victim(self, key: PoolKey, members: Sequence[LiveSession], unmapped: Sequence[str], zoo: _Zoo) -> LiveSession:
        """Who is removed, for planners know nothing of weights: who is beyond its tenant's share; else whom nothing
        would serve of those that the planner leaves out; else, of these and of all who weigh less, the one of least
        weight, the newest of equals.
        """
        beyond = [live for live in members if live.beyond_share]
        left_out = [live for live in members if live.id in unmapped]
        found = beyond or [live for live in left_out if not self._is_able(live, zoo, key)]
        if not found:
            most = max(live.session.weight for live in left_out)
            found = [live for live in members if live.session.weight < most] or left_out
        return max(found, key=_order)

    def _remove(self, live: LiveSession, cause: Cause, reason: str) -> None:
        """It waits from now on, and is told why; it is tried again."""
        if live.state is SessionState.SERVED:
            self.figures.removals += 1
            live.become(SessionState.WAITING, f"{cause.value}: {reason}")
        elif live.state is SessionState.SUSPENDED:
            live.holds_until_ns = 0

    def _close(self, pool: Pool) -> None:
        """Nobody of it is served any more."""
        self.ledger.remove(pool.key)
        pool.gates.plan(())
        if not any(True for _ in self._members.of(pool.key)):
            gone, own = self._gone, pool.gates.counts
            self._gone = BatchCounts(gone.full + own.full, gone.short + own.short, gone.late + own.late)
            self._pools.pop(pool.key, None)
            self._zoos.pop((pool.key.application_id, pool.key.floor), None)
        pool.plan = None
        pool.mapping, pool.batches, pool.run_ms_max, pool.prefetch, pool.wanted = (), (), 0.0, (), ()

    def _held(self, key: PoolKey, without: LiveSession | None = None) -> list[LiveSession]:
        now_ns = self._around.clock.now_ns()
        found = held(self._members.of(key), now_ns)
        return [live for live in found if without is None or live.id != without.id]

    def _waiting(self, key: PoolKey) -> list[LiveSession]:
        return waiting(self._members.of(key))

    def _keys(self, kind: PromiseKind) -> list[PoolKey]:
        """All pools of a kind that have a session, or had one."""
        keys = {key for key in (*self._pools, *self._members.keys()) if key.kind is kind}
        return sorted(keys, key=lambda key: (key.tenant, key.application_id, key.floor, key.fps, key.lane))

    def _pool(self, key: PoolKey) -> Pool:
        pool = self._pools.get(key)
        if pool is None:
            clock = self._around.clock
            gates = Batches(clock, key.tenant, self._around.reservations)
            pool = self._pools[key] = Pool(key, max(0, clock.now_ns() - BEFORE_NS), gates)
        return pool

    # -- what becomes of it elsewhere ----------------------------------------------------------------------------------

    def _wish_all(self) -> None:
        """Variants in use, and those next to them by size, are wishes to the residency loop (JF-19, X-04)."""
        now_ns = self._around.clock.now_ns()
        wanted: dict[str, dict[str, int]] = {}
        for live in self._sessions.values():
            if live.plan is not None and live.state is not SessionState.WAITING:
                wanted.setdefault(live.session.application_id, {})[live.plan.variant] = 2
        for pool in self._pools.values():
            for name in pool.wanted:
                if pool.key.application_id in wanted:
                    wanted[pool.key.application_id][name] = 2
            for name in pool.prefetch:
                if pool.key.application_id in wanted:
                    wanted[pool.key.application_id].setdefault(name, 1)
        for application in [*self._wished, *(one for one in wanted if one not in self._wished)]:
            names = tuple(f"{p}{n}" for n, p in sorted(wanted.get(application, {}).items()))
            before, at_ns = self._wished.get(application, ((), 0))
            if names == before and now_ns - at_ns < WISHED_NS // 2:
                continue
            until_ns = now_ns + WISHED_NS
            wishes = tuple(Wish(name, until_ns, priority) for name, priority in wanted.get(application, {}).items())
            self._around.wish(application, wishes)
            self._wished[application] = names, now_ns
        self._wished = {application: kept for application, kept in self._wished.items() if kept[0]}

    def _record_adaptation(
        self, key: PoolKey, problem: AdaptationInput, plan: AdaptationPlan, outcome: str, session: str | None
    ) -> None:
        facts = adaptation(key.application_id, key.tenant, problem, plan, self._deciding.adaptation, outcome, session)
        self._around.decisions.record("adaptation", facts)

    def _record_offload(
        self, key: PoolKey, problem: OffloadInput, plan: OffloadPlan, outcome: str, session: str | None
    ) -> None:
        facts = offload(key.application_id, key.tenant, problem, plan, self._deciding.offload, outcome, session)
        self._around.decisions.record("offload", facts)


async def others_first() -> None:
    """Let what else waits for the event loop go on."""
    await asyncio.sleep(0)  # noqa: TID251 - no time passes


def _order(live: LiveSession) -> tuple[float, datetime.datetime, str]:
    """Of sessions that there is not room for: who weighs most, and came first of equals, goes before the others."""
    return -live.session.weight, live.session.began_at, live.id


def _mean_and_p99(times_ms: Collection[float]) -> tuple[float, float]:
    ordered = sorted(times_ms)
    if not ordered:
        return 0.0, 0.0
    return sum(ordered) / len(ordered), ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))]


def _by_worker(plan: AdaptationPlan, workers: int) -> tuple[str | None, ...]:
    networks: list[str | None] = [None] * workers
    for worker in plan.workers:
        networks[worker.worker] = worker.network
    return tuple(networks)


def _best(zoo: _Zoo) -> Rung:
    return max(zoo.rungs, key=lambda rung: (rung.accuracy, rung.name))


def _why(zoo: _Zoo) -> tuple[Cause, str]:
    if zoo.is_short:
        return Cause.MEMORY, "no variant that is accurate enough fits into memory"
    return Cause.PROCESSOR, "no variant that is accurate enough is in service and measured"


def _nothing(zoo: _Zoo) -> Verdict:
    cause, reason = _why(zoo)
    return Verdict(False, cause, reason)


def _told(verdict: Verdict) -> str:
    cause = Cause.PROCESSOR if verdict.cause is None else verdict.cause
    return f"{cause.value}: {verdict.reason}"


def _out_of_reach(live: LiveSession, zoo: _Zoo) -> Cause:
    """Whether the way alone takes too long, or the run does, for a promise against fresh results."""
    promise = live.promise
    assert isinstance(promise, AccuracyPromise)
    best = _best(zoo)
    way_ms = live.head_delay_ms + live.down_ms
    way_ms += live.link.transfer_ms(best.frame_bytes(live.picture_factor, live.body_bytes))
    stride = reference_stride(way_ms, 0.0, live.session.fps)
    return Cause.LINK if live.drop_of(stride) > promise.drop_max else Cause.PROCESSOR
