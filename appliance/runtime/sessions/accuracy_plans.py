"""Plans of sessions with promises of accuracy: whether one fits in, a pool planned frame by frame, and its plan carried
out.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType

from appliance.clock import NS_PER_MS, others_first
from appliance.domain.session import AccuracyPromise, Cause, PromiseKind
from appliance.domain.states import SessionState
from appliance.policies.offload.base import Client, OffloadInput, OffloadPlan, Served
from appliance.policies.offload.drop import reference_stride
from appliance.runtime.decisions.sessions import offload
from appliance.runtime.sessions import offloading
from appliance.runtime.sessions.context import AT_ONCE, PlanningContext
from appliance.runtime.sessions.drop_priors import DropPriors
from appliance.runtime.sessions.ledger import Load
from appliance.runtime.sessions.live import LiveSession
from appliance.runtime.sessions.offloading import FORGIVING, WAIVING, Lenience
from appliance.runtime.sessions.pools import Pool, PoolKey, key_of
from appliance.runtime.sessions.reasons import reason_for
from appliance.runtime.sessions.shares import order
from appliance.runtime.sessions.verdict import OffloadDecision, Verdict, nothing_to_run
from appliance.runtime.sessions.zoo import Zoo

LATE_NS = 200 * NS_PER_MS
"""A plan of frames that took longer than its period is about frames that were captured meanwhile: the old one stays."""
FORGIVEN_TURNS = 3
"""Plans of frames in a row in which a promise that cannot be kept is taken to allow more, before its session is
removed: a frame that was lost, or a link that stood for a moment, is made good by then."""
FORGIVING_TRIES = 2
NO_ROOM = "memory has no room for a variant that keeps the promise"
HEAVIER_MAX = 3
"""Of those that wait, when one of them fits: so many that weigh more are tried in its place, ..."""
LIGHTER_MAX = 4
"""... and when one has to go, so many that weigh less are tried to go in its place, one after the other."""

HEAVIER_STAYS = "a session of more weight, or of a tenant within its share, stays in its place"
NOBODY: Mapping[str, Lenience] = MappingProxyType({})


class AccuracyPlans:
    """Of all pools of that kind. Event-loop thread only."""

    def __init__(self, context: PlanningContext) -> None:
        self._context = context
        self._priors = DropPriors()

    def forget(self, application_id: str) -> None:
        """What devices of an application have told of its variants."""
        self._priors.forget(application_id)

    def forget_tenant(self, tenant: str) -> None:
        """What devices of a tenant have told."""
        self._priors.forget_tenant(tenant)

    def place(self, live: LiveSession) -> None:
        """Which worker a session was planned on is not stored: those that come back are spread over all. On one worker
        together, half of them would be removed, and let in again one by one."""
        live.lane = self._lanes(live)[0]

    # -- may it come in ------------------------------------------------------------------------------------------------

    async def verdict(self, live: LiveSession, spared: float) -> Verdict:
        """Whether its promise can be kept beside all that are; `spared`: share of all workers that would come free."""
        context = self._context
        zoo = context.zoos.of(key_of(live), live.id)
        if not zoo.rungs:
            return context.refused(live, nothing_to_run(zoo))
        reason = ""
        for lane in self._lanes(live):
            key = key_of(live, lane)
            most = context.shares.for_admission(key)
            problem = await self._problem(key, context.pools.held(key, without=live), [live], zoo, spared)
            if not problem.waiting:
                return context.refused(live, Verdict(False, *self._out_of_reach(live, zoo)))
            plan = await context.pools.timed(key, context.deciding.offloads(problem))
            is_in = live.id in plan.admitted and not plan.removed
            self._record(key, problem, plan, "admitted" if is_in else "refused", live.id)
            if is_in:
                (own,) = (one for one in plan.clients if one.name == live.id)
                rung = zoo.best if own.variant is None else zoo.by_name[own.variant]
                load = offloading.load_of(own, live.session.fps, rung, context.environment.workers)
                return Verdict(True, lane=lane, share=most, load=load, planned=(OffloadDecision(problem, plan), zoo))
            reason = plan.reason
        if await self._lacks_memory(key_of(live), live, zoo):
            return Verdict(False, Cause.MEMORY, f"{NO_ROOM}{zoo.held_beside}")
        return Verdict(False, context.shares.cause(live), reason)

    def _lanes(self, live: LiveSession) -> list[int]:
        """Workers, the one that sessions of accuracy take least of first; of equals that with the fewest of them."""
        lanes = range(self._context.environment.workers)
        taken: dict[int, float] = defaultdict(float)
        counts = Counter[int]()
        for other in self._context.sessions.values():
            if isinstance(other.promise, AccuracyPromise) and other.id != live.id:
                taken[other.lane] += other.load
                counts[other.lane] += 1
        return sorted(lanes, key=lambda lane: (taken[lane], counts[lane], lane))

    # -- its turn ------------------------------------------------------------------------------------------------------

    async def plan(self, pool: Pool, others: Sequence[LiveSession] = ()) -> None:
        """Plan a pool anew. The first of `others`, who wait, is let in where nobody goes for it, or in its place one of
        them that weighs more; who finds no room any more is removed."""
        context, key = self._context, pool.key
        now_ns = context.environment.clock.now_ns()
        members = context.pools.held(key)
        zoo = context.zoo_for(pool, members, others)
        if zoo is None:
            return
        zoo = await self._as_memory_is(pool, members, zoo)
        most = context.shares.for_admission(key)
        problem = await self._problem(key, members, others[:1], zoo)
        known = {client.name for client in problem.clients}
        for live in members:
            if live.id not in known:
                context.remove(live, *self._out_of_reach(live, zoo))
        plan = await context.pools.timed(key, context.deciding.offloads(problem))
        decided = OffloadDecision(problem, plan)
        if others and _lets_in(plan):
            decided = await self._heavier(key, members, others, zoo, decided)
        elif others:
            others[0].tries += 1
            members = context.pools.held(key)
            problem = await self._problem(key, members, (), zoo)
            decided = OffloadDecision(problem, await context.pools.timed(key, context.deciding.offloads(problem)))
        removed = [live for live in members if live.id in decided.removed]
        lacking = [live.id for live in removed if await self._lacks_memory(key, live, zoo)]
        decided = await self._forgiving(key, members, zoo, decided, lacking)
        decided = await self._sparing(key, members, zoo, decided)
        decided = await self._one_at_a_time(key, members, zoo, decided, lacking)
        end_ns = context.environment.clock.now_ns()
        is_late = end_ns - now_ns > LATE_NS and bool(pool.batches)
        if is_late or (decided.plan.admitted and not context.shares.is_left(key, most)):
            context.figures.late_plans += 1
            return
        self.enact(pool, decided, zoo, end_ns, lacking)

    async def _as_memory_is(self, pool: Pool, members: Sequence[LiveSession], zoo: Zoo) -> Zoo:
        """The zoo; where memory has taken a variant away that is in use, what is left of it in memory, if that keeps
        all promises. Then what was taken is not planned with for a while; else frames wait for it to come back.
        """
        context, key = self._context, pool.key
        taken = context.taken_away(pool, members, zoo)
        left = zoo.only(context.is_there)
        if not taken or not left.rungs:
            return zoo
        problem = await self._problem(key, members, (), left)
        if len(problem.clients) < len(members):
            return zoo
        if (await context.pools.timed(key, context.deciding.offloads(problem))).removed:
            return zoo
        for name in taken:
            context.zoos.refuse(key.application_id, name)
        return left

    async def _lacks_memory(self, key: PoolKey, live: LiveSession, zoo: Zoo) -> bool:
        """Whether nothing would serve it but what memory has refused."""
        return bool(zoo.refused) and not await self._is_able(key, live, zoo)

    def leave(self, pool: Pool) -> list[LiveSession]:
        """The worker of a pool is there no more, for its processor is lost: whoever it served waits for another one,
        and is returned in the order in which they may be tried there, at once."""
        held = self._context.pools.held(pool.key)
        for live in held:
            self._context.remove(live, Cause.PROCESSOR, "the processor that it was served on is lost")
            live.patience.asks_anew()  # it has done nothing that would be different later
        self._context.close(pool)
        return sorted(held, key=order)

    async def _heavier(
        self,
        key: PoolKey,
        members: Sequence[LiveSession],
        others: Sequence[LiveSession],
        zoo: Zoo,
        decided: OffloadDecision,
    ) -> OffloadDecision:
        """Return the plan that lets in the first waiting session, or a plan that lets in one of more weight."""
        context, weight = self._context, others[0].session.weight
        heavier = sorted((live for live in others if live.session.weight > weight), key=order)
        for live in heavier[:HEAVIER_MAX]:
            other = await self._problem(key, members, [live], zoo)
            found = await context.pools.timed(key, context.deciding.offloads(other))
            if _lets_in(found):
                return OffloadDecision(other, found)
        return decided

    async def _sparing(
        self, key: PoolKey, members: Sequence[LiveSession], zoo: Zoo, decided: OffloadDecision
    ) -> OffloadDecision:
        """Return the plan, or one without sessions of lower rank where a removed session could stay in their place:
        policies know nothing of weights and shares.
        """
        context = self._context
        spared = [live for live in members if live.id in decided.removed]
        first = max(spared, key=_rank, default=None)
        going = [] if first is None else [live for live in members if _rank(live) < _rank(first) and live not in spared]
        going = sorted(going, key=lambda live: (_rank(live), _newest_first(live)))[:LIGHTER_MAX]
        if first is None or not going or not await self._is_able(key, first, zoo):
            return decided
        for count in range(1, len(going) + 1):
            gone = {live.id for live in going[:count]}
            staying = [live for live in members if live.id not in gone]
            other = await self._problem(key, staying, (), zoo)
            found = await context.pools.timed(key, context.deciding.offloads(other))
            if first.id not in found.removed:
                return OffloadDecision(other, found, dict.fromkeys(gone, (Cause.PROCESSOR, HEAVIER_STAYS)))
        return decided

    async def _one_at_a_time(
        self,
        key: PoolKey,
        members: Sequence[LiveSession],
        zoo: Zoo,
        decided: OffloadDecision,
        lacking: Collection[str],
    ) -> OffloadDecision:
        """Return the plan, or one that removes fewer sessions: the others stay for a few turns although their promises
        break. What devices show after a stall is old, which breaks the promises of all, and passes.
        """
        context = self._context
        broken = [live for live in members if live.id in decided.removed and live.id not in lacking]
        impatient = [live for live in broken if not live.ageing.forgiven_turns]
        going = sorted(impatient, key=lambda live: (_rank(live), _newest_first(live)))[:1]
        if len(broken) == len(going):
            return decided
        why = (Cause.PROCESSOR, f"the promises of {len(broken)} sessions cannot all be kept, and it is the first to go")
        leaving = {live.id: decided.leaving.get(live.id, why) for live in going}
        leaving |= {id: (Cause.MEMORY, NO_ROOM) for id in lacking if id in decided.removed}
        staying = [live for live in members if live.id not in leaving]
        for lenience in WAIVING:
            other = await self._problem(key, staying, (), zoo, lenience={live.id: lenience for live in staying})
            found = await context.pools.timed(key, context.deciding.offloads(other))
            if not found.removed:
                break
        for live in broken if going else ():  # whether it helps that one goes has to show first
            live.ageing.forgiven_turns = 1
        return OffloadDecision(other, found, leaving)

    async def _is_able(self, key: PoolKey, live: LiveSession, zoo: Zoo) -> bool:
        """Whether it would stay served, had it the worker for itself."""
        problem = await self._problem(key, [live], (), zoo)
        if not problem.clients:
            return False
        return not (await self._context.pools.timed(key, self._context.deciding.offloads(problem))).removed

    async def _forgiving(
        self,
        key: PoolKey,
        members: Sequence[LiveSession],
        zoo: Zoo,
        decided: OffloadDecision,
        lacking: Collection[str],
    ) -> OffloadDecision:
        """Return the plan, or one that takes the promises of removed sessions to allow more for a few turns; not where
        they lack memory, which does not pass with a frame.
        """
        context = self._context
        forgiven: set[str] = set()
        patient = {live.id for live in members if live.ageing.forgiven_turns < FORGIVEN_TURNS}.difference(lacking)
        for _ in range(FORGIVING_TRIES):
            more = patient.intersection(decided.removed) - forgiven
            if not more:
                break
            forgiven |= more
            problem = await self._problem(key, members, (), zoo, lenience=dict.fromkeys(forgiven, FORGIVING))
            decided = OffloadDecision(problem, await context.pools.timed(key, context.deciding.offloads(problem)))
        for live in members:
            live.ageing.forgiven_turns = live.ageing.forgiven_turns + 1 if live.id in forgiven else 0
        return decided

    def enact(
        self,
        pool: Pool,
        decided: OffloadDecision,
        zoo: Zoo,
        now_ns: int,
        lacking: Collection[str] = (),
    ) -> None:
        """Carry out a plan of frames from now on. `lacking`: sessions that the plan removes because memory has refused
        the variants that would serve them.
        """
        context, key = self._context, pool.key
        problem, plan = decided.problem, decided.plan
        context.figures.plans += 1
        paces, before = {one.name: (one.variant, one.interval) for one in plan.clients}, pool.paces
        is_other = bool(plan.admitted or plan.removed) or _variants(paces) != _variants(before)
        if is_other or paces != before:
            self._record(key, problem, plan, "planned", None, is_often=not is_other)
        pool.paces = paces
        not_kept = (Cause.PROCESSOR, f"its promise cannot be kept beside those of {len(plan.clients)} sessions")
        for id in plan.removed:
            if id in context.sessions:
                why = (Cause.MEMORY, NO_ROOM) if id in lacking else not_kept
                context.remove(context.sessions[id], *why, is_recorded=True)
        for id, why in decided.leaving.items():
            if id in context.sessions:
                context.remove(context.sessions[id], *why)
        for id in plan.admitted:
            live = context.sessions.get(id)
            if live is not None and live.state is SessionState.WAITING:
                context.admit(live, Verdict(True, lane=key.lane))
        there_now = {live.id: live for live in context.pools.held(key)}
        members = {one.name: there_now[one.name] for one in plan.clients if one.name in there_now}
        there = OffloadPlan(
            tuple(one for one in plan.clients if one.name in members), plan.admitted, plan.removed, plan.batches, ""
        )
        best = zoo.best.name
        decode_ms = context.environment.decode_ms(key.tenant, key.application_id)
        asked = {client.name: client for client in (*problem.clients, *problem.waiting)}
        enough = list(zoo.rungs)
        for one in there.clients:
            live = members[one.name]
            live.reference_stride = offloading.dedicated_stride(live, zoo.best, key.fps, decode_ms)
            live.ageing.expect(_stride_of(one, asked[one.name]))
            enough = [rung for rung in enough if offloading.keeps(live, rung, decode_ms)]
        pool.enough = frozenset(rung.name for rung in enough)
        pool.batches = plan.batches
        pool.gates.plan(offloading.gates_of(plan.batches, zoo.by_name, best, pool.scale, pool.shifts, now_ns))
        pool.run_ms_max = offloading.run_ms_max(plan.batches, zoo.by_name, best)
        load = offloading.loads_of(there, members, zoo.by_name, best, context.environment.workers)
        context.ledger.put(key, Load(key.tenant, load, load))
        context.memory.changed(key)
        told = offloading.plans_of(there, members, zoo.by_name, best, pool.scale, pool.shifts, now_ns)
        for id, session_plan in told.items():
            live = members[id]
            live.take(session_plan, reason_for(live.variant, zoo.by_name[session_plan.variant], zoo))

    def _out_of_reach(self, live: LiveSession, zoo: Zoo) -> tuple[Cause, str]:
        """Why no plan could have it: what memory has refused would serve it, or nothing would."""
        key = key_of(live)
        decode_ms = self._context.environment.decode_ms(key.tenant, key.application_id)
        if zoo.refused and not offloading.is_out_of_reach(live, zoo.refused, decode_ms):
            return Cause.MEMORY, f"{NO_ROOM}{zoo.held_beside}"
        return _too_slow(live, zoo), "even alone it would see results too late"

    # -- what a decision is made of ------------------------------------------------------------------------------------

    async def _problem(
        self,
        key: PoolKey,
        members: Sequence[LiveSession],
        others: Sequence[LiveSession],
        zoo: Zoo,
        spared: float = 0.0,
        lenience: Mapping[str, Lenience] = NOBODY,
    ) -> OffloadInput:
        context = self._context
        environment, pool = context.environment, context.pools.pool(key)
        now_ns = environment.clock.now_ns()
        self._priors.estimate((key.tenant, key.application_id), context.sessions.values(), (*members, *others), now_ns)
        there = {live.id for live in (*members, *others)}
        shifts = {id: shift for id, shift in pool.shifts.items() if id in there}
        for live in (*members, *others):
            shift = offloading.shift_of(live, pool.scale, shifts.get(live.id))
            if shift is not None:
                shifts[live.id] = shift
        pool.shifts = {id: shift for id, shift in pool.shifts.items() if id in context.sessions} | shifts
        # The ledger counts all workers together, a lane is one of them: what others leave of it is its part.
        share = min(1.0, (context.shares.for_admission(key) + spared) * environment.workers)
        lost_ms = {live.id: offloading.lost_ms(live, pool.scale.frame_ms) for live in (*members, *others)}
        previous, busy_ns = offloading.previous_of(pool.batches, pool.gates, pool.scale, shifts, now_ns, lost_ms)
        busy_ns = max(busy_ns, self._busy_until_ns(key, now_ns))
        decode_ms, sessions = environment.decode_ms(key.tenant, key.application_id), [*members, *others]
        clients: dict[str, Client] = {}
        for at in range(0, len(sessions), AT_ONCE):
            if at:
                await others_first()
            some = sessions[at : at + AT_ONCE]
            clients |= offloading.clients_of(
                some, zoo.rungs, pool.scale, shifts, share, decode_ms, lenience, zoo.refused
            )
        return offloading.problem_of(
            members, others, clients, zoo.rungs, pool.scale, now_ns, share, busy_ns, previous, zoo.refused
        )

    def _busy_until_ns(self, key: PoolKey, now_ns: int) -> int:
        """When the worker of a pool is free of what runs now and of the batches of other pools that have begun."""
        others = [
            other.gates.free_ns
            for other in self._context.pools
            if other.key.kind is PromiseKind.ACCURACY and other.key.lane == key.lane and other.key != key
        ]
        return max([now_ns + self._context.environment.busy_for_ns(), *others])

    def _record(
        self,
        key: PoolKey,
        problem: OffloadInput,
        plan: OffloadPlan,
        outcome: str,
        session: str | None,
        is_often: bool = False,
    ) -> None:
        """`is_often`: only how often devices are to send has changed, which links do to it several times a second."""
        policy = self._context.deciding.offload
        facts = offload(key.application_id, key.tenant, problem, plan, policy, outcome, session, is_often=is_often)
        self._context.environment.decisions.record("offload", facts)


def _variants(paces: Mapping[str, tuple[str | None, int]]) -> dict[str, str | None]:
    """Of a pool's sessions."""
    return {name: variant for name, (variant, _) in paces.items()}


def _lets_in(plan: OffloadPlan) -> bool:
    """Whether somebody comes for whom nobody goes."""
    return bool(plan.admitted) and not plan.removed


def _stride_of(served: Served, client: Client) -> float:
    """Mean age in frames that a plan expects of what is shown."""
    variant = next((one for one in client.variants if one.name == served.variant), None)
    gap, rate = (0.0, None) if variant is None else (variant.accuracy_gap, variant.drop_rate)
    of_reference = client.drop_rate * (client.reference_stride or 0.0)
    return (served.expected_drop - gap + of_reference) / (client.drop_rate if rate is None else rate)


def _rank(live: LiveSession) -> tuple[bool, float]:
    """Of sessions that there is not room for the lower ones go first: those beyond their tenant's share, those of less
    weight."""
    return not live.beyond_share, live.session.weight


def _newest_first(live: LiveSession) -> tuple[float, str]:
    return -live.session.began_at.timestamp(), live.id


def _too_slow(live: LiveSession, zoo: Zoo) -> Cause:
    """Whether the way alone takes too long, or the run does, for a promise against fresh results."""
    promise = live.promise
    assert isinstance(promise, AccuracyPromise)
    way_ms = live.head_delay_ms + live.down_ms
    way_ms += live.link.transfer_ms(live.sent.expected_bytes(zoo.best.size))
    stride = reference_stride(way_ms, 0.0, live.session.fps)
    return Cause.LINK if live.drop_of(stride) > promise.drop_max else Cause.PROCESSOR
