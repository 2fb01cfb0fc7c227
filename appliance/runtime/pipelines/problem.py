"""From a pipeline and what was seen of it to problems for a policy of allocation: one for each level of variants, for
one frame a second.

Only what was measured is offered (SC-05): a batch and a number of streams that nobody timed is no choice. What a policy
cannot say is taken off the SLO: decoding, and the wait of a frame's items for one another, which come at once.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from appliance.domain.catalogue import Latency
from appliance.domain.catalogue import Profile as Measured
from appliance.domain.pipeline import Ask, CostBy, Crop, Join, Pick, Pipeline, Stage, StagePlan
from appliance.domain.pipeline_graph import ROOT, Graph
from appliance.domain.runs_at_once import RunsAtOnce
from appliance.policies.allocation.base import (
    Allocation,
    AllocationInput,
    BatchWait,
    Draw,
    Module,
    Profile,
    WorkerType,
)
from appliance.policies.allocation.several import Served
from appliance.policies.selection.kinds import NOTICEABLE
from appliance.runtime.catalogue import Entry
from appliance.runtime.pipelines.accounts import HOST, Tariff
from appliance.runtime.pipelines.offers import Offer, Offers
from appliance.runtime.pipelines.windows import DECODE, Observed

ITEMS_EXPECTED = 4.0
"""Of a crop, before the first frame."""
HOST_MS = 0.3
"""What a CPU stage takes of an item, before the first one."""
LEVELS_MAX = 4
"""Times that a plan may go over to cheaper variants."""
POINTS_TOLD = 4
"""Points without a timed run that a note names; it gives the number of further points."""
SLO_LEFT_MS_MIN = 1e-3
"""A pipeline without any time left is one that nothing serves, not a malformed problem."""


@dataclass(frozen=True, slots=True)
class Group:
    """Processors on the same cores, or one device, as plans see them."""

    name: str
    kinds: tuple[str, ...]
    """That are in service."""
    workers: int
    is_device: bool = False
    """Its workers are streams of one device, not a core each."""
    has_host: bool = False
    """CPU stages run on its cores."""
    speed: float = 1.0
    at_once: RunsAtOnce | None = None
    """Runs at once that an import times there; None: it times none."""


@dataclass(frozen=True, slots=True)
class WorkerOf:
    """What a worker type of a problem is: `group` by its place among them; the kind is `host` for CPU stages."""

    group: int
    kind: str


@dataclass(frozen=True, slots=True)
class Machine:
    """All groups, as worker types."""

    groups: tuple[Group, ...]
    workers: tuple[WorkerType, ...]
    of: Mapping[str, WorkerOf]

    @classmethod
    def made(cls, groups: Sequence[Group], tariff: Tariff, host_threads: int) -> "Machine":
        """A worker type for each kind in each group, one for CPU stages. `host_threads`: these where no group of
        processors has their cores.
        """
        found: dict[str, tuple[WorkerType, WorkerOf]] = {}
        kinds = [kind for group in groups for kind in group.kinds]

        def add(name: str, at: int, kind: str, available: int, pool: str | None) -> None:
            cost = tariff.price_per_hour.get(kind, 0.0)
            found[name] = WorkerType(name, cost, available, pool), WorkerOf(at, kind)

        for at, group in enumerate(groups):
            pool = f"{group.name}-cores" if len(group.kinds) + group.has_host > 1 else None
            available = min(1, group.workers) if group.is_device else group.workers
            for kind in group.kinds:
                add(kind if kinds.count(kind) == 1 else f"{group.name}-{kind}", at, kind, available, pool)
            if group.has_host:
                add(HOST, at, HOST, available, pool)
        if HOST not in found:
            add(HOST, -1, HOST, host_threads, None)
        workers = tuple(worker for worker, _ in found.values())
        return cls(tuple(groups), workers, {name: of for name, (_, of) in found.items()})

    def busy_ms(self, worker: str, spent_ms: Mapping[str, float]) -> dict[str, float]:
        """By worker type, what a run of a network in parts takes, whose most is on `worker`. `spent_ms`: by kind. Kinds
        that share its cores, and those that are not there, count as its own.
        """
        home = self.groups[self.of[worker].group]
        found = {worker: 0.0}
        for kind, ms in spent_ms.items():
            others = [name for name, of in self.of.items() if of.kind == kind and of.group != self.of[worker].group]
            at = worker
            if kind not in home.kinds and others:
                at = min(others, key=lambda name: (-self.groups[self.of[name].group].speed, name))
            found[at] = found.get(at, 0.0) + ms
        return found


@dataclass(frozen=True, slots=True)
class Asked:
    """A pipeline's problems with what is needed to read their answers."""

    levels: tuple[AllocationInput, ...]
    variants: tuple[Mapping[tuple[str, str, int, int], str], ...]
    """By level: (stage, worker, batch, concurrency) → the variant that is meant."""
    items: Mapping[str, float]
    """Items of a frame by stage, as the problems have them."""
    reserved_ms: float
    """Taken off the SLO."""
    missing: str = ""
    """Why nothing can be planned: a stage without a measured variant."""
    too_large: tuple[str, ...] = ()
    """Stages of whose wanted variants none fits into memory beside all else."""
    in_parts: Mapping[tuple[str, str], str] = field(default_factory=dict)
    """(Stage, variant) that serves in parts → the kind of processor that most of it runs on."""
    offers: Mapping[str, Offers] = field(default_factory=dict)
    """By stage, the variants that the problems were made of."""
    groups: tuple[Group, ...] = ()
    """Groups of processors that the problems were made for."""

    def untimed(self) -> str:
        """Return a note that names the points of which no run was timed: points that are no choice because of that, and
        points that count as if fewer runs were under way; empty: there are none (SC-05).
        """
        notes = (
            ("no choice, because no run was timed", self._points(unmeasured)),
            ("counted as if fewer ran at once, because no run was timed", self._points(assumed)),
        )
        return "; ".join(f"{why}: {_some(points)}" for why, points in notes if points)

    def _points(self, points_of: Callable[[Measured, Group, int], list[tuple[int, int]]]) -> list[str]:
        """Return the points of each variant that is offered, in words."""
        return [
            f"{stage} {offer.name} on {measured.kind}: batch {batch} x {level} at once"
            for stage, offers in self.offers.items()
            for offer in offers.all
            for measured in offer.profiles
            for group in self.groups
            if measured.kind in group.kinds
            for batch, level in points_of(measured, group, offer.servable.together_max)
        ]


@dataclass(frozen=True, slots=True)
class Subject:
    """What is planned."""

    pipeline: Pipeline
    graph: Graph
    entries: Mapping[str, Entry]
    """By application id."""
    observed: Observed
    within_ms: float | None = None
    """What a frame may take for who needs it soonest; None: the pipeline's SLO."""


def items_of(pipeline: Pipeline, graph: Graph, seen: Mapping[str, float]) -> dict[str, float]:
    """Items of a frame that each stage takes: as seen, else as expected of what is before it. Of a crop those that it
    cuts from.
    """
    found: dict[str, float] = {}
    made: dict[str, float] = {ROOT: 1.0}
    """Items on each level."""
    for name in graph.order:
        stage = pipeline.stage(name)
        level = graph.levels[name]
        match stage:
            case Crop():
                found[name] = seen.get(name, made[graph.level_parents[name]])
                own = [seen[one] for one in graph.order if one != name and graph.levels[one] == name and one in seen]
                made[name] = max(own, default=found[name] * min(ITEMS_EXPECTED, float(stage.at_most)))
            case Pick():
                found[name] = seen.get(name, made[level])
                made[level] = min(made[level], stage.best * made[graph.level_parents[level]])
            case Join():
                found[name] = seen.get(name, made[level])
            case _:
                found[name] = seen.get(name, min(made[level], float(stage.at_most)))
    return found


def missing_of(offers: Mapping[str, Offers]) -> str:
    """Why nothing can be planned, by stage what is offered; empty: it can."""
    bare = [stage for stage, one in offers.items() if not one.wanted]
    return f"nothing is measured yet that could serve {', '.join(bare)}" if bare else ""


def ballooning_of(stage: Ask, entry: Entry, offers: Sequence[Offer], observed: Observed) -> float:
    """Observed over profiled time of the variant that serves now (SC-20); of inputs of free size of each variant, kind
    and batch that ran of late, like compared with like.
    """
    offered = {offer.name: offer for offer in offers}
    serving = next((one for one in entry.order if one.name in offered), None)
    if serving is None:
        return 1.0
    if not serving.is_of_free_size:
        times = serving.usual_times
        return 1.0 if times is None else max(1e-3, times.ballooning_at(observed.at_ns))
    seen_ms = expected_ms = 0.0
    for (name, ran), took_ms in observed.takes_as_ms.items():
        offer = offered.get(ran.variant) if name == stage.name else None
        own = None if offer is None else offer.profile_of(ran.kind)
        if own is not None:
            seen_ms += took_ms
            expected_ms += _item_ms(own, ran.batch, ran.at_once)
    return max(1e-3, seen_ms / expected_ms) if expected_ms > 0.0 else 1.0


def asked(
    subject: Subject,
    machine: Machine,
    offers: Mapping[str, Offers],
    tariff: Tariff,
) -> Asked:
    """The problems of a pipeline. `offers`: by stage, such as fit into memory together."""
    pipeline, graph, observed = subject.pipeline, subject.graph, subject.observed
    items = items_of(pipeline, graph, observed.items)
    asks = [stage for stage in pipeline.stages if isinstance(stage, Ask)]
    if missing := missing_of(offers):
        return Asked((), (), items, 0.0, missing)
    deepest = min(LEVELS_MAX, max((len(offers[stage.name].cheaper) for stage in asks), default=0))
    levels: list[AllocationInput] = []
    variants: list[Mapping[tuple[str, str, int, int], str]] = []
    reserved_ms = 0.0
    for level in range(deepest + 1):
        offered = {stage.name: offers[stage.name].upto(level) for stage in asks}
        made = _Level(subject, machine, offered, tariff, items)
        levels.append(made.problem())
        variants.append(made.variants)
        reserved_ms = reserved_ms or made.reserved_ms
    in_parts = {
        (stage.name, offer.name): offer.serves_on
        for stage in asks
        for offer in offers[stage.name].all
        if offer.is_in_parts
    }
    return Asked(
        tuple(levels), tuple(variants), items, reserved_ms, in_parts=in_parts, offers=offers, groups=machine.groups
    )


class _Level:
    """A problem with one choice of variants. `variants` as of `Asked`."""

    def __init__(
        self,
        subject: Subject,
        machine: Machine,
        offered: Mapping[str, Sequence[Offer]],
        tariff: Tariff,
        items: Mapping[str, float],
    ) -> None:
        self._subject, self._machine, self._offered, self._tariff, self._items = (
            subject,
            machine,
            offered,
            tariff,
            items,
        )
        self.variants: dict[tuple[str, str, int, int], str] = {}
        self.reserved_ms = 0.0

    def problem(self) -> AllocationInput:
        pipeline, graph = self._subject.pipeline, self._subject.graph
        modules = tuple(self._module(stage) for stage in pipeline.stages)
        self.reserved_ms = self._reserved_ms(modules)
        kinds = {of.kind for of in self._machine.of.values()}
        cost_by = pipeline.cost_by if self._tariff.knows(pipeline.cost_by, kinds) else CostBy.SECONDS
        within_ms = pipeline.latency_slo_ms
        if self._subject.within_ms is not None:
            within_ms = min(within_ms, self._subject.within_ms)
        return AllocationInput(
            slo_ms=max(SLO_LEFT_MS_MIN, within_ms - self.reserved_ms),
            workers=self._machine.workers,
            modules=modules,
            edges=tuple(sorted(set(graph.edges))),
            cost_by=cost_by,
            batch_wait=BatchWait.REST,
        )

    def _module(self, stage: Stage) -> Module:
        rate = self._items[stage.name]
        if not isinstance(stage, Ask):
            took_ms = self._subject.observed.takes_ms.get(stage.name, HOST_MS)
            return Module(stage.name, rate, (Profile(HOST, 1, 1, max(took_ms, 1e-3), power_w=self._watts(HOST)),))
        entry, observed = self._subject.entries[stage.application_id], self._subject.observed
        ballooning = ballooning_of(stage, entry, self._offered[stage.name], observed)
        return Module(stage.name, rate, tuple(self._profiles(stage)), ballooning)

    def _profiles(self, stage: Ask) -> list[Profile]:
        """Of each configuration that of the variant that is quickest there. A variant that is not loaded, where another
        one is, has to be noticeably quicker (SC-22), and so has a kind on which a variant does not serve now: going
        over to it costs a load. What a network in parts takes is of the processors that are there: the speed of its
        kind's is in it; and while one kind is at it, the others are free.
        """
        best: dict[tuple[str, int, int], tuple[float, str, Offer]] = {}
        has_loaded = any(offer.is_loaded for offer in self._offered[stage.name])
        for offer in self._offered[stage.name]:
            for measured in offer.profiles:
                needs_load = measured.kind != offer.serves_on or (has_loaded and not offer.is_loaded)
                factor = 1.0 + NOTICEABLE if needs_load else 1.0
                for worker, of in self._machine.of.items():
                    if of.kind != measured.kind:
                        continue
                    group = self._machine.groups[of.group]
                    for row in rows_of(measured, group, offer.servable.together_max):
                        point = worker, row.batch, row.concurrency
                        took_ms = factor * row.p50_ms / (1.0 if offer.is_in_parts else group.speed)
                        if point not in best or (took_ms, offer.name) < best[point][:2]:
                            best[point] = took_ms, offer.name, offer
        for point, (_ms, name, _offer) in best.items():
            self.variants[stage.name, *point] = name
        return [self._profile(*point, best[point][0], best[point][2]) for point in sorted(best)]

    def _profile(self, worker: str, batch: int, streams: int, took_ms: float, offer: Offer) -> Profile:
        watts = self._watts(self._machine.of[worker].kind)
        if offer.servable.parts is None:
            return Profile(worker, batch, streams, took_ms, power_w=watts)
        busy_ms = self._machine.busy_ms(worker, offer.servable.parts.spent_ms[batch])
        most_ms = max(busy_ms.values())
        draws = tuple(Draw(name, ms / most_ms) for name, ms in sorted(busy_ms.items()) if name != worker and ms > 0.0)
        drawn_w = [self._watts(self._machine.of[one.worker].kind) for one in draws]
        power_w = None
        if watts is not None and None not in drawn_w:
            power_w = watts + sum(one.share * (own or 0.0) for one, own in zip(draws, drawn_w, strict=True))
        return Profile(worker, batch, streams, took_ms, 1000.0 * batch * streams / most_ms, power_w, draws)

    def _reserved_ms(self, modules: Sequence[Module]) -> float:
        """Decoding, and on the longest path what the last item of a frame waits for the others of it."""
        decode_ms = self._subject.observed.takes_ms.get(DECODE, 0.0)
        waits = {
            module.name: max(0.0, _together(module, self._machine) - 1.0) * _quickest_ms(module) for module in modules
        }
        graph = self._subject.graph
        behind = graph.longest_behind(waits)
        return decode_ms + max((waits[name] + behind[name] for name in graph.order), default=0.0)

    def _watts(self, kind: str) -> float | None:
        known = self._tariff.watts(kind)
        return None if known is None else known.watts


def _together(module: Module, machine: Machine) -> float:
    """Items of a frame that come to a stage at once, by worker that may take them."""
    able = {machine.of[profile.worker].group for profile in module.profiles}
    workers = sum(machine.groups[at].workers for at in able if at >= 0)
    return module.rate_rps / max(1, workers)


def _item_ms(measured: Measured, batch: int, at_once: int) -> float:
    """An item's part of a run of so many, as measured: of the nearest batch that is no smaller, else the largest; of as
    many runs at once, else of the most that were measured below.
    """
    levels = {row.concurrency for row in measured.latencies}
    level = max((one for one in levels if one <= at_once), default=min(levels))
    rows = sorted((row for row in measured.latencies if row.concurrency == level), key=lambda one: one.batch)
    row = next((one for one in rows if one.batch >= batch), rows[-1])
    return row.p50_ms / min(batch, row.batch)


def _quickest_ms(module: Module) -> float:
    """Per item, whatever the batch."""
    return min((p.latency_ms / (p.batch * p.concurrency) for p in module.profiles), default=0.0) * module.ballooning


def rows_of(measured: Measured, group: Group, together_max: int) -> list[Latency]:
    """Return what was measured, as instances of the group's workers (SC-05, SC-06).

    On cores an instance is one worker. Its run takes what it took with the most runs at once that are known of any
    batch (`_on_cores`); a batch that lacks this time is no choice. Workers beyond those that were measured count as if
    they brought nothing. On a device an instance is all of it, at as many streams as were measured. A number of streams
    that brings no more throughput than fewer do is over-subscription, and no choice.
    """
    if not group.is_device:
        found = {row.batch: row for row in _on_cores(measured, group) if row.batch <= max(1, together_max)}
        return [Latency(row.batch, row.p50_ms, row.p99_ms, 1) for _, row in sorted(found.items())]
    rows = [row for row in measured.latencies if row.batch <= max(1, together_max)]
    kept: list[Latency] = []
    most: dict[int, float] = {}
    for row in sorted(rows, key=lambda one: (one.batch, one.concurrency)):
        throughput = row.batch * row.concurrency / row.p50_ms
        if row.concurrency <= group.workers and throughput > most.get(row.batch, 0.0):
            most[row.batch] = throughput
            kept.append(row)
    return kept


def _on_cores(measured: Measured, group: Group) -> list[Latency]:
    """Return the rows of the most runs at once that are known of those that a group of cores can have under way: rows
    that were measured, and rows that are assumed from fewer runs at once.
    """
    rows = measured.latencies if group.at_once is None else group.at_once.filled(measured.latencies)
    level = max((row.concurrency for row in rows if row.concurrency <= group.workers), default=0)
    return [row for row in rows if row.concurrency == level]


def unmeasured(measured: Measured, group: Group, together_max: int) -> list[tuple[int, int]]:
    """Return the points, as (batch, runs at once), of which no run was timed, so that they are no choice (SC-05).

    They are of batches up to the largest that requests may share: on cores at the number of runs that counts there, on
    a device at each number that was timed of some batch, or is timed by an import today.
    """
    rows = [row for row in measured.latencies if row.batch <= max(1, together_max)]
    known = {(row.batch, row.concurrency) for row in rows if row.concurrency <= group.workers}
    levels = {level for _, level in known}
    if not group.is_device:
        core_rows = _on_cores(measured, group)
        known |= {(row.batch, row.concurrency) for row in core_rows}
        levels = {row.concurrency for row in core_rows}
    elif group.at_once is not None:
        levels |= set(group.at_once.missing(measured.latencies))
    batches = [1 << at for at in range(max(1, together_max).bit_length())]
    return [(batch, level) for batch in batches for level in sorted(levels) if (batch, level) not in known]


def assumed(measured: Measured, group: Group, together_max: int) -> list[tuple[int, int]]:
    """Return the points, as (batch, runs at once), whose times are assumed from fewer runs at once: none was timed."""
    rows = [] if group.is_device else _on_cores(measured, group)
    fitting = [row for row in rows if row.batch <= max(1, together_max)]
    return [(row.batch, row.concurrency) for row in fitting if row not in measured.latencies]


def _some(points: Sequence[str]) -> str:
    """Return the first points, and the number of the others."""
    more = f" and {len(points) - POINTS_TOLD} more" if len(points) > POINTS_TOLD else ""
    return f"{', '.join(points[:POINTS_TOLD])}{more}"


def stage_plans(made: Asked, served: Served) -> tuple[StagePlan, ...]:
    """How each stage is run."""
    found, level = [], served.level
    draws = {
        (module.name, one.worker, one.batch, one.concurrency): one.draws
        for module in made.levels[level].modules
        for one in module.profiles
    }
    for row in served.plan.allocations:
        variant = made.variants[level].get((row.module, row.worker, row.batch, row.concurrency), "")
        waits_ms = _wait_ms(row) if served.waits else 0.0
        found.append(
            StagePlan(
                stage=row.module,
                worker=row.worker,
                variant=variant,
                batch=row.batch,
                concurrency=row.concurrency,
                rate_rps=row.rate_rps,
                instances=row.instances,
                latency_ms=row.worst_latency_ms,
                wait_ms=waits_ms,
                drawn={
                    one.worker: row.instances * one.share
                    for one in draws[row.module, row.worker, row.batch, row.concurrency]
                },
            )
        )
    return tuple(found)


def _wait_ms(row: Allocation) -> float:
    """How long the first item of a batch waits for the others: W less the run."""
    each = row.rate_rps / max(1.0, float(round(row.instances)))
    return 1000.0 * (row.batch - 1) / each if each > 0.0 else 0.0


def takes_ms(problem: AllocationInput) -> dict[str, float]:
    """Stage → what an item takes there at least, waits aside."""
    return {
        module.name: min((one.latency_ms for one in module.profiles), default=0.0) * module.ballooning
        for module in problem.modules
    }
