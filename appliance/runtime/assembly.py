"""The engine and the residency loop, joined: the running box and the lab both make them here, so that neither can
drift from the other.
"""

from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

from appliance.clock import NS_PER_MS, NS_PER_S, NS_PER_US, Clock
from appliance.domain.accuracy import points
from appliance.domain.catalogue import Application
from appliance.domain.errors import OutOfMemory
from appliance.domain.events import EventSink
from appliance.domain.isolation import Isolation
from appliance.domain.overhead import FORK_SERVERS
from appliance.domain.runs_at_once import RunsAtOnce
from appliance.policies.batching.base import BatchingPolicy
from appliance.policies.dispatch import DEFAULT as DEFAULT_DISPATCH
from appliance.policies.dispatch import DISPATCH_POLICIES
from appliance.policies.dispatch.base import DispatchPolicy
from appliance.policies.forecast import FORECASTERS
from appliance.policies.forecast.base import Fit, Forecaster
from appliance.policies.forecast.kinds import Kind
from appliance.policies.forecast.memory import MemoryForecaster
from appliance.policies.residency.base import EvictionPolicy
from appliance.policies.selection.base import SelectionInput, SelectionPlan, SelectionPolicy
from appliance.runtime.catalogue import Catalogue
from appliance.runtime.decisions.choices import choice
from appliance.runtime.engine.scheduler import Limits
from appliance.runtime.memory.loader import Loader
from appliance.runtime.memory.manager import MemoryManager
from appliance.runtime.memory.planner_processes import PlannerProcesses
from appliance.runtime.memory.pressure import MemoryPressure
from appliance.runtime.memory.pressure_forecasting import MemoryForecasting
from appliance.runtime.memory.room import Process
from appliance.runtime.ports import Background, DecisionSink, Processor, RunGroup, VariantSource, WindowSink
from appliance.runtime.profiles.store import ProfileStore
from appliance.runtime.residency.account import MemoryAccount
from appliance.runtime.residency.arbiter import EvictionArbiter
from appliance.runtime.residency.demand import Expectations
from appliance.runtime.residency.forecasting import Forecasting
from appliance.runtime.residency.groups import VariantGroups
from appliance.runtime.residency.loop import ResidencyLoop
from appliance.runtime.residency.refusals import Refusals
from appliance.runtime.residency.shares import Shares
from appliance.runtime.servable_factory import ServableFactory
from appliance.runtime.serving.admission import Admission
from appliance.runtime.serving.availability import Availability
from appliance.runtime.serving.by_policy import ByPolicy
from appliance.runtime.serving.engine import Engine
from appliance.runtime.serving.placement import Placement
from appliance.runtime.serving.queue import Queue
from appliance.runtime.serving.sequences import Sequences
from appliance.runtime.serving.trial_samples import SampleBounds, TrialSamples
from appliance.runtime.telemetry import Telemetry


@dataclass(frozen=True, kw_only=True)
class RuntimeConfig:
    """What the parts are told in numbers; the settings of a box say what each is for.

    From `alpha` on they are one section in a box's settings and in a scenario, with the same names.
    """

    budget_bytes: int
    reserve_bytes: int = 0
    wait_ms_max: float
    asleep_share: float = 0.25
    loads_ahead_max: int | None = None
    """Loads that nobody waits for and that the processor has at once."""
    timeout_ms: float
    queue_len_max: int
    queue_total_max: int
    queue_wait_ms_max: float = 10_000
    sequences_max: int = 1
    sequence_idle_s: float = 60
    quick_us_max: float = 0
    inline_ms_max: float = 0
    alpha: float
    delta_ms: float
    delta_share_max: float
    history_window_s: float
    tick_ms: float
    reloads_per_min_max: int
    patience_ms: float | None = None
    neighbours_share: float = 1.0
    isolation: Isolation = Isolation.NONE
    loss_max: float = 0.005
    run_weight: float = 0.1
    """Of a run in what is expected of the next."""
    leaves_out_parts: bool = False
    is_plain: bool = False
    """Run times follow Band's formula alone."""
    samples: SampleBounds = field(default_factory=SampleBounds)
    """Requests that are kept for trials."""


@dataclass(frozen=True, kw_only=True)
class RuntimePorts:
    """What the parts find where they run: a machine and its store, or a simulation of both."""

    clock: Clock
    processor: Processor
    builds: VariantSource
    telemetry: Telemetry
    events: EventSink
    windows: WindowSink
    decisions: DecisionSink
    available_bytes: Callable[[int], int]
    """Memory that the machine has left, given what builds occupy."""
    is_memory_scarce: Callable[[], bool] = lambda: False
    """Whether processes that stand for want of memory, as the kernel says, are to be believed."""
    forecaster_of: Callable[[str], Forecaster]
    memory_forecaster: MemoryForecaster
    """To begin with."""
    background: Background
    save_forecasters: Callable[[Mapping[str, str]], None]
    save_memory_forecaster: Callable[[str], None]
    seed: int = 0
    given_forecasts: Iterable[str] = ()
    """Applications whose forecaster comes from outside and stays."""
    groups: Sequence[RunGroup] = ()
    """Who takes runs at the same time of what `processor` holds; empty: that alone."""
    copies: Mapping[str, int] = field(default_factory=dict)
    """Kind of processor → how often a build of it is in memory, where not once."""
    stepped: Collection[str] = ()
    """Kinds of processors whose first run of a size is slow, so that inputs of free size go in steps there."""
    guard_bytes: Mapping[str, int] = field(default_factory=dict)
    """Kinds of processors that guards compute on, and what such a process takes by itself."""
    server_bytes: Mapping[str, int] = field(default_factory=dict)
    """The same kinds, and what the process takes that guards are forked of."""
    kinds: Sequence[str] = ()
    """Of the processors behind `processor`, the first one first; empty: its own."""
    fingerprints: Mapping[str, str] = field(default_factory=dict)
    """Of those processors, by kind; what was learnt on others does not come back."""
    at_once: Mapping[str, RunsAtOnce | None] = field(default_factory=dict)
    """Runs at once that imports time on those processors, by kind."""
    candidates: Mapping[str, Kind[Fit, Forecaster]] = field(default_factory=lambda: FORECASTERS)
    """The forecasters to choose among."""


@dataclass(frozen=True, kw_only=True)
class Policies:
    """The policies asked, and the names under which decisions are recorded; `fixed`: names of processors by model, for
    the policy `fixed` of dispatch.
    """

    selection: SelectionPolicy
    selection_name: str
    batching: BatchingPolicy
    eviction: EvictionPolicy
    eviction_name: str
    dispatch: DispatchPolicy = field(default_factory=DISPATCH_POLICIES[DEFAULT_DISPATCH])
    dispatch_name: str = DEFAULT_DISPATCH
    fixed: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class RuntimeParts:
    """The parts, for those who fill, run and watch them."""

    profiles: ProfileStore
    catalogue: Catalogue
    groups: VariantGroups
    expectations: Expectations
    shares: Shares
    arbiter: EvictionArbiter
    memory: MemoryManager
    account: MemoryAccount
    refusals: Refusals
    planner_processes: PlannerProcesses
    queue: Queue
    sequences: Sequences
    residency: ResidencyLoop
    forecasting: Forecasting
    pressure: MemoryPressure
    memory_forecasting: MemoryForecasting
    availability: Availability
    engine: Engine

    def avoid(self, build_id: str) -> bool:
        """A build's content serves on another kind of processor from now on; False: there is none."""
        if not self.catalogue.avoid(build_id):
            return False
        self.dismiss_unused()
        return True

    def dismiss_unused(self) -> None:
        """What no application refers to any more leaves memory."""
        for build_id in self.memory.known_builds():
            if not self.catalogue.users_of(build_id):
                self.memory.dismiss(build_id)

    @asynccontextmanager
    async def room_for_guard(self, tenant: str, kind: str, base_bytes: int) -> AsyncIterator[None]:
        """Within it a guard begins that a request needs, and is charged. Raises: OutOfMemory, ShuttingDown."""
        server_bytes = self.shares.server_to_come(kind)
        process = Process((tenant, kind), base_bytes + server_bytes, tenant, server_bytes)
        async with AsyncExitStack() as stack:
            try:
                await stack.enter_async_context(self.memory.room_to_begin(process))
            except OutOfMemory:
                raise self.refusals.of_process(process, tenant) from None
            yield

    def charge_servers(self, server_bytes: Mapping[str, int]) -> None:
        """What processes take that guards are forked of, by kind of processor; they are nobody's."""
        self.shares.charge_servers(server_bytes)
        self.memory.set_overhead(sum(server_bytes.values()), of=FORK_SERVERS)

    def charge_guards(self, base_bytes: Mapping[tuple[str, str], int]) -> None:
        """What guards take by themselves, by their tenant and their kind of processor: it counts as theirs."""
        self.shares.charge_guards(base_bytes)
        self.memory.set_overhead(sum(base_bytes.values()), there=base_bytes.keys())


def assemble(ports: RuntimePorts, policies: Policies, config: RuntimeConfig) -> RuntimeParts:
    """Make the parts in the order in which they need one another; nothing runs yet. Inside a running loop."""
    clock, events = ports.clock, ports.events

    def on_choice(application: Application, problem: SelectionInput, plan: SelectionPlan, before: str) -> None:
        ports.decisions.record("selection", choice(application, problem, plan, before, policies.selection_name))

    described = ports.processor.describe()
    alone = RunGroup(described.name, described.workers, ports.processor, {described.kind: ""})
    groups = tuple(ports.groups) or (alone,)
    profiles = ProfileStore(
        clock, events, ports.fingerprints, config.run_weight, is_plain=config.is_plain, at_once=ports.at_once
    )
    servables = ServableFactory(
        ports.kinds or (described.kind,),
        config.isolation,
        config.budget_bytes,
        profiles,
        groups,
        ports.copies,
        ports.fingerprints,
        ports.stepped,
        ports.guard_bytes,
        may_share=policies.batching.shares,
        leaves_out_parts=config.leaves_out_parts,
    )
    catalogue = Catalogue(policies.selection, servables, points(config.loss_max), on_choice)
    variant_groups = VariantGroups(catalogue)
    shares = Shares(catalogue, variant_groups, config.budget_bytes, ports.guard_bytes, ports.server_bytes)
    expectations = Expectations(
        ports.forecaster_of,
        alpha=config.alpha,
        delta_ns=int(config.delta_ms * NS_PER_MS),
        history_ns=int(config.history_window_s * NS_PER_S),
        delta_share_max=config.delta_share_max,
    )
    patience_ns = None if config.patience_ms is None else int(config.patience_ms * NS_PER_MS)
    arbiter = EvictionArbiter(
        variant_groups, expectations, shares, policies.eviction, ports.decisions, policies.eviction_name, patience_ns
    )
    memory = MemoryManager(
        clock=clock,
        loader=Loader(ports.builds, ports.processor, catalogue.parts_of),
        arbiter=arbiter,
        budget_bytes=config.budget_bytes,
        wait_ms_max=config.wait_ms_max,
        events=events,
        users_of=catalogue.users_of,
        asleep_share=config.asleep_share,
        asleep_of=catalogue.asleep_bytes_of,
        process_of=shares.guard_to_come,
        ahead_max=config.loads_ahead_max,
    )
    account = MemoryAccount(memory, shares)
    residency = ResidencyLoop(
        clock=clock,
        groups=variant_groups,
        expectations=expectations,
        arbiter=arbiter,
        memory=memory,
        events=events,
        windows=ports.windows,
        tick_ms=config.tick_ms,
        reloads_per_min_max=config.reloads_per_min_max,
        neighbours_share=config.neighbours_share,
    )
    forecasting = Forecasting(
        clock=clock,
        expectations=expectations,
        background=ports.background,
        events=events,
        saved=ports.save_forecasters,
        seed=ports.seed,
        given=ports.given_forecasts,
        candidates=ports.candidates,
    )
    pressure = MemoryPressure(
        clock=clock,
        memory=memory,
        forecaster=ports.memory_forecaster,
        available_bytes=lambda: ports.available_bytes(memory.used_bytes),
        events=events,
        decisions=ports.decisions,
        budget_bytes=config.budget_bytes,
        reserve_bytes=config.reserve_bytes,
        is_scarce=ports.is_memory_scarce,
    )
    memory_forecasting = MemoryForecasting(
        clock=clock,
        pressure=pressure,
        background=ports.background,
        events=events,
        saved=ports.save_memory_forecaster,
        seed=ports.seed,
    )
    queue = Queue(
        clock,
        groups,
        memory.runs,
        limits=Limits(config.queue_len_max, config.queue_total_max, int(config.queue_wait_ms_max * NS_PER_MS)),
        placement=None
        if len(groups) == 1
        else ByPolicy(groups, policies.dispatch, policies.dispatch_name, policies.fixed, ports.decisions),
        batching=policies.batching,
        homes=_homes(groups, policies.fixed),
    )
    sequences = Sequences(clock, config.sequences_max, config.sequence_idle_s)
    refusals = Refusals(
        clock=clock,
        catalogue=catalogue,
        groups=variant_groups,
        expectations=expectations,
        shares=shares,
        memory=memory,
        account=account,
        patience_ns=patience_ns,
    )
    placement = Placement(clock, catalogue, memory, residency, refusals)
    availability = Availability(
        catalogue=catalogue,
        memory=memory,
        placement=placement,
        sequences=sequences,
        residency=residency,
        telemetry=ports.telemetry,
    )
    engine = Engine(
        clock=clock,
        catalogue=catalogue,
        admission=Admission(clock, config.timeout_ms),
        availability=availability,
        placement=placement,
        memory=memory,
        queue=queue,
        processor=ports.processor,
        sequences=sequences,
        residency=residency,
        telemetry=ports.telemetry,
        decisions=ports.decisions,
        trials=TrialSamples(clock, config.samples),
        groups=groups,
        inline_ns_max=int(config.quick_us_max * NS_PER_US),
        alone_ns_max=int(config.inline_ms_max * NS_PER_MS),
    )
    return RuntimeParts(
        profiles,
        catalogue,
        variant_groups,
        expectations,
        shares,
        arbiter,
        memory,
        account,
        refusals,
        PlannerProcesses(clock, memory),
        queue,
        sequences,
        residency,
        forecasting,
        pressure,
        memory_forecasting,
        availability,
        engine,
    )


def _homes(groups: Sequence[RunGroup], fixed: Mapping[str, str]) -> dict[str, int]:
    """Return the group, by index, that each model is fixed to."""
    index = {group.name: at for at, group in enumerate(groups)}
    return {model: index[name] for model, name in fixed.items() if name in index}
