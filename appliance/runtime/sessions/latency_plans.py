"""Plans of sessions with promises of latency: whether one fits in, a pool planned anew, and its plan carried out."""

from collections.abc import Sequence

from appliance.clock import others_first
from appliance.domain.session import Cause, LatencyPromise, SessionPlan
from appliance.policies.adaptation.base import AdaptationInput, AdaptationPlan
from appliance.policies.adaptation.binding import Binding, binding
from appliance.policies.adaptation.going_on import AS_ACCURATE, gone_on, networks_of, pays, points_gained
from appliance.runtime.decisions.sessions import adaptation
from appliance.runtime.sessions import adapting
from appliance.runtime.sessions.context import AT_ONCE, PlanningContext
from appliance.runtime.sessions.ledger import Load
from appliance.runtime.sessions.live import LiveSession
from appliance.runtime.sessions.pools import Pool, PoolKey, key_of
from appliance.runtime.sessions.reasons import reason_for
from appliance.runtime.sessions.shares import order
from appliance.runtime.sessions.verdict import Verdict, nothing_to_run
from appliance.runtime.sessions.zoo import Rung, Zoo

PLANNED = 0.88
"""Share of its time that a worker is planned to run, where that serves all: frames of several cameras may come at one
instant, and then wait for more than the one run that eq. 5 counts on; a worker that has no time to spare never makes up
for it."""
REMOVALS_MAX = 8
"""Tries to find whom to remove in place of whom the planner leaves out."""
HEADROOM = 0.92
"""Share of what is free that is sold to who comes with a promise of latency: what was promised outlives estimates that
move a little. Of promises of accuracy a part is kept free (`Ageing`)."""


class LatencyPlans:
    """Of all pools of that kind. Event-loop thread only."""

    def __init__(self, context: PlanningContext) -> None:
        self._context = context

    # -- may it come in ------------------------------------------------------------------------------------------------

    async def verdict(self, live: LiveSession, spared: float) -> Verdict:
        """Whether its promise can be kept beside all that are; `spared`: share of all workers that would come free."""
        context, key = self._context, key_of(live)
        zoo = context.zoos.of(key, live.id)
        if not zoo.rungs:
            return context.refused(live, nothing_to_run(zoo))
        members = [*context.pools.held(key, without=live), live]
        most = context.shares.for_admission(key)
        problem = await self._problem(key, members, zoo, HEADROOM * min(1.0, most + spared))
        plan = await context.pools.timed(key, context.deciding.adapt(problem))
        outcome = "refused" if plan.unmapped else "admitted"
        self._record(key, problem, plan, outcome, live.id)
        if not plan.unmapped:
            return Verdict(True, mapped=plan, share=most)
        return Verdict(False, *self._why(live, zoo, key, plan))

    def _why(self, live: LiveSession, zoo: Zoo, key: PoolKey, plan: AdaptationPlan) -> tuple[Cause, str]:
        """Return why a plan leaves a session out. The policy counts what the link takes as time that is gone."""
        cause = self._cause(live, zoo, key)
        if cause is not Cause.LINK:
            return cause, plan.reason
        assert isinstance(live.promise, LatencyPromise)
        return cause, f"no frame comes over it in time to be answered within {live.promise.slo_ms:g} ms"

    def _cause(self, live: LiveSession, zoo: Zoo, key: PoolKey) -> Cause:
        """What keeps a session from being served: what would, were it alone on the box; then what would, were it on
        the box's own wire; else the others."""
        problem = self._alone(live, zoo, key)
        client = problem.clients[0]
        if binding(client, problem.networks) is Binding.WORKERS:
            return self._context.shares.cause(live)
        at_the_box = adapting.client_at_the_box(live, self._context.beside(key))
        return Cause.LINK if binding(at_the_box, problem.networks) is Binding.WORKERS else Cause.PROCESSOR

    def _is_able(self, live: LiveSession, zoo: Zoo, key: PoolKey) -> bool:
        """Whether it would be served, had it the box for itself."""
        problem = self._alone(live, zoo, key)
        return binding(problem.clients[0], problem.networks) is Binding.WORKERS

    def _alone(self, live: LiveSession, zoo: Zoo, key: PoolKey) -> AdaptationInput:
        """The problem of one session that has the box for itself."""
        client = adapting.client_of(live, 1.0, self._context.beside(key))
        return adapting.problem_of([live], [client], zoo.rungs, self._context.environment.workers, ())

    # -- its turn ------------------------------------------------------------------------------------------------------

    async def plan(self, pool: Pool) -> None:
        """Plan a pool anew; who finds no room any more is removed."""
        context, key = self._context, pool.key
        now_ns = context.environment.clock.now_ns()
        members = context.pools.held(key)
        zoo = context.zoo_for(pool, members)
        if zoo is None:
            return
        context.taken_away(pool, members, zoo)
        share = PLANNED * context.shares.for_plan(key)
        problem = await self._problem(key, members, zoo, share)
        plan = await self._going_on(pool, problem, zoo, share)
        for is_cautious in (True, False):
            if not plan.unmapped:
                break
            share = context.shares.for_admission(key)
            problem = await self._problem(key, members, zoo, share, is_cautious=is_cautious)
            plan = await self._going_on(pool, problem, zoo, share)
        problem, plan = await self._kept(pool, members, zoo, problem, plan)
        for _ in range(REMOVALS_MAX):
            if not plan.unmapped:
                break
            victim = self.victim(key, members, plan.unmapped, zoo)
            self._remove(victim, problem, plan, zoo, key)
            members = [live for live in members if live is not victim]
            if not members:
                context.close(pool)
                return
            share = context.shares.for_admission(key)
            problem = await self._problem(key, members, zoo, share, is_cautious=False)
            plan = await context.pools.timed(key, context.deciding.adapt(problem))
        for live in members:
            if live.id in plan.unmapped:
                self._remove(live, problem, plan, zoo, key)
        await self._enact(pool, problem, plan, members, zoo, now_ns)

    def _remove(
        self, live: LiveSession, problem: AdaptationInput, plan: AdaptationPlan, zoo: Zoo, key: PoolKey
    ) -> None:
        """It goes because a plan leaves somebody out."""
        self._record(key, problem, plan, "removed", live.id)
        self._context.remove(live, *self._why(live, zoo, key, plan), is_recorded=True)

    def victim(self, key: PoolKey, members: Sequence[LiveSession], unmapped: Sequence[str], zoo: Zoo) -> LiveSession:
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
        return max(found, key=order)

    async def _going_on(self, pool: Pool, problem: AdaptationInput, zoo: Zoo, share: float) -> AdaptationPlan:
        """A new plan, or the one before where only that serves all, or where the new one is not worth that devices
        change variants."""
        context = self._context
        plan = await context.pools.timed(pool.key, context.deciding.adapt(problem))
        if pool.plan is None or not (plan.unmapped or networks_of(plan) != networks_of(pool.plan)):
            return plan
        before = gone_on(problem, pool.plan)
        if before is None:
            return plan
        return plan if not plan.unmapped and self._is_worth(pool, problem, before, plan, zoo, share) else before

    def _is_worth(
        self,
        pool: Pool,
        problem: AdaptationInput,
        before: AdaptationPlan,
        plan: AdaptationPlan,
        zoo: Zoo,
        share: float,
    ) -> bool:
        """Whether a plan is more accurate than the one before; or as accurate, and takes so much less that the change
        pays, also for what has to be loaded, and the last one was a while ago."""
        gained = points_gained(problem, before, plan)
        if gained is None or abs(gained) > AS_ACCURATE:
            return gained is None or gained > 0.0
        if not pool.changes.are_allowed(self._context.environment.clock.now_ns()):
            return False
        more = set(networks_of(plan).values()).difference(networks_of(before).values())
        load_ms = sum(self._load_ms(zoo.by_name[name]) for name in more)
        return pays(problem, before, plan, load_ms / (share * self._context.environment.workers))

    def _load_ms(self, rung: Rung) -> float:
        """Until a variant is in memory, awake."""
        environment, profile = self._context.environment, rung.servable.profile
        if profile is None or environment.is_resident(rung.servable):
            return 0.0
        return profile.wake_ms or 0.0 if environment.is_asleep(rung.servable) else profile.load_ms

    async def _kept(
        self, pool: Pool, members: Sequence[LiveSession], zoo: Zoo, problem: AdaptationInput, plan: AdaptationPlan
    ) -> tuple[AdaptationInput, AdaptationPlan]:
        """The plan; while changes rest the one before in place of one that is as accurate, as long as it serves all as
        those are judged who are served."""
        context = self._context
        if pool.plan is None or plan.unmapped or pool.changes.are_allowed(context.environment.clock.now_ns()):
            return problem, plan
        if not _is_as_accurate(problem, pool.plan, plan):
            return problem, plan
        bold = await self._problem(pool.key, members, zoo, context.shares.for_admission(pool.key), is_cautious=False)
        before = gone_on(bold, pool.plan)
        return (problem, plan) if before is None else (bold, before)

    async def _enact(
        self,
        pool: Pool,
        problem: AdaptationInput,
        plan: AdaptationPlan,
        members: Sequence[LiveSession],
        zoo: Zoo,
        now_ns: int,
    ) -> None:
        context, key = self._context, pool.key
        workers = context.environment.workers
        context.figures.plans += 1
        beside = context.beside(key)
        enough = list(zoo.rungs)
        for at, live in enumerate(members, 1):
            if context.is_held(live, now_ns):
                live.least_load = adapting.least_load(live, zoo.rungs, workers, beside)
                enough = [rung for rung in enough if adapting.keeps(live, rung, beside)]
            if at % AT_ONCE == 0:
                await others_first()
        pool.enough = frozenset(rung.name for rung in enough)
        there = [live for live in members if context.is_held(live, now_ns)]  # others have gone meanwhile
        mapping = _mapping(plan)
        if mapping != pool.mapping:
            self._record(key, problem, plan, "planned", None)
        if pool.plan is not None and _is_as_accurate(problem, pool.plan, plan):
            names = set(networks_of(plan).values())
            pool.changes.changed(set(networks_of(pool.plan).values()) - names, now_ns)
        pool.mapping = mapping
        pool.plan = plan
        pool.previous = _by_worker(plan, workers, pool.previous)
        pool.prefetch = plan.prefetch
        context.worker_lanes.plan(key, adapting.workers_of(plan, there))
        pool.run_ms_max = max((zoo.by_name[w.network].worst_ms[w.batch] for w in plan.workers), default=0.0)
        planned = adapting.loads_of(plan, there, zoo.by_name, workers)
        least = sum(live.least_load or 0.0 for live in there)
        context.ledger.put(key, Load(key.tenant, planned, min(planned, least)))
        context.memory.changed(key)
        told = adapting.plans_of(plan, there, zoo.by_name, now_ns)
        self._count(pool.wanted, plan, zoo)
        pool.wanted = tuple(worker.network for worker in plan.workers)
        pool.bandwidth_bps = {live.id: live.link.bandwidth_bps for live in there}
        for at, live in enumerate(there, 1):
            if live.id in told and context.is_held(live, now_ns):
                wanted = told[live.id]
                given = self._as_memory_is(live, wanted, zoo, beside)
                loading = wanted.variant if given.variant != wanted.variant else ""
                live.take(given, reason_for(live.variant, zoo.by_name[given.variant], zoo, loading))
            if at % AT_ONCE == 0:  # each that is told has something to send
                await others_first()

    def _count(self, before: Sequence[str], plan: AdaptationPlan, zoo: Zoo) -> None:
        """How a pool's plan finds its variants, once it was planned before."""
        figures = self._context.figures
        for name in {worker.network for worker in plan.workers} if before else ():
            found = self._found(zoo.by_name[name])
            figures.selections[found] += 1
            figures.changes[found] += name not in before

    def _found(self, rung: Rung) -> str:
        """How a variant is in memory."""
        environment = self._context.environment
        if environment.is_resident(rung.servable):
            return "awake"
        return "asleep" if environment.is_asleep(rung.servable) else "absent"

    def _as_memory_is(
        self, live: LiveSession, plan: SessionPlan, zoo: Zoo, beside: adapting.FrameOverhead
    ) -> SessionPlan:
        """The plan; while its variant is not in memory yet, with the best one that is, keeps the promise, and takes no
        longer; else the present one, where that keeps the promise. Only who has neither waits for a load.
        """
        old, new = zoo.by_name.get(live.variant), zoo.by_name[plan.variant]
        rung = new
        if old is not None and old is not new and not self._context.environment.is_resident(new.servable):
            rung = self._meanwhile(live, old, new, zoo, beside) or new
        if old is not None and rung is not old:
            self._context.figures.switches[self._found(rung)] += 1
        if rung is new:
            return plan
        return adapting.with_variant(plan, rung)

    def _meanwhile(
        self, live: LiveSession, old: Rung, new: Rung, zoo: Zoo, beside: adapting.FrameOverhead
    ) -> Rung | None:
        most_ms = min(new.usual_ms.values())
        there = [
            rung
            for rung in zoo.rungs
            if (rung is old or min(rung.usual_ms.values()) <= most_ms)
            and self._context.environment.is_resident(rung.servable)
            and adapting.keeps(live, rung, beside)
        ]
        no_slower = [rung for rung in there if min(rung.usual_ms.values()) <= most_ms]
        return max(no_slower or there, key=lambda rung: (rung.accuracy, rung is old, rung.name), default=None)

    # -- what a decision is made of ------------------------------------------------------------------------------------

    async def _problem(
        self, key: PoolKey, members: Sequence[LiveSession], zoo: Zoo, share: float, *, is_cautious: bool = True
    ) -> AdaptationInput:
        context = self._context
        beside, clients = context.beside(key), []
        for at, live in enumerate(members, 1):
            clients.append(adapting.client_of(live, share, beside, is_cautious=is_cautious))
            if at % AT_ONCE == 0:
                await others_first()
        pool = context.pools.pool(key)
        return adapting.problem_of(
            members, clients, self._to_choose_from(pool, zoo), context.environment.workers, pool.previous
        )

    def _to_choose_from(self, pool: Pool, zoo: Zoo) -> Sequence[Rung]:
        """The variants without those that were left a moment ago, while all that took their places are there."""
        left = pool.changes.left(self._context.environment.clock.now_ns())
        used = set() if pool.plan is None else set(networks_of(pool.plan).values())
        if not left or not used <= zoo.by_name.keys():
            return zoo.rungs
        return [rung for rung in zoo.rungs if rung.name in used or rung.name not in left]

    def _record(
        self, key: PoolKey, problem: AdaptationInput, plan: AdaptationPlan, outcome: str, session: str | None
    ) -> None:
        policy = self._context.deciding.adaptation
        facts = adaptation(key.application_id, key.tenant, problem, plan, policy, outcome, session)
        self._context.environment.decisions.record("adaptation", facts)


def _is_as_accurate(problem: AdaptationInput, before: AdaptationPlan, plan: AdaptationPlan) -> bool:
    """Whether clients change networks, for others that are as accurate."""
    gained = points_gained(problem, before, plan)
    return gained is not None and abs(gained) <= AS_ACCURATE


def _mapping(plan: AdaptationPlan) -> tuple[tuple[str, int, tuple[str, ...]], ...]:
    return tuple((worker.network, worker.batch, worker.clients) for worker in plan.workers)


def _by_worker(plan: AdaptationPlan, workers: int, before: Sequence[str | None]) -> tuple[str | None, ...]:
    """The network of each worker; one that serves nobody stays as it was."""
    networks = [*before[:workers], *[None] * (workers - len(before))]
    for worker in plan.workers:
        networks[worker.worker] = worker.network
    return tuple(networks)
