"""The serve loop: what was seen of pipelines becomes problems, the policy's answers plans, and plans wishes to whoever
serves (Scrooge §3.4-3.6).

Twice a second, and at once when a client joins or leaves, or a pipeline, a processor or the memory changes. It plans
where a figure has moved by more than chance and a tenth; a policy is asked where it delays nobody. Its answer is
applied to the pipelines that still are what it was asked about, as long as the box is. Event-loop thread only.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Protocol

from appliance.clock import NS_PER_MS, NS_PER_S, Clock
from appliance.domain.errors import ApplianceError, PipelineNotPossible, TooManySessions, UnknownPipeline
from appliance.domain.events import EventSink
from appliance.domain.pipeline import Ask, CostBy, Pipeline, PipelineClient, PipelinePlan
from appliance.domain.pipeline_graph import Graph
from appliance.log import get as get_log
from appliance.policies.allocation.base import AllocationInput, AllocationPolicy, Existing, Part, Placed
from appliance.policies.allocation.several import Demand, Served, Several, at_rate, existing_of, plan_several
from appliance.runtime.catalogue import Catalogue, Entry
from appliance.runtime.decisions.pipelines import pipeline as decision_of
from appliance.runtime.pipelines.accounts import HOST, Tariff
from appliance.runtime.pipelines.clients import Clients
from appliance.runtime.pipelines.enacting import Enacting
from appliance.runtime.pipelines.load import SingleLoad
from appliance.runtime.pipelines.problem import Asked, Machine, Offer, Subject, asked, offers_of, stage_plans
from appliance.runtime.pipelines.windows import CHANGE, FrameWindows, Observed, Totals
from appliance.runtime.ports import Background, DecisionSink
from appliance.runtime.servable import Servable

PERIOD_NS = 500 * NS_PER_MS
"""Between two looks at the figures."""
TRIES_MAX = 3
"""Times that a client's problem is asked anew, because something changed meanwhile."""
JOINS_MAX = 32
"""Clients of a tenant that wait to be let in."""
STALE_MAX = 3
"""Answers in a row that are thrown away because the box has changed meanwhile: the next one is better than none."""
LOAD_CHANGE = 0.1
"""Of a group's workers: single calls that take so much more or less than at the last plans."""
FREED_MIN = 0.01
"""Workers. Less is no room for anybody."""
PARTS = (0.75, 0.5, 0.25)
"""Of the frames of a refused client that are tried, to say what would be possible."""
SLOW_NS = NS_PER_S
"""A plan that took longer is told of: meanwhile pipelines were served by the old one."""
log = get_log("pipelines")


class Live(Protocol):
    """A pipeline as it is served: what planning needs of it."""

    pipeline: Pipeline
    graph: Graph
    clients: Clients
    plan: PipelinePlan | None

    def totals(self) -> Totals:
        """What came of it since the start."""
        ...

    def look(self) -> None:
        """Note what it has cost until now."""
        ...

    def new_plan(self, plan: PipelinePlan | None) -> None:
        """It goes by this one from now on."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Around:
    """What planning needs of the box."""

    clock: Clock
    catalogue: Catalogue
    policy: AllocationPolicy
    policy_name: str
    background: Background
    decisions: DecisionSink
    events: EventSink
    tariff: Tariff
    machine: Callable[[], Machine]
    """The processors that are in service now."""
    memory_bytes: Callable[[str], int]
    """What the builds of a tenant's pipelines may take together."""
    is_resident: Callable[[str], bool]
    """Whether a build is in memory."""
    busy_s: Callable[[], Mapping[int, float]]
    """Group of processors → seconds that single calls have taken there, since the start."""
    enacting: Enacting


@dataclass(frozen=True, slots=True)
class Seen:
    """What a pipeline was planned by. Another one means that it is planned anew."""

    pipeline: Pipeline
    version: int
    """Of the catalogue."""
    clients: tuple[PipelineClient, ...]
    fps: float
    items: Mapping[str, float]
    ballooning: Mapping[str, float]
    least_change: float

    def has_changed(self, then: "Seen") -> bool:
        """Whether what is seen now calls for another plan than that made by what was seen `then`."""
        if (self.pipeline, self.version, self.clients) != (then.pipeline, then.version, then.clients):
            return True
        least = max(CHANGE, self.least_change)
        pairs = [(self.fps, then.fps)]
        pairs += [(self.items.get(stage, 0.0), value) for stage, value in then.items.items()]
        pairs += [(self.ballooning.get(stage, 1.0), value) for stage, value in then.ballooning.items()]
        return any(abs(now - before) > least * max(before, 1e-9) for now, before in pairs if now or before)


@dataclass(slots=True)
class Figures:
    """Counts since the start."""

    plans: int = 0
    """Problems answered."""
    rounds: int = 0
    """Times that something was planned."""
    stale: int = 0
    """Rounds of which not every answer was applied, because what was asked about had changed."""
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
        return sum(part.share for place in self.placement for part in place.parts)


@dataclass(frozen=True, slots=True)
class _Picture:
    """All that a round is asked about."""

    machine: Machine
    memory: Mapping[str, int]
    seen: Mapping[str, Seen]
    asked: Mapping[str, Asked]
    busy: tuple[Existing, ...]


@dataclass(slots=True)
class _Line:
    """Clients of one tenant that wait to be let in."""

    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    count: int = 0


class _Joins:
    """Of each tenant one client at a time waits for the next round: many of one do not keep the others waiting."""

    def __init__(self) -> None:
        self._lines: dict[str, _Line] = {}

    @asynccontextmanager
    async def turn(self, tenant: str) -> AsyncIterator[None]:
        """Wait for those of the tenant that came before. Raises: TooManySessions."""
        line = self._lines.setdefault(tenant, _Line())
        if line.count >= JOINS_MAX:
            raise TooManySessions(tenant=tenant, sessions_max=JOINS_MAX, of="clients that wait to be let in")
        line.count += 1
        try:
            async with line.turn:
                yield
        finally:
            line.count -= 1
            if not line.count:
                del self._lines[tenant]


class Planning:
    """Plans of all pipelines; `run` is its background task."""

    def __init__(self, around: Around, pipelines: Mapping[str, Live]) -> None:
        """`pipelines` by id, kept by the registry."""
        self._around = around
        self._pipelines = pipelines
        self._planned: dict[str, _Planned] = {}
        self._machine: Machine | None = None
        self._memory: Mapping[str, int] = {}
        self._load: Mapping[str, float] = {}
        """What single calls took when all were planned last, by worker type."""
        self._single = SingleLoad()
        self._numbers: dict[str, int] = {}
        self._windows: dict[str, FrameWindows] = {}
        self._wake = asyncio.Event()
        self._turn = asyncio.Lock()
        """One round after the other: what is free is given once."""
        self._joins = _Joins()
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
        clock = self._around.clock
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
            with suppress(asyncio.CancelledError):
                await asyncio.gather(sleep, wake, return_exceptions=True)

    async def step(self) -> bool:
        """One round: look, and plan what has changed. Returns whether anything was planned."""
        now_ns = self._around.clock.now_ns()
        for live in list(self._pipelines.values()):
            for client in live.clients.silent(now_ns):
                self.left(live, client, "nothing was heard of it")
            live.look()
        async with self._turn:
            picture = self._look()
            self._forget_gone()
            dirty = self._dirty(picture) | (self._again & picture.seen.keys())
            self._around.enacting.refresh(now_ns)
            if not dirty:
                return False
            return await self._plan(picture, dirty)

    def ballooning(self, pipeline_id: str) -> Mapping[str, float]:
        """Stage that asks a network → what its runs take over what was measured, as the last plan saw it."""
        planned = self._planned.get(pipeline_id)
        return {} if planned is None else planned.seen.ballooning

    # -- clients -------------------------------------------------------------------------------------------------------

    async def admit(self, live: Live, client: PipelineClient) -> None:
        """Let a client in, with a plan that serves it beside all that is served; into what its pipeline has become,
        where that is changed meanwhile.

        Raises: PipelineNotPossible, with what is missing; UnknownPipeline: it was deleted meanwhile; TooManySessions:
        it has as many as it may have, or too many of its tenant wait to be let in.
        """
        id = live.pipeline.id
        async with self._joins.turn(live.pipeline.tenant), self._turn:
            for _ in range(TRIES_MAX):
                live = self._still_there(id)
                picture = self._look()
                more = replace(picture.seen[id], fps=picture.seen[id].fps + client.fps)
                asked_of = replace(picture, seen={**picture.seen, id: more})
                several = await self._solve(asked_of, self._dirty(asked_of) | {id}, may_degrade=False)
                live = self._still_there(id)
                if self._box_is(picture) and self._is_as_seen(live, picture):
                    break
            else:
                reason = "what it would be served beside keeps changing; ask again"
                raise PipelineNotPossible(name=live.pipeline.name, fps=client.fps, reason=reason)
            served = several.served.get(id)
            if served is None or not all(one.plan.feasible for one in several.served.values()):
                await self._refuse(live, client, asked_of, several)
            assert served is not None, "else it was refused"
            live.clients.require_room(live.pipeline)  # others may have joined meanwhile
            live.clients.join(client, self._around.clock.now_ns())
            joined = replace(more, clients=tuple(live.clients))
            self._apply(replace(asked_of, seen={**asked_of.seen, id: joined}), several)
            self._record(live, served, "admitted")
            self._tell(live, "pipeline client joined", client)

    def _still_there(self, id: str) -> Live:
        """Raises: UnknownPipeline."""
        found = self._pipelines.get(id)
        if found is None:
            raise UnknownPipeline(name=id.partition("/")[2])
        return found

    def left(self, live: Live, client: PipelineClient, reason: str) -> None:
        """A client has gone; its part is planned for others."""
        self._tell(live, "pipeline client left", client, reason=reason)
        self.wake()

    def _tell(self, live: Live, event: str, client: PipelineClient, **facts: str) -> None:
        pipeline = live.pipeline
        self._around.events.emit(
            event, pipeline=pipeline.name, tenant=pipeline.tenant, client=client.id, fps=client.fps, **facts
        )

    async def _refuse(self, live: Live, client: PipelineClient, picture: _Picture, several: Several) -> None:
        """Raises: PipelineNotPossible, with what is missing, and for how many frames there would be room."""
        served = several.served.get(live.pipeline.id)
        if served is None:
            reason = picture.asked[live.pipeline.id].missing
            raise PipelineNotPossible(name=live.pipeline.name, fps=client.fps, missing=("profile",), reason=reason)
        lacking = served
        if served.plan.feasible:
            lacking = next(one for _, one in sorted(several.served.items()) if not one.plan.feasible)
        placements = {id: one.placement for id, one in self._planned.items() if id != live.pipeline.id}
        existing = existing_of(placements, picture.busy, served.problem.workers, ())
        per_frame = picture.asked[live.pipeline.id].levels[served.level]
        before_fps = picture.seen[live.pipeline.id].fps - client.fps

        beside = _Beside(per_frame, existing, before_fps, client.fps)
        missing, fps = await self._around.background(partial(_lacks, lacking.problem, beside, self._around.policy))
        self._record(live, lacking if lacking is served else served, "refused")
        is_other = lacking is not served
        reason = ("another pipeline would have no room: " if is_other else "") + _own_words(lacking, is_other)
        raise PipelineNotPossible(
            name=live.pipeline.name, fps=client.fps, fps_possible=fps, missing=missing, reason=reason
        )

    # -- one round -----------------------------------------------------------------------------------------------------

    def _look(self) -> _Picture:
        """The pipelines, and the box around them, as they are now."""
        around = self._around
        now_ns = around.clock.now_ns()
        machine = around.machine()
        lives = {live.pipeline.id: live for live in self._pipelines.values()}
        tenants = sorted({live.pipeline.tenant for live in lives.values()})
        memory = {tenant: around.memory_bytes(tenant) for tenant in tenants}
        observed = {id: self._observed(live, now_ns) for id, live in lives.items()}
        made = {id: self._asked(live, machine, observed[id], memory) for id, live in lives.items()}
        seen = {id: self._seen(live, observed[id], made[id]) for id, live in lives.items()}
        self._single.observe(now_ns, around.busy_s())
        return _Picture(machine, memory, seen, made, self._busy(machine))

    def _observed(self, live: Live, now_ns: int) -> Observed:
        windows = self._windows.get(live.pipeline.id)
        if windows is None or windows.is_of_others(live.pipeline.stages):
            windows = self._windows[live.pipeline.id] = FrameWindows(
                now_ns, live.totals(), _parents(live.graph), live.pipeline.stages
            )
        return windows.look(now_ns, live.totals())

    def _asked(self, live: Live, machine: Machine, observed: Observed, memory: Mapping[str, int]) -> Asked:
        entries: dict[str, Entry] = {}
        offers: dict[str, tuple[Sequence[Offer], Sequence[Offer]]] = {}
        for stage in live.pipeline.stages:
            if not isinstance(stage, Ask):
                continue
            try:
                entry = entries[stage.application_id] = self._entry(live.pipeline, stage)
            except ApplianceError as error:
                return Asked((), (), {}, 0.0, f"{stage.name}: {error}")
            offers[stage.name] = offers_of(stage, entry, self._kinds_of)
        subject = Subject(live.pipeline, live.graph, entries, observed)
        return asked(subject, machine, offers, self._around.tariff, memory[live.pipeline.tenant])

    def _entry(self, pipeline: Pipeline, stage: Ask) -> Entry:
        """Raises: ModelUnavailable."""
        return self._around.catalogue.entry_for(pipeline.tenant, stage.application_id)

    def _kinds_of(self, servable: Servable) -> Sequence[str]:
        return self._around.catalogue.able_kinds(servable)

    def _seen(self, live: Live, observed: Observed, made: Asked) -> Seen:
        alone_fps = max(0.0, observed.fps - observed.joined_fps)
        modules = made.levels[0].modules if made.levels else ()
        asks = {stage.name for stage in live.pipeline.stages if isinstance(stage, Ask)}
        ballooning = {module.name: module.ballooning for module in modules if module.name in asks}
        return Seen(
            live.pipeline,
            self._around.catalogue.version,
            tuple(live.clients),
            live.clients.fps + alone_fps,
            dict(made.items),
            ballooning,
            observed.least_change,
        )

    def _busy(self, machine: Machine) -> tuple[Existing, ...]:
        """What single calls take, from the last worker of each group on."""
        found: list[Existing] = []
        for at, group in enumerate(machine.groups):
            worker = next((name for name, of in machine.of.items() if of.group == at), None)
            share = self._single.share(at, group.workers)
            workers = 1 if group.is_device else group.workers
            left = share * workers
            for index in range(workers - 1, -1, -1):
                part = min(1.0, left)
                if worker is None or part < 0.01:
                    break
                found.append(Existing(worker, index, (Part("requests", part),)))
                left -= part
        return tuple(found)

    def _dirty(self, picture: _Picture) -> set[str]:
        """Pipelines that are to be planned, whatever has become of the others."""
        if picture.machine != self._machine or _has_moved(picture.memory, self._memory) or self._has_new_load(picture):
            return set(picture.seen)
        return {
            id
            for id, seen in picture.seen.items()
            if id not in self._planned
            or self._pipelines[id].plan is None  # it is not the one that was planned
            or seen.has_changed(self._planned[id].seen)
        }

    def _has_new_load(self, picture: _Picture) -> bool:
        """Whether single calls take much more or less than all were planned with."""
        now = _load_of(picture.busy)
        available = {worker.name: worker.available or 1 for worker in picture.machine.workers}
        return any(
            abs(now.get(name, 0.0) - self._load.get(name, 0.0)) > LOAD_CHANGE * available.get(name, 1)
            for name in {**now, **self._load}
        )

    async def _plan(self, picture: _Picture, dirty: set[str]) -> bool:
        start_ns = self._around.clock.now_ns()
        several = await self._solve(picture, dirty, may_degrade=True)
        took_ns = self._around.clock.now_ns() - start_ns
        self.figures.last_ms = took_ns / NS_PER_MS
        if took_ns > SLOW_NS:
            self._around.events.emit("pipelines planned slowly", took_ms=round(took_ns / NS_PER_MS, 1))
        is_box_other = not self._box_is(picture)
        if is_box_other or not all(self._is_as_seen(live, picture) for live in self._pipelines.values()):
            self.figures.stale += 1
            self.wake()
        self._thrown_away = self._thrown_away + 1 if is_box_other else 0
        if 0 < self._thrown_away <= STALE_MAX:
            return False
        self._thrown_away = 0
        self._apply(picture, several)
        for id, served in several.served.items():
            live = self._pipelines.get(id)
            if live is not None and self._has_stages_of(live, picture):
                self._record(live, served, _outcome(served))
        return True

    async def _solve(self, picture: _Picture, dirty: set[str], *, may_degrade: bool) -> Several:
        """The plans of those that are dirty, beside the others'; of all where they do not fit."""
        around = self._around
        demands = [
            Demand(
                id,
                picture.seen[id].fps,
                made.levels,
                picture.seen[id].pipeline.weight,
                self._loaded(picture.seen[id].pipeline, made),
            )
            for id, made in sorted(picture.asked.items())
            if made.levels
        ]
        kept = {id: one.placement for id, one in self._planned.items() if id in picture.seen and id not in dirty}
        self.figures.rounds += 1

        several = await around.background(
            partial(plan_several, demands, around.policy, kept, picture.busy, may_degrade=may_degrade)
        )
        self.figures.plans += several.solved
        return several

    def _loaded(self, pipeline: Pipeline, made: Asked) -> tuple[str, ...]:
        """Stages whose builds are in memory (SC-22)."""
        found = []
        for stage in pipeline.stages:
            if isinstance(stage, Ask):
                servables = self._entry(pipeline, stage).servables
                names = {name for key, name in made.variants[0].items() if key[0] == stage.name}
                if any(name in servables and self._around.is_resident(servables[name].build_id) for name in names):
                    found.append(stage.name)
        return tuple(found)

    def _box_is(self, picture: _Picture) -> bool:
        """Whether catalogue, processors and memory are what the policy was asked about."""
        around = self._around
        if around.machine() != picture.machine:
            return False
        if any(around.catalogue.version != seen.version for seen in picture.seen.values()):
            return False
        tenants = {live.pipeline.tenant for live in self._pipelines.values()} & picture.memory.keys()
        now = {tenant: around.memory_bytes(tenant) for tenant in tenants}
        return not _has_moved(now, {tenant: picture.memory[tenant] for tenant in tenants})

    def _is_as_seen(self, live: Live, picture: _Picture) -> bool:
        """Whether a pipeline and its clients are what the policy was asked about."""
        seen = picture.seen.get(live.pipeline.id)
        return seen is not None and (live.pipeline, tuple(live.clients)) == (seen.pipeline, seen.clients)

    def _has_stages_of(self, live: Live, picture: _Picture) -> bool:
        """Whether an answer can be applied to a pipeline. One for clients that have left meanwhile is: it is for too
        many frames, and the next one follows at once.
        """
        seen = picture.seen.get(live.pipeline.id)
        return seen is not None and live.pipeline == seen.pipeline

    # -- what follows --------------------------------------------------------------------------------------------------

    def _apply(self, picture: _Picture, several: Several) -> None:
        """The plans hold from now on. Of a pipeline that was changed meanwhile its place is kept, for the others were
        planned beside it, and it is planned next.
        """
        if picture.machine != self._machine or self._has_new_load(picture):  # all were planned
            self._load = _load_of(picture.busy)
        self._machine, self._memory = picture.machine, picture.memory
        taken = sum(one.taken for one in self._planned.values())
        for id, made in picture.asked.items():
            live = self._pipelines.get(id)
            served = several.served.get(id)
            if live is None:
                continue
            if not self._has_stages_of(live, picture):
                if served is not None:
                    self._planned[id] = _Planned(picture.seen[id], served.plan.placement)
                continue
            if served is not None:
                plan = self._plan_of(live, made, served, picture)
                is_short = served.is_possible and (plan.degraded or not plan.feasible)
                self._planned[id] = _Planned(picture.seen[id], served.plan.placement, is_short)
                self._put(live, plan)
            elif made.missing:
                self._planned[id] = _Planned(picture.seen[id], ())
                self._put(live, self._no_plan(live, made, picture.seen[id].fps))
            if served is not None or made.missing:
                self._again.discard(id)
                self._around.enacting.put(live.pipeline, live.plan, picture.machine)
        if sum(one.taken for one in self._planned.values()) < taken - FREED_MIN:
            self._plan_short_ones_again(but=several.served.keys())
        self._around.enacting.enact(self._around.clock.now_ns())

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
            self._around.enacting.forget(id)
        for known in (self._windows, self._numbers):
            for id in known.keys() - self._pipelines.keys():
                del known[id]
        if gone:
            self._around.enacting.enact(self._around.clock.now_ns())

    def _plan_of(self, live: Live, made: Asked, served: Served, picture: _Picture) -> PipelinePlan:
        plan = served.plan
        fps = picture.seen[live.pipeline.id].fps
        notes = []
        if made.reserved_ms > 0.0:
            notes.append(f"{made.reserved_ms:.1f} ms of the SLO are for decoding and for items that come at once")
        if served.problem.cost_by is not live.pipeline.cost_by:
            unknown = "watts" if live.pipeline.cost_by is CostBy.ENERGY else "prices"
            notes.append(f"by {served.problem.cost_by}, for the {unknown} of some processor are not known")
        if served.first:
            notes.append("more accurate variants are too slow for the SLO")
        if served.level > served.first:
            notes.append("not all fits: cheaper variants than asked for serve")
        if served.fps < fps * (1.0 - 1e-6):
            count = len(live.clients.served(served.fps))
            notes.append(
                f"not all fits: {served.fps:.4g} of {fps:.4g} frames a second, {count} clients, are planned with"
            )
        return PipelinePlan(
            number=self._number(live),
            feasible=plan.feasible,
            cost=plan.cost,
            latency_ms=None if plan.latency_ms is None else plan.latency_ms + made.reserved_ms,
            stages=stage_plans(made, served.level, plan, picture.machine),
            reason="; ".join([plan.reason, *notes]),
            fps=served.fps,
            wanted_fps=fps,
            degraded=served.level > served.first or served.fps < fps * (1.0 - 1e-6),
            cost_by=served.problem.cost_by,
            takes_ms=takes_ms(served.problem),
        )

    def _no_plan(self, live: Live, made: Asked, fps: float) -> PipelinePlan:
        return PipelinePlan(self._number(live), False, None, None, (), made.missing, fps)

    def _number(self, live: Live) -> int:
        number = self._numbers[live.pipeline.id] = self._numbers.get(live.pipeline.id, 0) + 1
        return number

    def _put(self, live: Live, plan: PipelinePlan) -> None:
        before = live.plan
        live.new_plan(plan)
        if not plan.fps and not plan.stages and (before is None or not before.stages):  # there is nobody to serve
            return
        facts = {"pipeline": live.pipeline.name, "tenant": live.pipeline.tenant, "reason": plan.reason}
        if not plan.feasible and (before is None or before.feasible or before.reason != plan.reason):
            self._around.events.emit("pipeline without a plan", **facts)
        elif plan.feasible and (before is None or not _is_alike(before, plan)):
            self._around.events.emit("pipeline planned", fps=round(plan.fps, 3), degraded=plan.degraded, **facts)

    def _record(self, live: Live, served: Served, outcome: str) -> None:
        pipeline = live.pipeline
        facts = decision_of(
            pipeline.id,
            pipeline.tenant,
            pipeline.application_ids,
            served.problem,
            served.plan,
            self._around.policy_name,
            outcome,
        )
        self._around.decisions.record("pipeline", facts)


def _load_of(busy: Sequence[Existing]) -> dict[str, float]:
    """Workers that are taken, by worker type."""
    found: dict[str, float] = {}
    for one in busy:
        found[one.worker] = found.get(one.worker, 0.0) + sum(part.share for part in one.parts)
    return found


def _has_moved(now: Mapping[str, int], before: Mapping[str, int]) -> bool:
    """Whether some tenant's memory has."""
    return any(abs(now.get(one, 0) - before.get(one, 0)) > CHANGE * before.get(one, 0) for one in {**now, **before})


def _parents(graph: Graph) -> dict[str, str | None]:
    return {name: graph.parents[name] for name in graph.order}


@dataclass(frozen=True, slots=True)
class _Beside:
    """A client that was refused: its pipeline's problem for one frame a second, what others take, the frames that are
    served, and those that it asked for.
    """

    per_frame: AllocationInput
    existing: tuple[Existing, ...]
    served_fps: float
    asked_fps: float


def _lacks(lacking: AllocationInput, beside: _Beside, policy: AllocationPolicy) -> tuple[tuple[str, ...], float]:
    """What there is not enough of for a problem, and for how many frames of a client there would be room."""
    missing = _missing(lacking, policy)
    for part in PARTS:
        problem = at_rate(beside.per_frame, beside.served_fps + part * beside.asked_fps, beside.existing)
        if policy.plan(problem).feasible:
            return missing, part * beside.asked_fps
    return missing, 0.0


def _missing(problem: AllocationInput, policy: AllocationPolicy) -> tuple[str, ...]:
    """What would serve it were there more of it: processors of a kind; or nothing would, for the SLO is too small."""
    endless = tuple(replace(one, available=0 if one.available == 0 else None) for one in problem.workers)
    plan = policy.plan(replace(problem, workers=endless, existing=()))
    if not plan.feasible:
        return ("time",)
    wanted = {row.worker for row in plan.allocations if row.worker != HOST} or {HOST}
    scarce = {one.pool for one in problem.workers if one.name in wanted and one.available is not None}
    return tuple(f"processor {one.name}" for one in problem.workers if one.name in wanted and one.pool in scarce)


def _own_words(served: Served, is_other: bool) -> str:
    """The policy's reason; of another pipeline nothing, which may be another tenant's."""
    return "the processors are taken" if is_other else served.plan.reason


def takes_ms(problem: AllocationInput) -> dict[str, float]:
    """Stage → what an item takes there at least, waits aside."""
    return {
        module.name: min((one.latency_ms for one in module.profiles), default=0.0) * module.ballooning
        for module in problem.modules
    }


def _outcome(served: Served) -> str:
    if not served.plan.feasible:
        return "impossible"
    return "degraded" if served.level > served.first else "planned"


def _is_alike(one: PipelinePlan, two: PipelinePlan) -> bool:
    """Whether both run the stages alike: an event for each change of a rate would be too many."""

    def rows(plan: PipelinePlan) -> list[tuple[str, str, str, int, int]]:
        return [(row.stage, row.worker, row.variant, row.batch, row.concurrency) for row in plan.stages]

    return (one.feasible, one.degraded, rows(one)) == (two.feasible, two.degraded, rows(two))
