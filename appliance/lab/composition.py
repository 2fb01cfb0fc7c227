"""A box of a scenario's parts: the same engine, memory manager and policies as the running box has, joined the same way, on an emulated processor."""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from appliance.clock import NS_PER_MS, NS_PER_S
from appliance.domain.catalogue import (
    Accuracy,
    Application,
    Latency,
    Model,
    Precision,
    Profile,
    Quota,
    TaskSpec,
    Tenant,
    TensorSpec,
    Variant,
)
from appliance.domain.hardware import PreparedForm, ProcessorDescription
from appliance.domain.names import application_id, build_id, model_id, variant_id
from appliance.lab.faults import Machine
from appliance.lab.forecasts import Given
from appliance.lab.journal import Journal
from appliance.lab.loop import START_NS, VirtualClock
from appliance.lab.policies import Stopwatch
from appliance.lab.processors import BuildCost, EmulatedProcessor
from appliance.lab.scenario import (
    BoxProcessor,
    ModelShape,
    Scenario,
    TenantShape,
    VariantShape,
    latency_of,
    megabytes,
    served_of,
)
from appliance.lab.workload import predictions
from appliance.policies.eviction import DEFAULT, EVICTION_POLICIES
from appliance.policies.eviction.base import TenantShare
from appliance.policies.forecast import FORECASTERS
from appliance.policies.forecast.base import Fit, Forecaster
from appliance.policies.forecast.choice import Choice
from appliance.policies.forecast.ewma import Ewma
from appliance.policies.forecast.memory import Trend
from appliance.policies.selection import SELECTION_POLICIES
from appliance.runtime.admission import Admission
from appliance.runtime.breathing import Breathing
from appliance.runtime.catalogue import Catalogue
from appliance.runtime.engine import Engine
from appliance.runtime.expectations import Expectations
from appliance.runtime.forecasting import Forecasting
from appliance.runtime.loader import Loader
from appliance.runtime.memory import MemoryManager
from appliance.runtime.queues import Queue
from appliance.runtime.reside import Resider
from appliance.runtime.room import RoomByApplication
from appliance.runtime.sequences import Sequences
from appliance.runtime.telemetry import Telemetry
from appliance.runtime.zoos import Zoos

INPUT = "x"
_INPUTS = (TensorSpec(INPUT, "FP32", (-1,)),)
_OUTPUTS = (TensorSpec("y", "FP32", (-1,)),)


@dataclass(frozen=True)
class LabBox:
    """The parts that a simulation holds on to."""

    clock: VirtualClock
    catalogue: Catalogue
    memory: MemoryManager
    processor: EmulatedProcessor
    queue: Queue
    engine: Engine
    resider: Resider
    forecasting: Forecasting
    breathing: Breathing
    machine: Machine
    journal: Journal
    stopwatch: Stopwatch


class _Builds:
    """Port `VariantSource`: a build is nothing but its name."""

    async def open_build(self, build_id: str) -> PreparedForm:
        return PreparedForm(build_id, build_id, 0, optimised=True)


def compose(scenario: Scenario) -> LabBox:
    """Make the box of a scenario; inside a running virtual loop."""
    clock, stopwatch = VirtualClock(), Stopwatch()
    telemetry = Telemetry(clock)
    journal = Journal(clock, telemetry)
    description = _description(scenario.processor)
    costs = _costs(scenario, description.kind)
    loads = scenario.box.loads_parallel_max
    processor = EmulatedProcessor(clock, description, costs, scenario.memory_bytes, loads, scenario.seed)
    catalogue = Catalogue(SELECTION_POLICIES[scenario.policies.get("selection", "most-accurate")](), description.kind)
    zoos = Zoos(catalogue)
    given = _given(scenario)
    expectations = _expectations(scenario, given)
    eviction = scenario.policies.get("eviction", DEFAULT)
    policy = stopwatch.timed("eviction", EVICTION_POLICIES[eviction]())
    room = RoomByApplication(zoos, expectations, policy, journal, eviction)
    room.tenants = tuple(_share(tenant) for tenant in scenario.tenants)
    memory = MemoryManager(
        clock=clock,
        loader=Loader(_Builds(), processor),
        policy=room,
        budget_bytes=scenario.memory_bytes,
        wait_ms_max=scenario.box.wait_ms_max,
        events=journal,
        decisions=journal,
        users_of=catalogue.users_of,
    )
    resider = Resider(
        clock=clock,
        zoos=zoos,
        expectations=expectations,
        room=room,
        memory=memory,
        events=journal,
        tick_ms=scenario.box.residency.tick_ms,
        reloads_per_min_max=scenario.box.residency.reloads_per_min_max,
    )
    forecasting = Forecasting(
        clock=clock,
        expectations=expectations,
        background=_inline,
        events=journal,
        saved=lambda names: None,
        seed=scenario.seed,
        given=given,
        candidates=_candidates(scenario),
    )
    machine = Machine(scenario.memory_bytes)
    breathing = Breathing(
        clock=clock,
        memory=memory,
        forecaster=Trend(),
        available_bytes=lambda: machine.available_bytes(memory.used_bytes),
        events=journal,
        budget_bytes=scenario.memory_bytes,
        reserve_bytes=0,
    )
    queue = Queue(clock, scenario.box.queue_len_max, scenario.box.queue_total_max)
    engine = Engine(
        clock=clock,
        catalogue=catalogue,
        admission=Admission(clock, scenario.box.timeout_ms),
        memory=memory,
        queue=queue,
        processor=processor,
        sequences=Sequences(clock, count_max=1, idle_s=60),
        telemetry=telemetry,
        resider=resider,
    )
    _fill(catalogue, scenario)
    return LabBox(
        clock,
        catalogue,
        memory,
        processor,
        queue,
        engine,
        resider,
        forecasting,
        breathing,
        machine,
        journal,
        stopwatch,
    )


async def _inline(compute: Callable[[], Choice]) -> Choice:
    """Training takes no virtual time: there is no thread to do it in."""
    return compute()


def _expectations(scenario: Scenario, given: Mapping[str, Given]) -> Expectations:
    """Windows as the running box has them; a forecast in the scenario takes the place of the box's own."""
    (_, first), *_ = _candidates(scenario).items()

    def forecaster_of(zoo: str) -> Forecaster:
        return given.get(zoo) or first((), scenario.seed) or Ewma()

    settings = scenario.box.residency
    return Expectations(
        forecaster_of,
        alpha=settings.alpha,
        delta_ns=int(settings.delta_ms * NS_PER_MS),
        history_ns=int(settings.history_window_s * NS_PER_S),
    )


def _candidates(scenario: Scenario) -> Mapping[str, Fit]:
    """What the box chooses its forecasters among; one that the scenario names is the only one, as soon as there is history enough for it."""
    name = scenario.policies.get("forecast")
    return FORECASTERS if name is None else {name: FORECASTERS[name]}


def _given(scenario: Scenario) -> dict[str, Given]:
    """Application id → the forecast of all applications of its model, which are one to the residency loop."""
    times = predictions(scenario.arrivals)
    given: dict[str, Given] = {}
    for shape in scenario.applications:
        sharing = [a.name for a in scenario.applications if a.model == shape.model]
        joined = sorted({START_NS + at_ns for name in sharing for at_ns in times.get(name, ())})
        if joined:
            given[application_id(shape.tenant, shape.name)] = Given(tuple(joined))
    return given


def _share(shape: TenantShape) -> TenantShare:
    ceiling = None if shape.ceiling_mb is None else megabytes(shape.ceiling_mb)
    return TenantShare(shape.name, megabytes(shape.guarantee_mb), ceiling)


def _owners(scenario: Scenario) -> dict[str, str]:
    """Model → the tenant that it belongs to: that of its first application."""
    owners: dict[str, str] = {}
    for shape in scenario.applications:
        owners.setdefault(shape.model, shape.tenant)
    return owners


def _fill(catalogue: Catalogue, scenario: Scenario) -> None:
    owners = _owners(scenario)
    quotas = {t.name: Quota(requests_per_s=t.rate_rps) for t in scenario.tenants}
    for name in sorted({*quotas, *(a.tenant for a in scenario.applications)}):
        catalogue.put_tenant(Tenant(name, quotas.get(name, Quota())))
    for model in scenario.models:
        if model.name in owners:
            catalogue.put_model(_model(model, owners[model.name], scenario.processor))
    for shape in scenario.applications:
        catalogue.put_application(
            Application(
                application_id(shape.tenant, shape.name),
                shape.tenant,
                shape.name,
                model_id(owners[shape.model], shape.model),
                latency_slo_ms=shape.latency_slo_ms,
                accuracy_min=shape.accuracy_min,
                weight=shape.weight,
            )
        )


def _description(shape: BoxProcessor) -> ProcessorDescription:
    domain = "host" if shape.memory_mb is None else shape.name
    return ProcessorDescription(shape.name, shape.kind or shape.name, shape.concurrency, 1, domain, "emulated")


def _model(shape: ModelShape, owner: str, processor: BoxProcessor) -> Model:
    model = model_id(owner, shape.name)
    variants = tuple(_variant(model, shape, variant, processor) for variant in shape.variants)
    return Model(model, owner, shape.name, TaskSpec(), variants)


def _variant(model: str, of: ModelShape, shape: VariantShape, processor: BoxProcessor) -> Variant:
    latencies = latency_of(shape, processor)
    assert latencies is not None, "checked when it was read"
    alone = min(concurrency for _, concurrency in latencies)
    rows = sorted((batch, ms) for (batch, concurrency), ms in latencies.items() if concurrency == alone)
    profile = Profile(
        processor.name,
        megabytes(shape.size_mb),
        megabytes(shape.peak_mb or shape.size_mb),
        shape.load_ms,
        shape.load_ms,
        tuple(Latency(batch, ms, ms) for batch, ms in rows),
    )
    return Variant(
        variant_id(model, shape.name),
        model,
        shape.name,
        Precision.OWN,
        _content(of.name, shape.name),
        profile.resident_bytes,
        _INPUTS,
        _OUTPUTS,
        accuracy=Accuracy(shape.accuracy, "as given", "labels", 1),
        profile=profile,
    )


def _content(model: str, variant: str) -> str:
    return hashlib.sha256(f"{model}:{variant}".encode()).hexdigest()


def resident_builds(scenario: Scenario) -> list[str]:
    """Builds that are in memory when the scenario starts."""
    kind = scenario.processor.kind or scenario.processor.name
    return [build_id(_content(m.name, v.name), kind) for m in scenario.models for v in m.variants if v.resident]


def build_names(scenario: Scenario) -> dict[str, tuple[str, str]]:
    """build id → (model, variant), for people."""
    kind = scenario.processor.kind or scenario.processor.name
    return {build_id(_content(m.name, v.name), kind): (m.name, v.name) for m in scenario.models for v in m.variants}


def _costs(scenario: Scenario, kind: str) -> dict[str, BuildCost]:
    """build id → what it costs on the scenario's processor."""
    costs: dict[str, BuildCost] = {}
    for model in scenario.models:
        users = tuple(a.name for a in scenario.applications if a.model == model.name)
        for shape in model.variants:
            latencies = latency_of(shape, scenario.processor)
            assert latencies is not None, "checked when it was read"
            build = build_id(_content(model.name, shape.name), kind)
            costs[build] = BuildCost(
                users,
                megabytes(shape.size_mb),
                megabytes(shape.peak_mb or shape.size_mb),
                round(shape.load_ms * NS_PER_MS),
                round(shape.unloads_in_ms * NS_PER_MS),
                {key: round(ms * NS_PER_MS) for key, ms in latencies.items()},
                tuple(round(ms * NS_PER_MS) for ms in served_of(shape, scenario.processor)),
            )
    return costs
