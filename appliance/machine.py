"""The machine that a box runs on: its processors, guards and sensors, as the settings want them, and what the other
parts do when processors come and go.
"""

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from appliance.clock import NS_PER_S, Clock
from appliance.domain.hardware import CPU_KINDS, EMULATED, ProcessorDescription, ProcessorStatus
from appliance.domain.runs_at_once import RunsAtOnce
from appliance.domain.sensors import Quantity, Sensed
from appliance.domain.states import ProcessorState
from appliance.modelstore.importing.prepared import Builds
from appliance.modelstore.store.probes import PassedProbes
from appliance.resources.cores import Cores, usable_cores
from appliance.resources.memory import MemoryLimits
from appliance.runtime.assembly import RuntimeParts
from appliance.runtime.pipelines.accounts import HOST, Tariff, Watts
from appliance.runtime.processors import (
    KINDS,
    PROCESSORS,
    check_apart,
    check_cores,
    check_memory,
    check_processors,
    check_runtime,
)
from appliance.runtime.processors.cluster import Cluster
from appliance.runtime.processors.cores import mean_speed, sorts, speeds
from appliance.runtime.processors.cpu.session import OnnxProcessor
from appliance.runtime.processors.group import OnKind, OwnCores, ProcessorGroup
from appliance.runtime.processors.guard.processor import GuardedProcessor, GuardOptions
from appliance.runtime.processors.member import Member
from appliance.runtime.processors.monitor import ProcessorMonitor
from appliance.runtime.processors.probe import ChildProbe
from appliance.runtime.processors.throttling import Throttling
from appliance.runtime.sensors.jtop import JtopSensors
from appliance.runtime.sensors.nvml import NvmlSensors
from appliance.runtime.sensors.sensors import Sensors
from appliance.runtime.sensors.source import Source
from appliance.runtime.sensors.sysfs import SysfsSensors
from appliance.runtime.telemetry import Telemetry
from appliance.settings import ProcessorSettings, SensorSettings, Settings

Statuses = Callable[[], tuple[ProcessorStatus, ...]]
STEPPED = tuple(name for name, kind in KINDS.items() if kind.compiles_sizes)
"""Kinds of processors whose first run of a size is slow."""


class Machine:
    """`processor` is all of them behind one port, in the service and in guards; to be made before any thread."""

    def __init__(self, settings: Settings, clock: Clock, cores: Cores | None = None) -> None:
        """`cores`: those that the box may have; None: as this process is limited.

        Raises: RuntimeError naming the key of the settings that is wrong.
        """
        self._settings = settings
        self._clock = clock
        self.memory = MemoryLimits()
        self.cores = cores or usable_cores()
        self._group, self.members, self._clusters = _processors(settings, clock, self.cores)
        self.processor = _guarded(self._group, settings, clock)
        self.descriptions = tuple(replace(one, at_once=_at_once(one)) for one in self._group.describe_all())
        """One of each kind, the first one first."""
        self._throttling = Throttling({kind: known.device for kind, known in KINDS.items()})
        described = {one.name: one for one in (*self._group.on_cores, *self.descriptions)}
        self.groups = [
            replace(
                one,
                runs=self.processor.runs_of(at, one.runs),
                stage=self.processor.staging(one.stage),
                is_throttled=self._throttling.of(described[one.name]),
                at_once=next((own.at_once for own in self.descriptions if own.name == one.name), None),
            )
            for at, one in enumerate(self._group.groups())
        ]
        """Who takes runs at the same time."""

    @property
    def guard_bytes(self) -> Mapping[str, int]:
        """Kind that guards compute on → what such a process takes by itself, about."""
        needed = {one.kind: KINDS[one.kind].guard for one in self.descriptions}
        return {kind: guard.base_bytes for kind, guard in needed.items() if guard is not None}

    @property
    def is_emulated(self) -> bool:
        """Whether runs take the time of a processor that is not there."""
        return self.descriptions[0].kind == EMULATED

    @property
    def copies(self) -> Mapping[str, int]:
        """Kind → how often a build of it is in memory."""
        return self._group.copies

    def monitor(self, scratch: Path, passed: PassedProbes) -> ProcessorMonitor:
        """Who has the processors probed that may come and go."""
        cores = partial(os.sched_getaffinity, 0)
        return ProcessorMonitor(self._clock, [*self.members, *self._clusters], ChildProbe(scratch), passed, cores)

    def watch(self, core: RuntimeParts, builds: Builds, telemetry: Telemetry) -> None:
        """Kinds beside the first one, and processors beside the first of its kind, may come and go: from now on the
        parts follow.
        """
        for member in (*self.members, *self._clusters):
            member.rest_s = partial(_rest_s, core, self._clock)
            member.on_lost = core.memory.lost
            member.on_change = partial(self._changed, member, core, builds, telemetry)
            if member.device_memory is not None:
                member.device_memory.unload = core.memory.unload
                core.memory.before_parts(member.check_room)
        for cluster in self._clusters:
            cluster.on_lost = partial(self._group.forget_copy, cluster)
            cluster.copy_again = partial(self._group.copy_again, cluster)
        self._follow(core, builds)

    def sense(self, core: RuntimeParts, telemetry: Telemetry) -> tuple[Sensors, Statuses]:
        """Sensors, which are read from now on, and what each processor does, as they and the parts see it."""
        sensors = sensors_of(self._settings.sensors, self._clock)
        statuses = partial(self._statuses, core)
        self._throttling.sensed = sensors.now
        changed = partial(self._throttled, statuses, core, telemetry)
        sensors.on_throttled = partial(_told_by_thread, asyncio.get_running_loop(), changed)
        sensors.start()
        return sensors, statuses

    @property
    def devices(self) -> frozenset[str]:
        """Kinds of processors whose workers are streams of a device, on none of the host's cores."""
        return frozenset(one.kind for one in self.descriptions if KINDS[one.kind].device != "cpu")

    def tariff(self, sensors: Sensors) -> Tariff:
        """What a second of a worker costs, by kind. Watts are a worker's part of what sensors say that its device
        takes, else as the settings declare them. CPU stages are taken for workers of the first kind.
        """
        settings: dict[str, ProcessorSettings] = {}
        workers: dict[str, int] = {}
        for one in self._settings.processors:
            settings.setdefault(one.kind, one)
        for described in self.descriptions:
            device = KINDS[described.kind].device
            workers[device] = max(workers.get(device, 0), described.workers)
        first = self.descriptions[0].kind

        def watts(kind: str) -> Watts | None:
            kind = first if kind == HOST else kind
            device = KINDS[kind].device if kind in KINDS else ""
            measured = measured_watts(sensors.now(), device)
            if measured is not None:
                return Watts(measured / workers.get(device, 1), "measured")
            own = settings.get(kind)
            return None if own is None or own.watts is None else Watts(own.watts, "declared")

        prices = {kind: one.price_per_hour for kind, one in settings.items() if one.price_per_hour is not None}
        return Tariff(watts, {**prices, **({HOST: prices[first]} if first in prices else {})})

    def _changed(self, member: Member, core: RuntimeParts, builds: Builds, telemetry: Telemetry) -> None:
        """A processor takes runs now, or none any more."""
        self._follow(core, builds)
        status = member.status()
        facts = {"processor": member.described.name, "kind": member.described.kind, "reason": status.reason}
        telemetry.emit(f"processor {status.state.value}", **facts)

    def _throttled(self, statuses: Statuses, core: RuntimeParts, telemetry: Telemetry) -> None:
        """Other devices are throttled than before: who waits may be better off elsewhere now."""
        for status in statuses():
            one = status.description
            is_there = status.state in (ProcessorState.SERVING, ProcessorState.THROTTLED)
            if self._throttling.has_changed(one) and is_there:
                facts = {"processor": one.name, "kind": one.kind, "reason": status.reason}
                telemetry.emit(f"processor {status.state.value}", **facts)
        core.engine.look_again()

    def _follow(self, core: RuntimeParts, builds: Builds) -> None:
        """Kinds have come or gone: what serves where, and what is of no use in memory any more."""
        away = self._group.away()
        core.catalogue.leave_out(away)
        builds.leave_out(away)
        core.engine.look_again()
        core.dismiss_unused()

    def _statuses(self, core: RuntimeParts) -> tuple[ProcessorStatus, ...]:
        """What each kind of processor does now, the first one first."""
        guarded = self.guard_bytes
        found = map(self._slowed, self._group.statuses(*core.engine.run_totals()))
        first, batches = self._group.describe().kind, core.engine.batches()
        return tuple(
            replace(
                one,
                takes_guarded=one.description.kind in guarded,
                mean_batch=_mean_batch(one.description, batches, is_first_kind=one.description.kind == first),
            )
            for one in found
        )

    def _slowed(self, status: ProcessorStatus) -> ProcessorStatus:
        """As sensors see one that serves."""
        why = self._throttling.why(status.description)
        if not why or status.state is not ProcessorState.SERVING:
            return status
        return replace(status, state=ProcessorState.THROTTLED, reason=why)


def _mean_batch(
    described: ProcessorDescription, batches: Mapping[tuple[str, str], tuple[int, int]], *, is_first_kind: bool
) -> float | None:
    """Of the first kind there may be several processors, each a group; another kind's runs may be of several groups."""
    found = [
        counts
        for (group, kind), counts in batches.items()
        if kind == described.kind and (group == described.name or not is_first_kind)
    ]
    runs = sum(count for count, _rows in found)
    return sum(rows for _count, rows in found) / runs if runs else None


def _processors(settings: Settings, clock: Clock, usable: Cores) -> tuple[ProcessorGroup, list[Member], list[Cluster]]:
    """All of them; of these other kinds, and further processors of the first kind, which may come and go.

    Raises: RuntimeError naming the key that is wrong.
    """
    check_runtime()
    ours = usable.numbers
    speed = speeds(ours)
    wanted = by_sorts_of_cores(settings.processors, sorts_within(usable.count, sorts(speed)))
    cores = [() if one.cores == "auto" else one.cores for one in wanted]
    check_processors([(one.kind, one.name or one.kind) for one in wanted])
    check_cores([(one.kind, own) for one, own in zip(wanted, cores, strict=True)], ours)
    check_apart([(one.kind, own, one.threads_per_run) for one, own in zip(wanted, cores, strict=True)])
    check_memory([(one.kind, one.memory_bytes) for one in wanted])
    made = [
        PROCESSORS[one.kind](
            name=one.name or one.kind,
            workers=workers,
            threads_per_run=one.threads_per_run,
            loads_parallel_max=settings.memory.loads_parallel_max,
            **({"cores": own} if own else {}),
            **({"memory_bytes": one.memory_bytes} if one.memory_bytes else {}),
        )
        for one, own, workers in zip(wanted, cores, workers_of(wanted, usable.count), strict=True)
    ]
    first_speed = mean_speed(cores[0], speed)
    clusters = [Cluster(one, clock) for one in made[1:] if one.describe().kind == wanted[0].kind]
    twins = [OwnCores(one, mean_speed(one.described.cores, speed) / first_speed) for one in clusters]
    members = [Member(one, clock) for one in made if one.describe().kind != wanted[0].kind]
    apart = [kind for kind, known in KINDS.items() if known.device != "cpu"]
    stage = made[0].stage if isinstance(made[0], OnnxProcessor) else None
    return ProcessorGroup(made[0], members, twins, clock=clock, apart=apart, stage=stage), members, clusters


def by_sorts_of_cores(
    wanted: Sequence[ProcessorSettings], found: Sequence[tuple[int, ...]]
) -> tuple[ProcessorSettings, ...]:
    """The processors as set, with one for each sort of core in place of the only one of the first kind, where its cores
    are left to the box and there are several sorts.
    """
    first, *others = wanted
    is_only = all(one.kind != first.kind for one in others)
    if not is_only or first.cores != "auto" or first.workers is not None or len(found) == 1:
        return tuple(wanted)
    names = ["big", *(["middle"] if len(found) == 3 else [f"middle-{at}" for at in range(1, len(found) - 1)]), "little"]
    name = first.name or first.kind
    each = [
        first.model_copy(update={"name": f"{name}-{sort}", "cores": cores})
        for sort, cores in zip(names, found, strict=True)
    ]
    return *each, *others


def sorts_within(count: int, found: Sequence[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """The sorts of cores, fastest first, of which `count` cores are: where fewer may be at work at once than there are,
    these are the fastest.
    """
    before = [sum(map(len, found[:at])) for at in range(len(found))]
    return [one for one, others in zip(found, before, strict=True) if others < count]


def _at_once(described: ProcessorDescription) -> RunsAtOnce | None:
    """Return the runs at once that an import times on a processor; None for an emulated one, whose runs take what the
    network says.
    """
    if described.kind == EMULATED:
        return None
    on_cores = described.kind in CPU_KINDS
    cores = len(described.cores) or len(os.sched_getaffinity(0))
    return RunsAtOnce(described.workers, cores if on_cores else described.workers)


def workers_of(wanted: Sequence[ProcessorSettings], count: int) -> list[int]:
    """Return the number of workers of each processor, at least one each.

    It is the number that is set for the processor. Without one, a further kind that computes on cores has the number
    that is set for the first processor. Else a processor has as many workers as its cores have room for. Of the cores
    `count` may be at work at once; processors with cores of their own share them, the first ones first.
    """
    first = wanted[0]
    usable: dict[tuple[int, ...], int] = {}
    left, workers = count, list[int]()
    for one in wanted:
        own = () if one.cores == "auto" else one.cores
        cores = usable.setdefault(own, max(1, min(len(own), left)) if own else count)
        is_guest = one.kind != first.kind and KINDS[one.kind].device == "cpu"
        number_set = one.workers or (first.workers if is_guest else None)
        workers.append(number_set or max(1, cores // one.threads_per_run))
        left = count - sum(usable[known] for known in usable if known)
    return workers


def _guarded(group: ProcessorGroup, settings: Settings, clock: Clock) -> GuardedProcessor:
    guard = settings.guard
    options = GuardOptions(
        scratch=settings.state_dir.absolute() / "scratch",
        run_s_max=guard.run_s_max,
        run_bytes_max=guard.run_bytes_max,
        processes_max=guard.processes_max,
        idle_s=guard.idle_s,
        workers=sum(one.workers for one in group.on_cores),
        cores=tuple(core for one in group.on_cores for core in one.cores),
        processors=tuple(one for one in group.describe_all() if KINDS[one.kind].guard is not None),
    )
    is_alone = len(group.statuses(0, 0.0)) == 1
    return GuardedProcessor(group.first if is_alone else group, clock, options)


def _rest_s(core: RuntimeParts, clock: Clock, handle: Any, begun_ns: int) -> float:
    """For how long a run of a processor's handle that began then may still take, seconds."""

    def is_of(held: Any) -> bool:
        return isinstance(held, OnKind) and held.has(handle)

    return core.queue.rest_ns(is_of, begun_ns, clock.now_ns()) / NS_PER_S


def measured_watts(sensed: Sensed, device: str) -> float | None:
    """What a device takes: the largest of what sensors say of it, for some are parts of others; None: none tells."""
    found = [
        one.value
        for one in sensed.readings
        if one.quantity is Quantity.WATTS and one.device == device and one.value is not None
    ]
    return max(found, default=None)


def sensors_of(settings: SensorSettings, clock: Clock) -> Sensors:
    """All that may be there."""
    sources: list[Source] = [SysfsSensors(clock), NvmlSensors()]
    if settings.jtop:
        sources.append(JtopSensors())
    return Sensors(clock, sources, settings.interval_s)


def _told_by_thread(loop: asyncio.AbstractEventLoop, changed: Callable[[], None], throttled: Mapping[str, str]) -> None:
    """Other devices are throttled than before; called by the thread of the sensors."""
    with suppress(RuntimeError):  # the loop has closed meanwhile
        loop.call_soon_threadsafe(changed)
