"""Planning joined to the parts that serve: the box and the lab both make it here."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from appliance.clock import NS_PER_MS, NS_PER_S, Clock
from appliance.domain.events import EventSink
from appliance.policies.allocation.base import AllocationPolicy
from appliance.runtime.catalogue import Catalogue
from appliance.runtime.memory.manager import MemoryManager
from appliance.runtime.pipelines.accounts import Tariff
from appliance.runtime.pipelines.admission import Admission
from appliance.runtime.pipelines.enacting import Actuators, Enacting
from appliance.runtime.pipelines.environment import PipelineEnvironment, PlannedPipeline
from appliance.runtime.pipelines.load import BusySeconds
from appliance.runtime.pipelines.planning import Planning
from appliance.runtime.pipelines.planning_parts import PlanningParts
from appliance.runtime.pipelines.problem import Group, Machine
from appliance.runtime.pipelines.sparing import Sparing
from appliance.runtime.pipelines.windows import WINDOW_NS
from appliance.runtime.ports import Background, DecisionSink, RunGroup
from appliance.runtime.residency.account import MemoryAccount
from appliance.runtime.residency.loop import ResidencyLoop
from appliance.runtime.serving.engine import Engine
from appliance.runtime.serving.queue import Queue


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanningPorts:
    """What planning finds where it runs."""

    clock: Clock
    catalogue: Catalogue
    engine: Engine
    queue: Queue
    memory: MemoryManager
    account: MemoryAccount
    residency: ResidencyLoop
    events: EventSink
    decisions: DecisionSink
    background: Background
    groups: Sequence[RunGroup]
    """Who takes runs at the same time."""
    devices: Collection[str] = ()
    """Kinds of processors whose workers are streams of one device, and none of the host's cores."""
    media_threads: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanningConfig:
    """What planning is told. `turn_off_s`: how long a variant stays wished for that no plan has any more; `window_ms`:
    over how long frames are looked at.
    """

    policy: AllocationPolicy
    policy_name: str
    tariff: Tariff
    turn_off_s: float = 30.0
    window_ms: float = WINDOW_NS / NS_PER_MS


def make_planning(ports: PlanningPorts, config: PlanningConfig, pipelines: Mapping[str, PlannedPipeline]) -> Planning:
    """`pipelines` by id, kept by the registry; `Planning.run` has yet to be started."""
    catalogue, memory = ports.catalogue, ports.memory
    sparing = Sparing(ports.groups)

    def machine() -> Machine:
        serving = [replace(one, is_serving=_never) if one.name in sparing.left_out() else one for one in ports.groups]
        groups = groups_of(serving, catalogue.servables.kinds, catalogue.servables.away, ports.devices)
        return Machine.made(groups, config.tariff, ports.media_threads)

    actuators = Actuators(catalogue, ports.residency.wish, ports.queue.plan_rows, catalogue.wish_kinds)
    environment = PipelineEnvironment(
        clock=ports.clock,
        catalogue=catalogue,
        policy=config.policy,
        policy_name=config.policy_name,
        background=ports.background,
        decisions=ports.decisions,
        events=ports.events,
        tariff=config.tariff,
        machine=machine,
        need_spared=sparing.need,
        memory_bytes=ports.account.room_of,
        room_bytes=ports.account.room_for,
        held_beside=ports.account.held_beside,
        is_resident=memory.is_resident,
        busy_s=busy_of(ports.engine, ports.groups, machine),
        enacting=Enacting(actuators, int(config.turn_off_s * NS_PER_S)),
        window_ns=int(config.window_ms * NS_PER_MS),
    )
    parts = PlanningParts.made(environment, pipelines)
    ports.account.needed_by_pipelines = parts.pictures.needed
    planning = Planning(parts, Admission(parts))
    ports.engine.on_processors = memory.on_resized = planning.wake
    return planning


def groups_of(
    groups: Sequence[RunGroup], kinds: Sequence[str], away: Collection[str], devices: Collection[str]
) -> list[Group]:
    """Groups as plans see them, of what takes runs now. CPU stages are on the cores of the first one that has some."""
    found: list[Group] = []
    for group in groups:
        own = kinds if len(groups) == 1 else [kind for kind in kinds if kind in group.kinds]
        serving = tuple(kind for kind in own if kind not in away) if group.is_serving() else ()
        is_device = bool(own) and all(kind in devices for kind in own)
        has_host = not is_device and not any(one.has_host for one in found)
        found.append(Group(group.name, serving, group.workers, is_device, has_host, group.speed, group.at_once))
    return found


def busy_of(engine: Engine, groups: Sequence[RunGroup], machine: Callable[[], Machine]) -> Callable[[], BusySeconds]:
    """Seconds of single calls by tenant and group; of a kind that several groups run, on the first of them."""

    def busy() -> BusySeconds:
        first: dict[str, int] = {}
        for of in machine().of.values():
            if of.group >= 0:
                first[of.kind] = min(first.get(of.kind, of.group), of.group)
        found: dict[str, dict[int, float]] = {}
        for tenant, spent in engine.single_calls.by_tenant.items():
            own = found[tenant] = dict.fromkeys(range(len(groups)), 0.0)
            for kind, took_ns in spent.by_kind.items():
                if kind in first:
                    own[first[kind]] += took_ns / NS_PER_S
        return found

    return busy


def _never() -> bool:
    return False
