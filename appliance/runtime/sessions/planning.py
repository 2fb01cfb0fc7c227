"""Who is served: promises made one after the other, and the turns in which the pools of both kinds are planned anew.

Decisions read a snapshot; a pool is planned by one decision at a time, and the sessions that have gone or come
meanwhile are left as they are. Event-loop thread only.
"""

import asyncio
import math
from collections.abc import AsyncIterator, Collection, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import replace

from appliance.clock import NS_PER_MS, others_first
from appliance.domain.session import Cause, LatencyPromise, PromiseKind
from appliance.domain.states import SessionState
from appliance.log import get as get_log
from appliance.policies.adaptation.going_on import networks_of
from appliance.runtime.engine.lanes import BatchCounts
from appliance.runtime.servable import Servable
from appliance.runtime.sessions.accuracy_plans import HEAVIER_MAX, AccuracyPlans
from appliance.runtime.sessions.adapting import with_variant
from appliance.runtime.sessions.batches import Batches
from appliance.runtime.sessions.context import PlanningContext
from appliance.runtime.sessions.deciding import Deciding, DecisionSlow
from appliance.runtime.sessions.environment import SessionEnvironment
from appliance.runtime.sessions.latency_plans import REMOVALS_MAX, LatencyPlans
from appliance.runtime.sessions.ledger import ProcessorLedger
from appliance.runtime.sessions.live import LiveSession
from appliance.runtime.sessions.pools import PoolKey, key_of
from appliance.runtime.sessions.reasons import reason_for
from appliance.runtime.sessions.shares import order
from appliance.runtime.sessions.verdict import Verdict
from appliance.runtime.sessions.wishes import Wishes

TRY_NS = 400 * NS_PER_MS
"""Who waits for a promise of accuracy is tried so often, one after another: that takes much longer than to go on."""
AGAIN_MAX = 3
"""Times that a promise is asked for anew, because what was free has been sold meanwhile."""
LINK_CHANGE = 0.2
"""Of a bandwidth since the last plan: the pool is planned anew (a fifth), ..."""
LINK_NOTICED = 0.01
"""... where a frame notices: by more than this share of its SLO. The estimates of links that carry one in no time
change by a fifth with every other frame; what is less is planned with in half a second anyway."""

log = get_log("sessions")


class Planning:
    """Both kinds of plans, and when they are made. It changes sessions; who has them is `Sessions`."""

    def __init__(
        self,
        environment: SessionEnvironment,
        deciding: Deciding,
        ledger: ProcessorLedger,
        sessions: Mapping[str, LiveSession],
    ) -> None:
        """`sessions`: those that have not ended, by id; kept by the registry."""
        self._environment = environment
        self.deciding = deciding
        self.context = PlanningContext(environment, deciding, ledger, sessions)
        self.pools = self.context.pools
        self._shares = self.context.shares
        self._wishes = Wishes(environment)
        self._admissions = {kind: asyncio.Lock() for kind in PromiseKind}
        """One promise of a kind after the other, and one plan of its pools. What is free is sold once: who was asked
        while the other kind sold some is asked anew."""
        self.ledger = ledger
        self.zoos = self.context.zoos
        self.worker_lanes = self.context.worker_lanes
        self.figures = self.context.figures
        self.latency = LatencyPlans(self.context)
        self.accuracy = AccuracyPlans(self.context)

    def put(self, live: LiveSession) -> None:
        """A session has come, or what decides of its pool has changed."""
        self.context.put(live)

    def restore(self, live: LiveSession) -> None:
        """A session was there before the restart of the box; it has yet to be put."""
        if live.promise.kind is PromiseKind.ACCURACY:
            self.accuracy.place(live)

    def take(self, live: LiveSession) -> None:
        """A session has gone."""
        self.context.take(live)

    def forget(self, application_id: str) -> None:
        """An application is no more, or asks another model."""
        self.accuracy.forget(application_id)

    def forget_tenant(self, tenant: str) -> None:
        """It is no more."""
        self.accuracy.forget_tenant(tenant)

    def pools_of(self, tenant: str) -> set[PoolKey]:
        """How a tenant's sessions differ, as far as planning goes."""
        return self.pools.members.pools_of(tenant)

    # -- may it come in ------------------------------------------------------------------------------------------------

    async def join(self, live: LiveSession) -> Verdict:
        """Serve a session that waits, with a plan, if the box can keep its promise beside all that it keeps."""
        await self.zoos.tried(key_of(live))
        async with self.alone(live):
            found = await self._let_in(live)
            if found.fits and live.state is SessionState.WAITING:  # what was known when it was let in is so no more
                again = await self.verdict(live)
                found = again if not again.fits else Verdict(False, Cause.PROCESSOR, live.reason)
        rung = self.zoos.of(key_of(live)).by_name.get(live.variant)
        if rung is not None and not self._environment.is_resident(rung.servable):
            await self._environment.bring(rung.servable)  # so that the first frame finds it there
        return found

    async def _let_in(self, live: LiveSession) -> Verdict:
        """Serve it, with a plan, where it fits and waits still; while no other promise of its kind is made."""
        found = await self._while_it_lasts(live)
        if found.fits and live.state is SessionState.WAITING:
            self.context.admit(live, found)
            with suppress(DecisionSlow):  # the next turn plans it
                await self._first_plan(live, found)
            self._wish()
        return found

    async def possible(self, live: LiveSession) -> Verdict:
        """As `verdict`, when no other promise is being made."""
        async with self.alone(live):
            return await self.verdict(live)

    @asynccontextmanager
    async def alone(self, live: LiveSession, *others: PromiseKind) -> AsyncIterator[None]:
        """While no promise is made and no pool planned of the kind of a session's promise, nor of `others`. Whoever
        changes the promise names the new kind, too: what is planned stays of its kind."""
        while True:
            kinds = {live.promise.kind, *others}
            async with AsyncExitStack() as stack:
                for kind in PromiseKind:  # all take them in this order
                    if kind in kinds:
                        await stack.enter_async_context(self._admissions[kind])
                if live.promise.kind in kinds:  # it may have changed meanwhile
                    yield
                    return

    async def verdict(self, live: LiveSession) -> Verdict:
        """Whether the box can keep a promise beside all that it keeps; changes nothing."""
        self._shares.mark()
        return await self._verdict_as_marked(live)

    async def changed(self, live: LiveSession, draft: LiveSession) -> Verdict:
        """As `verdict`, of another promise in the place of a session's own."""
        self._shares.mark()
        own = 0.0
        if key_of(draft, live.lane) != key_of(live, live.lane):  # its pool is asked for all that others leave anyway
            own = self.context.taken(live)
        return await self._verdict_as_marked(draft, own)

    def give_back(self, live: LiveSession) -> None:
        """What a session takes is free: its promise becomes another one."""
        self.context.give_back(live)

    async def _while_it_lasts(self, live: LiveSession) -> Verdict:
        """A verdict that holds now: what it found free has not been sold meanwhile."""
        found = await self.verdict(live)
        for _ in range(AGAIN_MAX):
            if not found.fits or self._is_good(live, found):
                return found
            found = await self.verdict(live)
        if found.fits and not self._is_good(live, found):
            return Verdict(False, self._shares.cause(live), "others have come meanwhile")
        return found

    def _is_good(self, live: LiveSession, verdict: Verdict) -> bool:
        """Whether what it found free has not been sold meanwhile, and the variants that it is made of are there."""
        names: set[str] = set()
        if verdict.planned is not None:
            decision, zoo = verdict.planned
            names |= {zoo.best.name if one.variant is None else one.variant for one in decision.plan.clients}
        if verdict.mapped is not None:
            names |= set(networks_of(verdict.mapped).values())
        return names <= self.zoos.of(key_of(live, verdict.lane), live.id).by_name.keys() and self._is_left(
            live, verdict
        )

    def _is_left(self, live: LiveSession, verdict: Verdict) -> bool:
        return self._shares.is_left(key_of(live, verdict.lane), verdict.share)

    async def _verdict_as_marked(self, live: LiveSession, own: float = 0.0) -> Verdict:
        """As `verdict`, with what is beyond shares as it was found last; `own`: share of all workers that it gives
        back in another pool."""
        found = await self._verdict(live, own)
        if found.fits or found.cause is not Cause.PROCESSOR or not self._shares.is_within(live, own):
            return found
        victims: list[LiveSession] = []
        spared = own
        for victim in self._shares.beyond(live.session.tenant)[:REMOVALS_MAX]:
            victims.append(victim)
            spared += self.context.least(victim)
            tried = await self._verdict(live, spared)
            if tried.fits:
                return Verdict(True, lane=tried.lane, share=tried.share, displaced=tuple(victims))
        return found

    async def _verdict(self, live: LiveSession, spared: float) -> Verdict:
        try:
            if isinstance(live.promise, LatencyPromise):
                return await self.latency.verdict(live, spared)
            return await self.accuracy.verdict(live, spared)
        except DecisionSlow:
            return Verdict(False, Cause.PROCESSOR, "no plan was found in time; ask again")

    async def _first_plan(self, live: LiveSession, verdict: Verdict) -> None:
        pool = self.pools.pool(key_of(live, live.lane))
        if live.promise.kind is PromiseKind.LATENCY:
            await self.latency.plan(pool)
        elif verdict.planned is not None and not verdict.displaced:  # another plan might not have room for all
            self.accuracy.enact(pool, *verdict.planned, self._environment.clock.now_ns())
        else:
            await self.accuracy.plan(pool)

    # -- the turns -----------------------------------------------------------------------------------------------------

    async def adapt_all(self) -> None:
        """Plan all pools of latency anew (JF-17), and try those that wait."""
        self._shares.mark()
        for key in self.pools.keys(PromiseKind.LATENCY):
            with self._apart(key):
                async with self._admissions[key.kind]:
                    await self.latency.plan(self.pools.pool(key))
                    await self._try_waiting(key)
            await others_first()
        self._wish()

    async def offload_all(self) -> None:
        """Plan all pools of accuracy anew (AR-07)."""
        for key in self.pools.keys(PromiseKind.ACCURACY, self._environment.workers):
            with self._apart(key):
                await self._offload_pool(key)
            await others_first()

    async def _offload_pool(self, key: PoolKey) -> None:
        lock = self._admissions[key.kind]
        is_free = not lock.locked()  # while another promise is being made, nobody is tried
        async with lock:
            if key.lane >= self._environment.workers:
                for live in self.accuracy.leave(self.pools.pool(key)):
                    await self._let_in(live)
                return
            pool, others = self.pools.pool(key), self.pools.waiting(key)
            now_ns = self._environment.clock.now_ns()
            if others and is_free and now_ns - pool.tried_ns >= TRY_NS:
                pool.tried_ns = now_ns
            else:
                others = []
            await self.accuracy.plan(pool, others)

    async def _try_waiting(self, key: PoolKey) -> None:
        """The first of those that wait, or in its place, where it fits, one that weighs more; with it the next turn
        tries the next."""
        waiting = self.pools.waiting(key)
        if not waiting:
            return
        live, found = waiting[0], await self._verdict_as_marked(waiting[0])
        if not found.fits:
            live.tries += 1
            live.reason = found.told
            return
        heavier = sorted((one for one in waiting if one.session.weight > live.session.weight), key=order)
        for one in heavier[:HEAVIER_MAX]:
            other = await self._verdict_as_marked(one)
            if other.fits:
                live, found = one, other
                break
        if live.state is SessionState.WAITING and self._is_good(live, found):
            self.context.admit(live, found)
            await self.latency.plan(self.pools.pool(key))
            self._shares.mark()

    @contextmanager
    def _apart(self, key: PoolKey) -> Iterator[None]:
        """A pool whose planning fails keeps its old plan, and the pools behind it are planned all the same."""
        try:
            yield
        except DecisionSlow:
            log.warning("a pool was not planned in time", application=key.application_id, tenant=key.tenant)
        except Exception:
            log.exception("a pool was not planned", application=key.application_id, tenant=key.tenant)

    def _wish(self) -> None:
        self._wishes.tell(self.context.sessions, self.pools, self.context.memory.needed())

    # -- what others ask -----------------------------------------------------------------------------------------------

    def has_changed(self, live: LiveSession) -> bool:
        """Whether its link is another one than its last plan went by."""
        pool = self.pools.get(key_of(live, live.lane))
        before = None if pool is None else pool.bandwidth_bps.get(live.id)
        if before is None or not isinstance(live.promise, LatencyPromise):
            return False
        now = live.link.bandwidth_bps
        by_ms = abs(8000.0 / now - 8000.0 / before) * (live.sent.body_bytes or math.inf)
        return abs(now - before) > LINK_CHANGE * before and by_ms > LINK_NOTICED * live.promise.slo_ms

    def is_unplaced(self, live: LiveSession) -> bool:
        """Whether frames have come of it, and no plan knows yet how its numbers lie."""
        pool = self.pools.get(key_of(live, live.lane))
        is_planned = live.promise.kind is PromiseKind.ACCURACY and live.state is SessionState.SERVED
        return is_planned and pool is not None and live.id not in pool.shifts

    def gates_of(self, live: LiveSession) -> Batches | None:
        """Return the batches that its frames are planned in; None: its promise is not of accuracy."""
        pool = self.pools.get(key_of(live, live.lane))
        return None if pool is None or pool.key.kind is not PromiseKind.ACCURACY else pool.gates

    def is_in_memory(self, live: LiveSession, variant: str) -> bool:
        """Whether a frame of its pool could run on a variant at once."""
        rung = self.zoos.of(key_of(live)).by_name.get(variant)
        return rung is not None and self._environment.is_resident(rung.servable)

    def was_taken(self, live: LiveSession, variant: str) -> bool:
        """Whether a variant has been in memory for the devices of a session's pool, and is so no more."""
        key = key_of(live, live.lane)
        pool, rung = self.pools.get(key), self.zoos.of(key).by_name.get(variant)
        if pool is None or rung is None or variant not in pool.found:
            return False
        return not self.context.is_there(rung.servable)

    def makes_do(self, live: LiveSession) -> bool:
        """Where memory has given the room of a session's variant to others, have the session use the best smaller one
        that is in memory, or on its way, and keeps the promises of its pool; whether it does. What it used is not
        planned with until it is back.
        """
        key, environment = key_of(live, live.lane), self._environment
        pool, plan = self.pools.get(key), live.plan
        if pool is None or plan is None or live.state is not SessionState.SERVED or plan.variant not in pool.found:
            return False
        zoo = self.zoos.of(key)
        before = next((rung for rung in (*zoo.rungs, *zoo.refused) if rung.name == plan.variant), None)
        if before is None or environment.is_resident(before.servable) or environment.is_coming(before.servable):
            return False
        smaller = [
            rung
            for rung in zoo.rungs
            if rung.name in pool.enough
            and rung.servable.resident_bytes < before.servable.resident_bytes
            and (environment.is_resident(rung.servable) or environment.is_coming(rung.servable))
        ]
        if not smaller or environment.has_room(before.servable):
            return False
        best = max(smaller, key=lambda rung: (rung.accuracy, rung.name))
        self.zoos.refuse(key.application_id, before.name)
        _, wait_ms = live.next_due(environment.clock.now_ns())
        other = replace(with_variant(plan, best), number=live.next_number(), wait_ms=wait_ms)
        live.take(other, reason_for(before.name, best, self.zoos.of(key)))
        return True

    def beginning(self, until_ns: int) -> int:
        """How many planned batches have yet to begin, and are to by then."""
        return self.pools.beginning(until_ns)

    def needed(self) -> list[Servable]:
        """Return the variants that all promises need together, each once."""
        return self.context.memory.builds()

    def close(self) -> None:
        """Plan no more."""
        self.zoos.close()

    def refused(self, application_id: str, variant: str) -> None:
        """Memory has refused a variant: it is not planned with until it is in memory again."""
        self.zoos.refuse(application_id, variant)

    @property
    def is_over(self) -> bool:
        """Whether nothing is left of any pool."""
        return not self.pools

    def batch_counts(self) -> BatchCounts:
        """Of all pools."""
        return self.pools.batch_counts()

    def decision_ms(self) -> tuple[int, float, float]:
        """Decisions since the start, and mean and P99 of the latest."""
        return self.deciding.count, *_mean_and_p99(self.deciding.recent_ms)

    def decisions_of(self, live: LiveSession) -> tuple[int, float, float]:
        """The same of those about the sessions that one is planned with."""
        pool = self.pools.get(key_of(live, live.lane))
        return (0, 0.0, 0.0) if pool is None else (pool.decided, *_mean_and_p99(pool.decided_ms))


def _mean_and_p99(times_ms: Collection[float]) -> tuple[float, float]:
    ordered = sorted(times_ms)
    if not ordered:
        return 0.0, 0.0
    return sum(ordered) / len(ordered), ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))]
