"""The engine and the residency loop, joined: the running box and the lab both make them here, so that neither can drift from the other."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from appliance.clock import NS_PER_MS, NS_PER_S, NS_PER_US, Clock
from appliance.domain.events import EventSink
from appliance.policies.forecast import FORECASTERS
from appliance.policies.forecast.base import Fit, Forecaster
from appliance.policies.forecast.kinds import Kind
from appliance.policies.forecast.memory import MemoryForecaster
from appliance.policies.residency.base import EvictionPolicy
from appliance.policies.selection.base import SelectionPolicy
from appliance.runtime.catalogue import Catalogue
from appliance.runtime.memory.loader import Loader
from appliance.runtime.memory.manager import MemoryManager
from appliance.runtime.memory.pressure import Breathing
from appliance.runtime.memory.pressure_forecasting import MemoryForecasting
from appliance.runtime.ports import Background, DecisionSink, Processor, VariantSource, WindowSink
from appliance.runtime.residency.arbiter import RoomByApplication
from appliance.runtime.residency.demand import Expectations
from appliance.runtime.residency.forecasting import Forecasting
from appliance.runtime.residency.groups import Zoos
from appliance.runtime.residency.loop import Resider
from appliance.runtime.residency.refusals import Refusals
from appliance.runtime.residency.shares import Shares
from appliance.runtime.serving.admission import Admission
from appliance.runtime.serving.availability import Availability
from appliance.runtime.serving.engine import Engine
from appliance.runtime.serving.placement import Placement
from appliance.runtime.serving.queue import Queue
from appliance.runtime.serving.sequences import Sequences
from appliance.runtime.telemetry import Telemetry


@dataclass(frozen=True, kw_only=True)
class Figures:
    """What the parts are told in numbers; the settings of a box say what each is for.

    From `alpha` on they are one section in a box's settings and in a scenario, with the same names.
    """

    budget_bytes: int
    reserve_bytes: int = 0
    wait_ms_max: float
    timeout_ms: float
    queue_len_max: int
    queue_total_max: int
    sequences_max: int = 1
    sequence_idle_s: float = 60
    quick_us_max: float = 0
    alpha: float
    delta_ms: float
    delta_share_max: float
    history_window_s: float
    tick_ms: float
    reloads_per_min_max: int
    patience_ms: float | None = None


@dataclass(frozen=True, kw_only=True)
class Surroundings:
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
    forecaster_of: Callable[[str], Forecaster]
    memory_forecaster: MemoryForecaster
    """To begin with."""
    background: Background
    save_forecasters: Callable[[Mapping[str, str]], None]
    save_memory_forecaster: Callable[[str], None]
    seed: int = 0
    given_forecasts: Iterable[str] = ()
    """Applications whose forecaster comes from outside and stays."""
    candidates: Mapping[str, Kind[Fit, Forecaster]] = field(default_factory=lambda: FORECASTERS)
    """The forecasters to choose among."""


@dataclass(frozen=True, kw_only=True)
class Policies:
    """The policies asked; `eviction_name` is what decisions are recorded under."""

    selection: SelectionPolicy
    eviction: EvictionPolicy
    eviction_name: str


@dataclass(frozen=True)
class Core:
    """The parts, for those who fill, run and watch them."""

    catalogue: Catalogue
    shares: Shares
    room: RoomByApplication
    memory: MemoryManager
    queue: Queue
    sequences: Sequences
    resider: Resider
    forecasting: Forecasting
    breathing: Breathing
    memory_forecasting: MemoryForecasting
    availability: Availability
    engine: Engine


def assemble(around: Surroundings, policies: Policies, figures: Figures) -> Core:
    """Make the parts in the order in which they need one another; nothing runs yet. Inside a running loop."""
    clock, events = around.clock, around.events
    catalogue = Catalogue(policies.selection, around.processor.describe().kind)
    zoos = Zoos(catalogue)
    shares = Shares(catalogue, zoos, figures.budget_bytes)
    expectations = Expectations(
        around.forecaster_of,
        alpha=figures.alpha,
        delta_ns=int(figures.delta_ms * NS_PER_MS),
        history_ns=int(figures.history_window_s * NS_PER_S),
        delta_share_max=figures.delta_share_max,
    )
    patience_ns = None if figures.patience_ms is None else int(figures.patience_ms * NS_PER_MS)
    room = RoomByApplication(
        zoos, expectations, shares, policies.eviction, around.decisions, policies.eviction_name, patience_ns
    )
    memory = MemoryManager(
        clock=clock,
        loader=Loader(around.builds, around.processor),
        arbiter=room,
        budget_bytes=figures.budget_bytes,
        wait_ms_max=figures.wait_ms_max,
        events=events,
        users_of=catalogue.users_of,
    )
    resider = Resider(
        clock=clock,
        zoos=zoos,
        expectations=expectations,
        room=room,
        shares=shares,
        memory=memory,
        events=events,
        windows=around.windows,
        tick_ms=figures.tick_ms,
        reloads_per_min_max=figures.reloads_per_min_max,
    )
    forecasting = Forecasting(
        clock=clock,
        expectations=expectations,
        background=around.background,
        events=events,
        saved=around.save_forecasters,
        seed=around.seed,
        given=around.given_forecasts,
        candidates=around.candidates,
    )
    breathing = Breathing(
        clock=clock,
        memory=memory,
        forecaster=around.memory_forecaster,
        available_bytes=lambda: around.available_bytes(memory.used_bytes),
        events=events,
        decisions=around.decisions,
        budget_bytes=figures.budget_bytes,
        reserve_bytes=figures.reserve_bytes,
    )
    memory_forecasting = MemoryForecasting(
        clock=clock,
        breathing=breathing,
        background=around.background,
        events=events,
        saved=around.save_memory_forecaster,
        seed=around.seed,
    )
    queue = Queue(clock, figures.queue_len_max, figures.queue_total_max)
    sequences = Sequences(clock, figures.sequences_max, figures.sequence_idle_s)
    refusals = Refusals(
        clock=clock,
        catalogue=catalogue,
        zoos=zoos,
        expectations=expectations,
        shares=shares,
        memory=memory,
        patience_ns=patience_ns,
    )
    placement = Placement(clock, catalogue, memory, resider, refusals)
    availability = Availability(
        catalogue=catalogue,
        memory=memory,
        placement=placement,
        sequences=sequences,
        resider=resider,
        telemetry=around.telemetry,
    )
    engine = Engine(
        clock=clock,
        catalogue=catalogue,
        admission=Admission(clock, figures.timeout_ms),
        availability=availability,
        placement=placement,
        memory=memory,
        queue=queue,
        processor=around.processor,
        sequences=sequences,
        resider=resider,
        telemetry=around.telemetry,
        decisions=around.decisions,
        inline_ns_max=int(figures.quick_us_max * NS_PER_US),
    )
    return Core(
        catalogue,
        shares,
        room,
        memory,
        queue,
        sequences,
        resider,
        forecasting,
        breathing,
        memory_forecasting,
        availability,
        engine,
    )
