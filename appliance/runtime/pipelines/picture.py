"""What the pipelines and the box around them are, as a round of planning finds them. Event-loop thread only."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from appliance.domain.errors import ApplianceError
from appliance.domain.pipeline import Ask, Pipeline, PipelineClient
from appliance.policies.allocation.base import Existing, Part
from appliance.runtime.catalogue import Entry
from appliance.runtime.pipelines.around import Around, Live
from appliance.runtime.pipelines.load import SingleLoad
from appliance.runtime.pipelines.problem import Asked, Machine, Offer, Subject, asked, offers_of
from appliance.runtime.pipelines.windows import CHANGE, FrameWindows, Observed
from appliance.runtime.servable import Servable


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


@dataclass(frozen=True, slots=True)
class Picture:
    """All that a round is asked about."""

    machine: Machine
    memory: Mapping[str, int]
    seen: Mapping[str, Seen]
    asked: Mapping[str, Asked]
    busy: tuple[Existing, ...]


class Pictures:
    """Makes them; what was seen of each pipeline before is kept here."""

    def __init__(self, around: Around, pipelines: Mapping[str, Live]) -> None:
        """`pipelines` by id, kept by the registry."""
        self._around = around
        self._pipelines = pipelines
        self._single = SingleLoad()
        self._windows: dict[str, FrameWindows] = {}

    async def take(self) -> Picture:
        """As they are now. Between two pipelines others have their turn, so the last ones are seen a little later than
        the first; one that goes meanwhile is not in it.
        """
        around = self._around
        now_ns = around.clock.now_ns()
        machine = around.machine()
        memory: dict[str, int] = {}
        seen: dict[str, Seen] = {}
        made: dict[str, Asked] = {}
        for id in list(self._pipelines):
            live = self._pipelines.get(id)
            if live is None:
                continue
            tenant = live.pipeline.tenant
            if tenant not in memory:
                memory[tenant] = around.memory_bytes(tenant)
            observed = self._observed(live, around.clock.now_ns())
            made[id] = self._asked(live, machine, observed, memory)
            seen[id] = self._seen(live, observed, made[id])
            await around.others_first()
        gone = seen.keys() - self._pipelines.keys()
        for id in gone:
            del seen[id], made[id]
        self._single.observe(now_ns, around.busy_s())
        return Picture(machine, memory, seen, made, self._busy(machine))

    def forget_gone(self) -> None:
        """Of pipelines that are no more nothing is kept."""
        for id in self._windows.keys() - self._pipelines.keys():
            del self._windows[id]

    def _observed(self, live: Live, now_ns: int) -> Observed:
        windows = self._windows.get(live.pipeline.id)
        if windows is None or not windows.is_of(live.graph):
            windows = self._windows[live.pipeline.id] = FrameWindows(now_ns, live.totals(), live.graph)
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


def load_of(busy: Sequence[Existing]) -> dict[str, float]:
    """Workers that are taken, by worker type."""
    found: dict[str, float] = {}
    for one in busy:
        found[one.worker] = found.get(one.worker, 0.0) + sum(part.share for part in one.parts)
    return found


def has_moved(now: Mapping[str, int], before: Mapping[str, int]) -> bool:
    """Whether some tenant's memory has."""
    return any(abs(now.get(one, 0) - before.get(one, 0)) > CHANGE * before.get(one, 0) for one in {**now, **before})
