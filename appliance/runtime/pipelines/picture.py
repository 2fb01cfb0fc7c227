"""What the pipelines and the box around them are, as a round of planning finds them. Event-loop thread only."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from appliance.clock import NS_PER_MS, others_first
from appliance.domain.errors import ApplianceError
from appliance.domain.pipeline import Ask, Pipeline, PipelineClient
from appliance.policies.allocation.base import Existing, Part
from appliance.runtime.catalogue import Catalogue, Entry
from appliance.runtime.pipelines.clients import least_of
from appliance.runtime.pipelines.environment import PipelineEnvironment, PlannedPipeline
from appliance.runtime.pipelines.load import SingleCallLoad, parts_of
from appliance.runtime.pipelines.offers import Offers, Place, Room, fitting, offers_of, without_room
from appliance.runtime.pipelines.problem import (
    Asked,
    Machine,
    Subject,
    asked,
    ballooning_of,
    items_of,
    missing_of,
)
from appliance.runtime.pipelines.windows import CHANGE, FrameWindows, Observed
from appliance.runtime.servable import Servable

STANDS_NS = 200 * NS_PER_MS
"""So long the variants that a pipeline is offered stand, while it and what it asks are what they were, and its
problems while nothing new was seen of its items: who comes and goes changes neither, and both together take most of a
millisecond of the event loop."""


ROUNDED = 1.001
"""Times an error, so that what is as much, but for rounding, is no more."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What a pipeline was planned by. Another one means that it is planned anew."""

    pipeline: Pipeline
    entries: tuple[Entry | None, ...]
    """As `entries_of` gives them."""
    clients: tuple[PipelineClient, ...]
    fps: float
    items: Mapping[str, float]
    ballooning: Mapping[str, float]
    least_change: float
    offered: Mapping[str, tuple[str, ...]]
    """Stage that asks → the variants that it may be served with."""
    items_error: Mapping[str, float] = field(default_factory=dict)
    """Of `items`: a change of no more may be that of a single frame (SC-18)."""

    def change_since(self, then: "Seen") -> str:
        """What calls for another plan than that made by what was seen `then`, for a person; empty: nothing does
        (SC-17).
        """
        if self.pipeline != then.pipeline:
            return "it was changed"
        if not are_same(self.entries, then.entries):
            return "applications that it asks have changed"
        if self.clients != then.clients:
            return f"clients have joined or left: {_named(then.clients)} before, {_named(self.clients)} now"
        if self.offered != then.offered:
            return "other variants may serve"
        if not (self.fps or then.fps):  # nothing is served, whatever it would take
            return ""
        least = max(CHANGE, self.least_change)
        figures = [("frames a second", self.fps, then.fps, 0.0)]
        figures += [
            (f"items of a frame at {at}", self.items.get(at, 0.0), value, ROUNDED * self.items_error.get(at, 0.0))
            for at, value in then.items.items()
        ]
        figures += [
            (f"runs of {at}, times as long as measured", self.ballooning.get(at, 1.0), value, 0.0)
            for at, value in then.ballooning.items()
        ]
        moved = (
            f"{what}: {before:.3g} before, {now:.3g} now"
            for what, now, before, error in figures
            if (now or before) and abs(now - before) > max(error, least * max(before, 1e-9))
        )
        return next(moved, "")

    def has_other_offers(self, then: "Seen") -> bool:
        """Whether other variants may serve it than `then`, though neither it nor what it asks was changed."""
        is_same = self.pipeline == then.pipeline and are_same(self.entries, then.entries)
        return is_same and self.offered != then.offered


def entries_of(catalogue: Catalogue, pipeline: Pipeline) -> tuple[Entry | None, ...]:
    """What answers at its stages that ask, in their order; None: nothing does now."""
    found: list[Entry | None] = []
    for stage in pipeline.stages:
        if isinstance(stage, Ask):
            try:
                found.append(catalogue.entry_for(pipeline.tenant, stage.application_id))
            except ApplianceError:
                found.append(None)
    return tuple(found)


def are_same(one: Sequence[Entry | None], other: Sequence[Entry | None]) -> bool:
    """Whether nothing has changed between two looks: with each change of what it is made of an entry is another one."""
    return len(one) == len(other) and all(a is b for a, b in zip(one, other, strict=True))


def _named(clients: Sequence[PipelineClient]) -> str:
    return f"{len(clients)} of {sum(one.fps for one in clients):.4g} frames a second"


@dataclass(frozen=True, slots=True)
class Picture:
    """All that a round is asked about."""

    machine: Machine
    memory: Mapping[str, int]
    weights: Mapping[str, float]
    """Tenant that has pipelines → what it weighs on processors."""
    seen: Mapping[str, Seen]
    missing: Mapping[str, str]
    """Why nothing can be planned for a pipeline; empty: it can."""
    without_room: Collection[str]
    """Pipelines of which that is because memory has no room for them."""
    asked: Mapping[str, Asked]
    """Made for those pipelines of which somebody wants to know them."""
    busy: tuple[Existing, ...]


@dataclass(slots=True)
class _Looked:
    """A pipeline as it was found, before problems are made of it."""

    live: PlannedPipeline
    pipeline: Pipeline
    at_stages: tuple[Entry | None, ...]
    clients: tuple[PipelineClient, ...]
    clients_fps: float
    observed: Observed
    at_ns: int
    """When its variants were looked at."""
    is_used: bool = False
    """Somebody has joined, or frames come."""
    within_ms: float | None = None
    """As `Clients.within_ms`."""
    entries: dict[str, Entry] = field(default_factory=dict)
    """By application."""
    offers: dict[str, Offers] = field(default_factory=dict)
    fitting: dict[str, Offers] = field(default_factory=dict)
    """Of these what fits into memory."""
    no_room: str = ""
    """Why memory has none for its smallest variants; empty: it has some."""
    missing: str = ""
    asked: Asked | None = None
    """None: its problems have yet to be made."""

    def is_joined_by(self, client: PipelineClient) -> None:
        """It is planned as if a client were there."""
        self.is_used = True
        within_ms = least_of((self.within_ms, client.within_ms))
        if within_ms != self.within_ms:
            self.within_ms, self.asked = within_ms, None

    def is_served(self) -> bool:
        """Whether it has a plan that holds what was promised."""
        return self.live.plan is not None and self.live.plan.feasible

    def why_missing(self) -> str:
        """Why nothing can be planned for it; empty: it can."""
        return self.missing or self.no_room or missing_of(self.fitting)

    def too_large(self) -> Iterator[str]:
        """Stages of whose wanted variants none fits."""
        for stage, offers in self.offers.items():
            fitting = {one.name for one in self.fitting[stage].wanted}
            if offers.wanted and fitting.isdisjoint(one.name for one in offers.wanted):
                yield stage

    def ask_of(self, stage: str) -> Ask:
        found = self.pipeline.stage(stage)
        assert isinstance(found, Ask), "nothing else is offered variants"
        return found


class _Problems(Mapping[str, Asked]):
    """The problems of pipelines as they were found, made where they are asked for: they take most of the event loop's
    time of a look, and those of a pipeline of which nothing has changed are of no use.
    """

    def __init__(self, found: Mapping[str, _Looked], make: Callable[[_Looked], Asked]) -> None:
        self._found, self._make = found, make

    def __getitem__(self, id: str) -> Asked:
        looked = self._found[id]
        if looked.asked is None:
            looked.asked = self._make(looked)
        return looked.asked

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)


class Pictures:
    """Makes them; what was seen of each pipeline before is kept here."""

    def __init__(self, environment: PipelineEnvironment, pipelines: Mapping[str, PlannedPipeline]) -> None:
        """`pipelines` by id, kept by the registry."""
        self._environment = environment
        self._pipelines = pipelines
        self._single_calls = SingleCallLoad()
        self._windows: dict[str, FrameWindows] = {}
        self._machine: Machine | None = None
        self._last: dict[str, _Looked] = {}
        """As each pipeline was found last, on that machine."""

    async def take(self, joining: PipelineClient | None = None) -> Picture:
        """As they are now; the one that a client is `joining` as if it had. Between two pipelines others have their
        turn, so the last ones are seen a little later than the first; one that goes meanwhile is not in it.
        """
        environment = self._environment
        now_ns = environment.clock.now_ns()
        machine = environment.machine()
        if machine != self._machine:
            self._machine = machine
            self._last.clear()
        found: dict[str, _Looked] = {}
        for id in list(self._pipelines):
            live = self._pipelines.get(id)
            if live is None:
                continue
            found[id] = self._as_before(live, now_ns) or self._looked(live)
            if joining is not None and joining.pipeline_id == id:
                found[id].is_joined_by(joining)
            await others_first()
        memory = {tenant: environment.memory_bytes(tenant, ()) for tenant in _tenants(found)}
        await self._fit(found)
        seen: dict[str, Seen] = {}
        missing: dict[str, str] = {}
        for id, looked in found.items():
            self._last[id] = looked
            missing[id] = looked.why_missing()
            seen[id] = self._seen(looked, missing[id])
            await others_first()
        for id in found.keys() - self._pipelines.keys():
            del found[id], missing[id], seen[id]
        problems = _Problems(found, partial(self._asked, machine))
        self._single_calls.observe(now_ns, environment.busy_s())
        using = {looked.pipeline.tenant for looked in found.values() if looked.is_used}
        weights = {tenant: environment.catalogue.processor_weight(tenant) for tenant in memory}
        without_room = frozenset(id for id, looked in found.items() if looked.no_room)
        return Picture(machine, memory, weights, seen, missing, without_room, problems, self._busy(machine, using))

    def needed(self) -> list[Servable]:
        """Return the smallest variants that the stages of pipelines can be served with that clients have joined."""
        offered = [
            offers.all
            for id, looked in self._last.items()
            if id in self._pipelines and len(self._pipelines[id].clients)
            for offers in looked.offers.values()
        ]
        least = (min((one.servable for one in some), key=lambda one: one.need_bytes) for some in offered if some)
        return list({one.build_id: one for one in least}.values())

    def forget_gone(self) -> None:
        """Of pipelines that are no more nothing is kept."""
        for kept in (self._windows, self._last):
            for id in kept.keys() - self._pipelines.keys():
                del kept[id]

    def _observed(self, live: PlannedPipeline, now_ns: int) -> Observed:
        windows, totals = self._windows.get(live.pipeline.id), live.totals()
        if windows is None or not windows.is_of(live.graph, totals):
            windows = self._windows[live.pipeline.id] = FrameWindows(
                now_ns, totals, live.graph, self._environment.window_ns
            )
        return windows.look(now_ns, totals)

    def _as_before(self, live: PlannedPipeline, now_ns: int) -> "_Looked | None":
        """As it was found a moment ago, with its clients and figures as they are now; None: that was too long ago, or
        it is not what it was.
        """
        last = self._last.get(live.pipeline.id)
        if last is None or last.pipeline is not live.pipeline or now_ns - last.at_ns >= STANDS_NS:
            return None
        if not are_same(last.at_stages, entries_of(self._environment.catalogue, live.pipeline)):
            return None
        looked = replace(last, clients=tuple(live.clients), clients_fps=live.clients.fps)
        looked.observed = self._observed(live, now_ns)
        looked.is_used = bool(looked.clients) or looked.observed.fps > 0.0
        looked.within_ms = live.clients.within_ms
        if looked.within_ms != last.within_ms or _of_items(looked.observed) != _of_items(last.observed):
            looked.asked = None
        return looked

    def _looked(self, live: PlannedPipeline) -> "_Looked":
        now_ns = self._environment.clock.now_ns()
        entries, clients = entries_of(self._environment.catalogue, live.pipeline), live.clients
        observed = self._observed(live, now_ns)
        looked = _Looked(live, live.pipeline, entries, tuple(clients), clients.fps, observed, now_ns)
        looked.is_used = bool(looked.clients) or observed.fps > 0.0
        looked.within_ms = clients.within_ms
        for stage in live.pipeline.stages:
            if not isinstance(stage, Ask):
                continue
            try:
                entry = self._environment.catalogue.entry_for(live.pipeline.tenant, stage.application_id)
            except ApplianceError as error:
                looked.missing = f"{stage.name}: {error}"
                break
            looked.entries[stage.application_id] = entry
            environment = self._environment
            looked.offers[stage.name] = offers_of(
                stage, entry, environment.catalogue.able_kinds, environment.is_resident
            )
        return looked

    async def _fit(self, found: Mapping[str, "_Looked"]) -> None:
        """What is offered fits into memory: what those in use are offered together, that of each other one by itself,
        for nobody knows yet beside what it would be. Where that is too much, nothing is offered to those that come
        last: who has a plan comes before who has none.
        """
        environment = self._environment
        offers: dict[Place, Offers] = {}
        applications: dict[Place, str] = {}
        used: dict[str, list[Place]] = {}
        rooms: list[Room] = []
        for id, looked in found.items():
            own = [(id, stage) for stage in looked.offers]
            offers.update(((id, stage), one) for stage, one in looked.offers.items())
            applications.update(((id, stage), looked.ask_of(stage).application_id) for stage in looked.offers)
            tenant = looked.pipeline.tenant
            if looked.is_used:
                used.setdefault(tenant, []).extend(own)
            else:
                rooms.append(Room(own, environment.memory_bytes(tenant, _builds(own, offers))))
            await others_first()
        rooms += [Room(own, environment.memory_bytes(tenant, _builds(own, offers))) for tenant, own in used.items()]
        of_all = [place for own in used.values() for place in own]
        rooms.append(Room(of_all, environment.room_bytes(_builds(of_all, offers))))
        fit = await fitting(offers, applications, rooms)
        planned_first = sorted(found, key=lambda id: not found[id].is_served())
        without = await without_room(fit, applications, rooms, planned_first)
        no_room = f"memory has no room for its smallest variants together{environment.held_beside()}"
        found_offers: dict[str, dict[str, Offers]] = {id: {} for id in found}
        for (id, stage), one in fit.items():
            found_offers[id][stage] = Offers() if id in without else one
        for id, looked in found.items():
            if looked.fitting != found_offers[id]:
                looked.fitting, looked.asked = found_offers[id], None
            looked.no_room = no_room if id in without else ""

    def _asked(self, machine: Machine, looked: _Looked) -> Asked:
        if missing := looked.why_missing():
            return Asked((), (), {}, 0.0, missing)
        subject = Subject(looked.pipeline, looked.live.graph, looked.entries, looked.observed, looked.within_ms)
        made = asked(subject, machine, looked.fitting, self._environment.tariff)
        return replace(made, too_large=tuple(looked.too_large()))

    @staticmethod
    def _seen(looked: _Looked, missing: str) -> Seen:
        observed = looked.observed
        alone_fps = max(0.0, observed.fps - observed.joined_fps)
        items: Mapping[str, float] = {}
        if not looked.missing:
            items = items_of(looked.pipeline, looked.live.graph, observed.items)
        ballooning: dict[str, float] = {}
        for stage, own in () if missing else looked.fitting.items():
            ask = looked.ask_of(stage)
            ballooning[stage] = ballooning_of(ask, looked.entries[ask.application_id], own.wanted, observed)
        return Seen(
            looked.pipeline,
            looked.at_stages,
            looked.clients,
            looked.clients_fps + alone_fps,
            items,
            ballooning,
            observed.least_change,
            {stage: tuple(one.name for one in own.all) for stage, own in looked.fitting.items()},
            observed.items_error,
        )

    def _busy(self, machine: Machine, using: Collection[str]) -> tuple[Existing, ...]:
        """What single calls take, from the last worker of each group on; of each tenant no more than its part, by
        weight, among those that call and those that are `using` pipelines.
        """
        weight_of = self._environment.catalogue.processor_weight
        parts = parts_of({tenant: weight_of(tenant) for tenant in {*self._single_calls.tenants, *using}})
        found: list[Existing] = []
        for at, group in enumerate(machine.groups):
            worker = next((name for name, of in machine.of.items() if of.group == at), None)
            share = self._single_calls.share(at, group.workers, parts)
            workers = 1 if group.is_device else group.workers
            left = share * workers
            for index in range(workers - 1, -1, -1):
                part = min(1.0, left)
                if worker is None or part < 0.01:
                    break
                found.append(Existing(worker, index, (Part("requests", part),)))
                left -= part
        return tuple(found)


def _tenants(found: Mapping[str, _Looked]) -> set[str]:
    """That have pipelines."""
    return {looked.pipeline.tenant for looked in found.values()}


def _builds(places: Iterable[Place], offers: Mapping[Place, Offers]) -> set[str]:
    """All that are offered there."""
    return {offer.servable.build_id for place in places for offer in offers[place].all}


def _of_items(observed: Observed) -> tuple[object, ...]:
    """What problems are made of, of what was seen."""
    return observed.items, observed.takes_ms, observed.takes_as_ms


def load_of(busy: Sequence[Existing]) -> dict[str, float]:
    """Workers that are taken, by worker type."""
    found: dict[str, float] = {}
    for one in busy:
        found[one.worker] = found.get(one.worker, 0.0) + sum(part.share for part in one.parts)
    return found


def have_other_weights(now: Mapping[str, float], before: Mapping[str, float]) -> bool:
    """Whether some tenant weighs another than before, of those that were there."""
    return any(before.get(tenant, weight) != weight for tenant, weight in now.items())


def has_moved(now: Mapping[str, int], before: Mapping[str, int]) -> bool:
    """Whether some tenant's memory has."""
    return any(abs(now.get(one, 0) - before.get(one, 0)) > CHANGE * before.get(one, 0) for one in {**now, **before})
