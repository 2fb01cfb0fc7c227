"""A box of a scenario's parts: the same engine, memory manager and policies as the running box has, joined the same way, on an emulated processor."""

import hashlib
from dataclasses import dataclass

from appliance.clock import NS_PER_MS
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
from appliance.lab.journal import Journal
from appliance.lab.loop import VirtualClock
from appliance.lab.policies import Stopwatch
from appliance.lab.processors import BuildCost, EmulatedProcessor
from appliance.lab.scenario import BoxProcessor, ModelShape, Scenario, VariantShape, latency_of, megabytes
from appliance.policies.room import ROOM_POLICIES
from appliance.policies.selection import SELECTION_POLICIES
from appliance.runtime.admission import Admission
from appliance.runtime.catalogue import Catalogue
from appliance.runtime.engine import Engine
from appliance.runtime.loader import Loader
from appliance.runtime.memory import MemoryManager
from appliance.runtime.queues import Queue
from appliance.runtime.sequences import Sequences
from appliance.runtime.telemetry import Telemetry

OWNER = "default"
"""The tenant that the models of a scenario belong to."""
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
    engine: Engine
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
    models = [_model(shape, scenario.processor) for shape in scenario.models]
    processor = EmulatedProcessor(clock, description, _costs(scenario, description.kind), scenario.memory_bytes)
    catalogue = Catalogue(SELECTION_POLICIES[scenario.policies.get("selection", "most-accurate")](), description.kind)
    memory = MemoryManager(
        clock=clock,
        loader=Loader(_Builds(), processor),
        policy=stopwatch.timed("eviction", ROOM_POLICIES[scenario.policies.get("eviction", "lru")]()),
        budget_bytes=scenario.memory_bytes,
        wait_ms_max=scenario.box.wait_ms_max,
        events=journal,
        decisions=journal,
        users_of=catalogue.users_of,
    )
    engine = Engine(
        clock=clock,
        catalogue=catalogue,
        admission=Admission(clock, scenario.box.timeout_ms),
        memory=memory,
        queue=Queue(clock, scenario.box.queue_len_max, scenario.box.queue_total_max),
        processor=processor,
        sequences=Sequences(clock, count_max=1, idle_s=60),
        telemetry=telemetry,
    )
    _fill(catalogue, scenario, models)
    return LabBox(clock, catalogue, memory, processor, engine, journal, stopwatch)


def _fill(catalogue: Catalogue, scenario: Scenario, models: list[Model]) -> None:
    quotas = {t.name: Quota(requests_per_s=t.rate_rps) for t in scenario.tenants}
    for name in sorted({OWNER, *quotas, *(a.tenant for a in scenario.applications)}):
        catalogue.put_tenant(Tenant(name, quotas.get(name, Quota())))
    for model in models:
        catalogue.put_model(model)
    for shape in scenario.applications:
        catalogue.put_application(
            Application(
                application_id(shape.tenant, shape.name),
                shape.tenant,
                shape.name,
                model_id(OWNER, shape.model),
                latency_slo_ms=shape.latency_slo_ms,
                accuracy_min=shape.accuracy_min,
                weight=shape.weight,
            )
        )


def _description(shape: BoxProcessor) -> ProcessorDescription:
    domain = "host" if shape.memory_mb is None else shape.name
    return ProcessorDescription(shape.name, shape.kind or shape.name, shape.concurrency, 1, domain, "emulated")


def _model(shape: ModelShape, processor: BoxProcessor) -> Model:
    model = model_id(OWNER, shape.name)
    variants = tuple(_variant(model, variant, processor) for variant in shape.variants)
    return Model(model, OWNER, shape.name, TaskSpec(), variants)


def _variant(model: str, shape: VariantShape, processor: BoxProcessor) -> Variant:
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
        _content(model, shape.name),
        profile.resident_bytes,
        _INPUTS,
        _OUTPUTS,
        accuracy=Accuracy(shape.accuracy, "as given", "labels", 1),
        profile=profile,
    )


def _content(model: str, variant: str) -> str:
    return hashlib.sha256(f"{model}:{variant}".encode()).hexdigest()


def _costs(scenario: Scenario, kind: str) -> dict[str, BuildCost]:
    """build id → what it costs on the scenario's processor."""
    costs: dict[str, BuildCost] = {}
    for model in scenario.models:
        users = tuple(a.name for a in scenario.applications if a.model == model.name)
        for shape in model.variants:
            latencies = latency_of(shape, scenario.processor)
            assert latencies is not None, "checked when it was read"
            build = build_id(_content(model_id(OWNER, model.name), shape.name), kind)
            costs[build] = BuildCost(
                users,
                megabytes(shape.size_mb),
                megabytes(shape.peak_mb or shape.size_mb),
                round(shape.load_ms * NS_PER_MS),
                {key: round(ms * NS_PER_MS) for key, ms in latencies.items()},
            )
    return costs
