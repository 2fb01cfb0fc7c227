"""The serve loop: what was seen of pipelines becomes problems, the policy's answers plans, and plans wishes to whoever
serves (Scrooge §3.4-3.6).

Twice a second, and at once when a client joins or leaves, or a pipeline, a tenant, a processor or the memory changes.
It plans where a figure has moved by more than chance and a tenth; a policy is asked where it delays nobody. Its answer
is applied to the pipelines that still are what it was asked about, as long as the box is. Event-loop thread only.
"""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

from appliance.clock import NS_PER_MS, NS_PER_S, others_first
from appliance.domain.errors import PipelineNotPossible, UnknownPipeline
from appliance.domain.pipeline import PipelineClient, PipelinePlan
from appliance.log import get as get_log
from appliance.policies.allocation.base import Placed
from appliance.policies.allocation.several import (
    Served,
    Several,
    existing_of,
    least_workers,
    plan_beside,
    plan_several,
)
from appliance.runtime.decisions.pipelines import pipeline as decision_of
from appliance.runtime.pipelines.demands import Demands
from appliance.runtime.pipelines.environment import PipelineEnvironment, PlannedPipeline
from appliance.runtime.pipelines.holding import holds
from appliance.runtime.pipelines.joins import Joins
from appliance.runtime.pipelines.picture import (
    Picture,
    Pictures,
    Seen,
    are_same,
    entries_of,
    has_moved,
    load_of,
)
from appliance.runtime.pipelines.plans import is_alike, no_plan, outcome_of, plan_of
from appliance.runtime.pipelines.problem import Machine
from appliance.runtime.pipelines.refusal import RefusedClient, lacks, own_words
from appliance.runtime.pipelines.solver import Solver, SolverSlow

PERIOD_NS = 500 * NS_PER_MS
"""Between two looks at the figures."""
TRIES_MAX = 3
"""Times that a client's problem is asked anew, because something changed meanwhile."""
AT_ONCE = 8
"""Pipelines that are planned before somebody who would join has a turn."""
STALE_MAX = 3
"""Answers in a row that are thrown away because the box has changed meanwhile: the next one is better than none."""
LOAD_CHANGE = 0.1
"""Of a group's workers: single calls that take so much more or less than at the last plans."""
FREED_MIN = 0.01
"""Workers. Less is no room for anybody."""
SLOW_NS = NS_PER_S
"""A plan that took longer is told of: meanwhile pipelines were served by the old one."""
SLOW = "no plan was found in time"
BESIDE = "another pipeline did not fit beside it as it was planned"
"""Why one is planned of which nothing has changed."""
log = get_log("pipelines")


@dataclass(slots=True)
class Figures:
    """Counts since the start."""

    plans: int = 0
    """Problems answered."""
    rounds: int = 0
    """Times that something was planned."""
    stale: int = 0
    """Rounds of which not every answer was applied, because what was asked about had changed."""
    given_up: int = 0
    """Rounds whose answer did not come in time."""
    last_ms: float = 0.0
    """What the latest round took."""


@dataclass(slots=True)
class _Planned:
    """The last plan of a pipeline with what it was made by."""

    seen: Seen
    placement: tuple[Placed, ...]
    is_short: bool = False
    """It has less than it asked for, and with more workers would have more."""

    @property
    def taken(self) -> float:
        """Workers."""
        return _taken(self.placement)


class Planning:
    """Plans of all pipelines; `run` is its background task."""

    def __init__(self, environment: PipelineEnvironment, pipelines: Mapping[str, PlannedPipeline]) -> None:
        """`pipelines` by id, kept by the registry."""
        self._environment = environment
        self._pipelines = pipelines
        self._planned: dict[str, _Planned] = {}
        self._machine: Machine | None = None
        self._memory: Mapping[str, int] = {}
        self._weights_of: Mapping[str, float] = {}
        """Of tenants, as pipelines were planned with last."""
        self._load: Mapping[str, float] = {}
        """What single calls took when all were planned last, by worker type."""
        self._numbers: dict[str, int] = {}
        self._pictures = Pictures(environment, pipelines)
        self._demands = Demands(environment)
        self._solver = Solver(environment.clock, environment.background)
        self._wake = asyncio.Event()
        self._turn = asyncio.Lock()
        """One round after the other: what is free is given once."""
        self._joins = Joins()
        self._again: set[str] = set()
        """Pipelines that had less than they asked for when others left room."""
        self._thrown_away = 0
        """Answers in a row."""
        self.figures = Figures()

    # -- the loop ------------------------------------------------------------------------------------------------------

    def wake(self) -> None:
        """Something has changed: a pipeline, a client, a processor."""
        self._wake.set()

    async def run(self, *, goes_on: bool = False) -> None:
        """Until cancelled. `goes_on`: a round that fails is logged, and the next one is another; else it raises."""
        while True:
            self._wake.clear()
            try:
                await self.step()
            except Exception:
                if not goes_on:
                    raise
                log.exception("pipelines were not planned")
            await self._pause()

    async def _pause(self) -> None:
        clock = self._environment.clock
        if not self._pipelines:  # nothing to look at
            await self._wake.wait()
            return
        sleep = asyncio.ensure_future(clock.sleep_until_ns(clock.now_ns() + PERIOD_NS))
        wake = asyncio.ensure_future(self._wake.wait())
        try:
            await asyncio.wait((sleep, wake), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (sleep, wake):
                task.cancel()
            await asyncio.gather(sleep, wake, return_exceptions=True)

    async def step(self) -> bool:
        """One round: look, and plan what has changed. Returns whether anything was planned."""
        now_ns = self._environment.clock.now_ns()
        for live in list(self._pipelines.values()):
            for client in live.clients.silent(now_ns):
                self.left(live, client, "nothing was heard of it")
            live.look()
        async with self._turn:
            picture = await self._pictures.take()
            self._forget_gone()
            dirty = {id: "there is room again" for id in sorted(self._again & picture.seen.keys())} | self._dirty(
                picture
            )
            self._environment.enacting.refresh(now_ns)
            if not dirty:
                return False
        is_planned = False
        while dirty:
            async with self._turn:  # who would join has a turn between two portions
                is_planned |= await self._plan_some(picture, dirty)
        return is_planned

    async def _plan_some(self, picture: Picture, dirty: dict[str, str]) -> bool:
        """Plan `AT_ONCE` of those that are dirty, or all where that is about all: they are none of them any more."""
        for id in [id for id in dirty if not self._is_still(id, picture)]:
            del dirty[id]
        of_all = self._of_all(picture)
        some = dict(dirty if of_all else list(dirty.items())[:AT_ONCE])
        for id in some:
            del dirty[id]
        if not some:
            return False
        try:
            if not self._solver.is_paused:
                return await self._plan(picture, some)
        except SolverSlow:
            self.figures.given_up += 1
            self._environment.events.emit("pipelines not planned in time", pipelines=len(picture.seen))
        self._keep_what_holds(picture, some)
        return False

    def _is_still(self, id: str, picture: Picture) -> bool:
        """Whether a pipeline is what it was in the picture, and has not been planned by that yet."""
        live, planned = self._pipelines.get(id), self._planned.get(id)
        if live is None or (planned is not None and planned.seen is picture.seen[id]):
            return False
        return self._is_as_seen(live, picture)

    def ballooning(self, pipeline_id: str) -> Mapping[str, float]:
        """Stage that asks a network → what its runs take over what was measured, as the last plan saw it."""
        planned = self._planned.get(pipeline_id)
        return {} if planned is None else planned.seen.ballooning

    # -- clients -------------------------------------------------------------------------------------------------------

    async def admit(self, live: PlannedPipeline, client: PipelineClient) -> None:
        """Let a client in, with a plan that serves it beside all that is served; into what its pipeline has become,
        where that is changed meanwhile.

        Raises: PipelineNotPossible, with what is missing; UnknownPipeline: it was deleted meanwhile; TooManySessions:
        it has as many as it may have, or too many of its tenant wait to be let in.
        """
        id = live.pipeline.id
        async with self._joins.turn(live.pipeline.tenant), self._turn:
            for _ in range(TRIES_MAX):
                picture = await self._pictures.take(joining=client)
                live = self._still_there(id)
                if id not in picture.seen:  # it was put anew meanwhile
                    continue
                more = replace(picture.seen[id], fps=picture.seen[id].fps + client.fps)
                asked_of = replace(picture, seen={**picture.seen, id: more})
                dirty = self._dirty(asked_of)
                try:
                    several = await self._joining(asked_of, id)
                except SolverSlow:
                    reason = f"{SLOW}; ask again"
                    raise PipelineNotPossible(name=live.pipeline.name, fps=client.fps, reason=reason) from None
                plans = await self._plans_of(asked_of, several)
                live = self._still_there(id)
                fits = id in several.served and all(one.plan.feasible for one in several.served.values())
                if not fits and self._environment.need_spared():
                    continue
                if self._box_is(picture) and self._is_as_seen(live, picture):
                    break
            else:
                reason = "what it would be served beside keeps changing; ask again"
                raise PipelineNotPossible(name=live.pipeline.name, fps=client.fps, reason=reason)
            served = several.served.get(id)
            if not fits:
                await self._refuse(live, client, asked_of, several)
            assert served is not None, "else it was refused"
            live.clients.require_room(live.pipeline)  # others may have joined meanwhile
            live.clients.join(client, self._environment.clock.now_ns())
            joined = replace(more, clients=tuple(live.clients))
            because = {**dirty, id: "a client has joined"}
            self._apply(replace(asked_of, seen={**asked_of.seen, id: joined}), several, plans, because)
            self._record(live, served, asked_of, "admitted", _asks(client))
            self._tell(live, "pipeline client joined", client)
            others = {other: one for other, one in several.served.items() if other != id}
            await self._record_plans(others, plans, asked_of, dirty)

    def _still_there(self, id: str) -> PlannedPipeline:
        """Raises: UnknownPipeline."""
        found = self._pipelines.get(id)
        if found is None:
            raise UnknownPipeline(name=id.partition("/")[2])
        return found

    def left(self, live: PlannedPipeline, client: PipelineClient, reason: str) -> None:
        """A client has gone; its part is planned for others."""
        self._tell(live, "pipeline client left", client, reason=reason)
        self.wake()

    def _tell(self, live: PlannedPipeline, event: str, client: PipelineClient, **facts: str) -> None:
        pipeline = live.pipeline
        self._environment.events.emit(
            event, pipeline=pipeline.name, tenant=pipeline.tenant, client=client.id, fps=client.fps, **facts
        )

    async def _refuse(self, live: PlannedPipeline, client: PipelineClient, picture: Picture, several: Several) -> None:
        """Raises: PipelineNotPossible, with what is missing, and for how many frames there would be room."""
        served = several.served.get(live.pipeline.id)
        if served is None:
            reason = picture.missing[live.pipeline.id]
            raise PipelineNotPossible(name=live.pipeline.name, fps=client.fps, missing=("profile",), reason=reason)
        lacking = served
        if served.plan.feasible:
            lacking = next(one for _, one in sorted(several.served.items()) if not one.plan.feasible)
        placements = {id: one.placement for id, one in self._planned.items() if id != live.pipeline.id}
        existing = existing_of(placements, picture.busy, picture.machine.workers, ())
        per_frame = picture.asked[live.pipeline.id].levels[served.level]
        before_fps = picture.seen[live.pipeline.id].fps - client.fps

        beside = RefusedClient(per_frame, existing, before_fps, client.fps)
        missing: tuple[str, ...] = ()
        fps = 0.0
        with suppress(SolverSlow):
            problem = lacking.problem(picture.asked[lacking.name].levels)
            missing, fps = await self._solver.ask(partial(lacks, problem, beside, self._environment.policy))
        self._record(live, served, picture, "refused", _asks(client))
        is_other = lacking is not served
        reason = ("another pipeline would have no room: " if is_other else "") + own_words(lacking, is_other)
        raise PipelineNotPossible(
            name=live.pipeline.name, fps=client.fps, fps_possible=fps, missing=missing, reason=reason
        )

    # -- one round -----------------------------------------------------------------------------------------------------

    def _dirty(self, picture: Picture) -> dict[str, str]:
        """Pipelines that are to be planned, whatever has become of the others, and why."""
        of_all = self._of_all(picture)
        found: dict[str, str] = {}
        for id, seen in picture.seen.items():
            planned = self._planned.get(id)
            if planned is None or self._pipelines[id].plan is None:  # it is not the one that was planned
                found[id] = "it has no plan"
            elif because := of_all or seen.change_since(planned.seen):
                found[id] = because
        return found

    def _of_all(self, picture: Picture) -> str:
        """Why all are to be planned; empty: they are not."""
        if picture.machine != self._machine:
            return "processors have changed"
        if has_moved(picture.memory, self._memory):
            return "the memory has changed"
        if _differ(picture.weights, self._weights_of):
            return "tenants weigh more or less than before"
        return "single calls take more or less of the processors" if self._has_new_load(picture) else ""

    def _has_new_load(self, picture: Picture) -> bool:
        """Whether single calls take much more or less than all were planned with."""
        now = load_of(picture.busy)
        available = {worker.name: worker.available or 1 for worker in picture.machine.workers}
        return any(
            abs(now.get(name, 0.0) - self._load.get(name, 0.0)) > LOAD_CHANGE * available.get(name, 1)
            for name in {**now, **self._load}
        )

    async def _plan(self, picture: Picture, dirty: Mapping[str, str]) -> bool:
        start_ns = self._environment.clock.now_ns()
        several = await self._solve(picture, dirty, may_degrade=True)
        took_ns = self._environment.clock.now_ns() - start_ns
        plans = await self._plans_of(picture, several)
        if any(plan.is_short or not plan.feasible for plan in plans.values()) and self._environment.need_spared():
            self.wake()
            return False
        self.figures.last_ms = took_ns / NS_PER_MS
        if took_ns > SLOW_NS:
            self._environment.events.emit("pipelines planned slowly", took_ms=round(took_ns / NS_PER_MS, 1))
        is_box_other = not self._box_is(picture)
        if is_box_other or not all(
            self._is_as_seen(self._pipelines[id], picture) for id in several.served if id in self._pipelines
        ):
            self.figures.stale += 1
            self.wake()
        self._thrown_away = self._thrown_away + 1 if is_box_other else 0
        if 0 < self._thrown_away <= STALE_MAX:
            return False
        self._thrown_away = 0
        self._apply(picture, several, plans, dirty)
        await self._record_plans(several.served, plans, picture, dirty)
        return True

    async def _joining(self, picture: Picture, id: str) -> Several:
        """The plan of a pipeline that a client would join, beside those of the others as they are, where what these
        have come to want since has room, too; else with those of all that have changed.
        """
        dirty = {*self._dirty(picture)} - {id}
        if dirty and not self._of_all(picture) and self._have_same_offers(picture, dirty):
            found = await self._beside(picture, {id})
            if found is not None and await self._has_room(picture, found, dirty):
                return found
        return await self._solve(picture, {*dirty, id}, may_degrade=False)

    def _have_same_offers(self, picture: Picture, ids: Collection[str]) -> bool:
        """Whether some pipelines may be served with the same variants as before, unless they were changed: for all that
        is offered has to fit into memory with what the joining one needs.
        """
        planned = {id: self._planned[id].seen for id in ids if id in self._planned}
        return not any(picture.seen[id].has_other_offers(then) for id, then in planned.items())

    async def _has_room(self, picture: Picture, several: Several, dirty: Collection[str]) -> bool:
        """Whether all that is planned leaves room for what the dirty ones want, as little as that may be."""
        taken = sum(load_of(picture.busy).values())
        taken += sum(_taken(one.plan.placement) for one in several.served.values())
        for id in picture.seen.keys() - several.served.keys():
            own = self._planned[id].taken if id in self._planned else 0.0
            if id in dirty and not picture.missing[id]:
                own = max(own, least_workers(picture.asked[id].levels[0]) * picture.seen[id].fps)
                await others_first()
            taken += own
        return taken <= sum(1 if group.is_device else group.workers for group in picture.machine.groups)

    async def _solve(self, picture: Picture, dirty: Collection[str], *, may_degrade: bool) -> Several:
        """The plans of those that are dirty, beside the others'; of all where they do not fit."""
        found = await self._beside(picture, dirty)
        if found is not None:
            return found
        demands = await self._demands.of(picture, picture.seen.keys())
        compute = partial(plan_several, demands, self._environment.policy, {}, picture.busy, may_degrade=may_degrade)
        several = await self._solver.ask(compute, len(demands))
        self.figures.plans += several.solved
        return several

    async def _beside(self, picture: Picture, ids: Collection[str]) -> Several | None:
        """The plans of some beside those of all others; None: they do not fit, or there are no others."""
        self.figures.rounds += 1
        kept = {id: one.placement for id, one in self._planned.items() if id in picture.seen and id not in ids}
        if not kept:
            return None
        demands = await self._demands.of(picture, ids)
        several = await self._solver.ask(
            partial(plan_beside, demands, self._environment.policy, kept, picture.busy), len(demands)
        )
        self.figures.plans += 0 if several is None else several.solved
        return several

    def _box_is(self, picture: Picture) -> bool:
        """Whether processors, memory and tenants are what the policy was asked about."""
        environment = self._environment
        if environment.machine() != picture.machine:
            return False
        tenants = {live.pipeline.tenant for live in self._pipelines.values()} & picture.memory.keys()
        if _differ({tenant: environment.catalogue.processor_weight(tenant) for tenant in tenants}, picture.weights):
            return False
        now = {tenant: environment.memory_bytes(tenant) for tenant in tenants}
        return not has_moved(now, {tenant: picture.memory[tenant] for tenant in tenants})

    def _is_as_seen(self, live: PlannedPipeline, picture: Picture) -> bool:
        """Whether a pipeline, what it asks and its clients are what the policy was asked about."""
        return self._has_stages_of(live, picture) and tuple(live.clients) == picture.seen[live.pipeline.id].clients

    def _has_stages_of(self, live: PlannedPipeline, picture: Picture) -> bool:
        """Whether an answer can be applied to a pipeline. One for clients that have left meanwhile is: it is for too
        many frames, and the next one follows at once.
        """
        seen = picture.seen.get(live.pipeline.id)
        if seen is None or live.pipeline != seen.pipeline:
            return False
        return are_same(seen.entries, entries_of(self._environment.catalogue, live.pipeline))

    # -- what follows --------------------------------------------------------------------------------------------------

    async def _plans_of(self, picture: Picture, several: Several) -> dict[str, PipelinePlan]:
        """The answers as plans, by pipeline; others have their turn between two of them."""
        found: dict[str, PipelinePlan] = {}
        for id, served in several.served.items():
            live = self._pipelines.get(id)
            if live is not None:
                found[id] = plan_of(live, picture.asked[id], served, picture, self._number(live))
                await others_first()
        return found

    def _apply(
        self, picture: Picture, several: Several, plans: Mapping[str, PipelinePlan], because: Mapping[str, str]
    ) -> None:
        """The plans hold from now on, by pipeline `because` of what. Of one that was changed meanwhile its place is
        kept, for the others were planned beside it, and it is planned next.
        """
        if picture.machine != self._machine or self._has_new_load(picture):  # all were planned
            self._load = load_of(picture.busy)
        self._machine, self._memory, self._weights_of = picture.machine, picture.memory, picture.weights
        taken = sum(one.taken for one in self._planned.values())
        for id, missing in picture.missing.items():
            live = self._pipelines.get(id)
            served = several.served.get(id)
            if live is None:
                continue
            if not self._has_stages_of(live, picture):
                if served is not None:
                    self._planned[id] = _Planned(picture.seen[id], served.plan.placement)
                continue
            plan = plans.get(id)
            if served is not None and plan is not None:
                is_short = served.is_possible and (plan.is_short or not plan.feasible)
                self._planned[id] = _Planned(picture.seen[id], served.plan.placement, is_short)
                self._put(live, plan, because.get(id, BESIDE))
            elif missing and id in because:
                self._planned[id] = _Planned(picture.seen[id], ())
                without = no_plan(self._number(live), missing, picture.seen[id].fps)
                self._put(live, without, because.get(id, BESIDE))
            if served is not None or (missing and id in because):
                self._again.discard(id)
                self._environment.enacting.put(live.pipeline, live.plan, picture.machine)
        if sum(one.taken for one in self._planned.values()) < taken - FREED_MIN:
            self._plan_short_ones_again(but=several.served.keys())
        self._environment.enacting.enact(self._environment.clock.now_ns())

    def _keep_what_holds(self, picture: Picture, dirty: Mapping[str, str]) -> None:
        """No new plans are made: old ones stay where they can, all others are served without one."""
        environment = self._environment
        is_changed = False
        for id in dirty:
            live = self._pipelines.get(id)
            if live is None or not self._has_stages_of(live, picture):
                continue
            planned = self._planned.get(id)
            room_bytes = picture.memory[live.pipeline.tenant]
            if planned and holds(live, planned.placement, picture.machine, environment.catalogue, room_bytes):
                continue
            self._planned.pop(id, None)
            if live.plan is None or live.plan.feasible:
                self._put(live, no_plan(self._number(live), SLOW, picture.seen[id].fps), dirty[id])
                environment.enacting.put(live.pipeline, live.plan, picture.machine)
                is_changed = True
        if is_changed:
            environment.enacting.enact(environment.clock.now_ns())

    def _plan_short_ones_again(self, but: Collection[str] = ()) -> None:
        """There is room now for those that have less than they asked for."""
        found = {id for id, one in self._planned.items() if one.is_short and id not in but}
        if found:
            self._again |= found
            self.wake()

    def _forget_gone(self) -> None:
        """Pipelines that are no more want nothing."""
        gone = [id for id in self._planned if id not in self._pipelines]
        if any(self._planned[id].placement for id in gone):
            self._plan_short_ones_again(but=gone)
        self._again.difference_update(gone)
        for id in gone:
            del self._planned[id]
            self._environment.enacting.forget(id)
        self._pictures.forget_gone()
        for id in self._numbers.keys() - self._pipelines.keys():
            del self._numbers[id]
        if gone:
            self._environment.enacting.enact(self._environment.clock.now_ns())

    def _number(self, live: PlannedPipeline) -> int:
        number = self._numbers[live.pipeline.id] = self._numbers.get(live.pipeline.id, 0) + 1
        return number

    def _put(self, live: PlannedPipeline, plan: PipelinePlan, because: str) -> None:
        before = live.plan
        live.new_plan(plan)
        if not plan.fps and not plan.stages and (before is None or not before.stages):  # there is nobody to serve
            return
        about = {"pipeline": live.pipeline.name, "tenant": live.pipeline.tenant}
        facts = {**about, "reason": plan.reason, "because": because}
        if before is not None and is_alike(before, plan):
            return
        if plan.feasible:
            self._environment.events.emit("pipeline planned", fps=round(plan.fps, 3), degraded=plan.degraded, **facts)
        else:
            self._environment.events.emit("pipeline without a plan", **facts)

    async def _record_plans(
        self,
        served: Mapping[str, Served],
        plans: Mapping[str, PipelinePlan],
        picture: Picture,
        because: Mapping[str, str],
    ) -> None:
        """Of pipelines that still are what they were planned as; others have their turn between two of them."""
        for id, one in served.items():
            live = self._pipelines.get(id)
            if live is not None and id in plans and self._has_stages_of(live, picture):
                self._record(live, one, picture, outcome_of(plans[id]), because.get(id, BESIDE))
                await others_first()

    def _record(self, live: PlannedPipeline, served: Served, picture: Picture, outcome: str, because: str) -> None:
        pipeline = live.pipeline
        facts = decision_of(
            pipeline.id,
            pipeline.tenant,
            pipeline.application_ids,
            served.problem(picture.asked[pipeline.id].levels),
            served.plan,
            self._environment.policy_name,
            outcome,
            because,
        )
        self._environment.decisions.record("pipeline", facts)


def _taken(placement: Sequence[Placed]) -> float:
    """Workers."""
    return sum(part.share for place in placement for part in place.parts)


def _differ(now: Mapping[str, float], before: Mapping[str, float]) -> bool:
    """Whether some tenant weighs another than before, of those that were there."""
    return any(before.get(tenant, weight) != weight for tenant, weight in now.items())


def _asks(client: PipelineClient) -> str:
    return f"a client of {client.fps:.4g} frames a second asks to join"
