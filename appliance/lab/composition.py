"""A box of a scenario's parts: what `runtime.assembly` makes for the running box, on an emulated processor."""

import hashlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from appliance.clock import NS_PER_MS
from appliance.domain.catalogue import (
    Accuracy,
    Application,
    Late,
    Latency,
    Model,
    Precision,
    Prefer,
    Profile,
    Quota,
    TaskSpec,
    Tenant,
    TensorSpec,
    Variant,
)
from appliance.domain.hardware import PreparedForm, ProcessorDescription
from appliance.domain.names import application_id, build_id, model_id, variant_id
from appliance.domain.request import Tensors
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
    p99_of,
    served_of,
)
from appliance.lab.workload import draw, predictions
from appliance.policies.batching import BATCHING_POLICIES
from appliance.policies.batching import DEFAULT as DEFAULT_BATCHING
from appliance.policies.forecast import FORECASTERS
from appliance.policies.forecast.base import Fit, Forecaster
from appliance.policies.forecast.ewma import Ewma
from appliance.policies.forecast.kinds import Kind
from appliance.policies.forecast.memory import Trend
from appliance.policies.residency import DEFAULT, EVICTION_POLICIES
from appliance.policies.selection import DEFAULT as DEFAULT_SELECTION
from appliance.policies.selection import SELECTION_POLICIES
from appliance.runtime.assembly import Policies, RuntimeConfig, RuntimeParts, RuntimePorts, assemble
from appliance.runtime.catalogue import Catalogue
from appliance.runtime.sessions.zoo import BYTES_PER_PIXEL
from appliance.runtime.telemetry import Telemetry

T = TypeVar("T")

INPUT = "x"
TENSORS: Tensors = {INPUT: np.zeros(1, np.float32)}
"""What every request carries."""
_INPUTS = (TensorSpec(INPUT, "FP32", (-1,)),)
_OUTPUTS = (TensorSpec("y", "FP32", (-1,)),)


@dataclass(frozen=True)
class LabBox:
    """The parts that a simulation holds on to."""

    core: RuntimeParts
    clock: VirtualClock
    processor: EmulatedProcessor
    machine: Machine
    journal: Journal
    stopwatch: Stopwatch
    telemetry: Telemetry


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
    machine = Machine(scenario.memory_bytes)
    given = _given(scenario)
    ports = RuntimePorts(
        clock=clock,
        processor=processor,
        builds=_Builds(),
        telemetry=telemetry,
        events=journal,
        windows=journal,
        decisions=journal,
        available_bytes=machine.available_bytes,
        forecaster_of=_forecaster_of(scenario, given),
        memory_forecaster=Trend(),
        background=_inline,
        save_forecasters=lambda texts: None,
        save_memory_forecaster=lambda text: None,
        seed=scenario.seed,
        given_forecasts=given,
        candidates=_candidates(scenario),
    )
    core = assemble(ports, _policies(scenario, stopwatch), _config(scenario))
    _fill(core.catalogue, scenario)
    return LabBox(core, clock, processor, machine, journal, stopwatch, telemetry)


def _policies(scenario: Scenario, stopwatch: Stopwatch) -> Policies:
    eviction = scenario.policies.get("eviction", DEFAULT)
    return Policies(
        selection=SELECTION_POLICIES[scenario.policies.get("selection", DEFAULT_SELECTION)](),
        batching=BATCHING_POLICIES[scenario.policies.get("batching", DEFAULT_BATCHING)](),
        eviction=stopwatch.timed("eviction", EVICTION_POLICIES[eviction]()),
        eviction_name=eviction,
    )


def _config(scenario: Scenario) -> RuntimeConfig:
    box = scenario.box
    return RuntimeConfig(
        budget_bytes=scenario.memory_bytes,
        wait_ms_max=box.wait_ms_max,
        asleep_share=box.asleep_share,
        timeout_ms=box.timeout_ms,
        queue_len_max=box.queue_len_max,
        queue_total_max=box.queue_total_max,
        queue_wait_ms_max=box.queue_wait_ms_max,
        loss_max=box.loss_max,
        **box.residency.model_dump(),
    )


async def _inline(compute: Callable[[], T]) -> T:
    """Training takes no virtual time: there is no thread to do it in."""
    return compute()


def _forecaster_of(scenario: Scenario, given: Mapping[str, Given]) -> Callable[[str], Forecaster]:
    """What a group begins with; a forecast in the scenario takes the place of the box's own."""
    (_, first), *_ = _candidates(scenario).items()
    return lambda group: given.get(group) or first.fit((), scenario.seed) or Ewma()


def _candidates(scenario: Scenario) -> Mapping[str, Kind[Fit, Forecaster]]:
    """What the box chooses its forecasters among; one that the scenario names is the only one, as soon as there is
    history enough for it.
    """
    name = scenario.policies.get("forecast")
    return FORECASTERS if name is None else {name: FORECASTERS[name]}


def _given(scenario: Scenario) -> dict[str, Given]:
    """Application id → the forecast of all applications of its model, which are one to the residency loop."""
    times = predictions(scenario.arrivals)
    if not times:
        return {}
    arrivals = draw(scenario.arrivals, scenario.seed, scenario.duration_s, scenario.base_dir)
    given: dict[str, Given] = {}
    for shape in scenario.applications:
        sharing = {a.name for a in scenario.applications if a.model == shape.model}
        joined = sorted({START_NS + at_ns for name in sharing for at_ns in times.get(name, ())})
        asked = tuple(START_NS + arrival.at_ns for arrival in arrivals if arrival.application in sharing)
        if joined:
            given[application_id(shape.tenant, shape.name)] = Given(tuple(joined), asked)
    return given


def _quota(shape: TenantShape) -> Quota:
    ceiling = None if shape.ceiling_mb is None else megabytes(shape.ceiling_mb)
    return Quota(
        requests_per_s=shape.rate_rps,
        memory_guarantee_bytes=megabytes(shape.guarantee_mb),
        memory_ceiling_bytes=ceiling,
        processor_weight=shape.processor_weight,
    )


def _owners(scenario: Scenario) -> dict[str, str]:
    """Model → the tenant that it belongs to: that of its first application."""
    owners: dict[str, str] = {}
    for shape in scenario.applications:
        owners.setdefault(shape.model, shape.tenant)
    return owners


def _fill(catalogue: Catalogue, scenario: Scenario) -> None:
    owners = _owners(scenario)
    quotas = {t.name: _quota(t) for t in scenario.tenants}
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
                late=Late(shape.late),
                prefer=Prefer(shape.prefer),
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
    p99_ms = p99_of(shape, processor)
    profile = Profile(
        processor.name,
        megabytes(shape.size_mb),
        megabytes(shape.peak_mb or shape.size_mb),
        shape.load_ms,
        shape.load_ms,
        _latencies(latencies, p99_ms),
        asleep_bytes=None if shape.asleep_mb is None else megabytes(shape.asleep_mb),
        wake_ns=None if shape.asleep_mb is None else round(shape.wakes_in_ms * NS_PER_MS),
        shared_rows_max=shape.together_max or max(batch for batch, _ in latencies),
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
        height=input_px(shape),
        width=input_px(shape),
        accuracy=Accuracy(shape.accuracy, "as given", "as given", 1, loss_points=shape.loss),
        profile=profile,
    )


def input_px(shape: VariantShape) -> int | None:
    """Longer side of the pictures that devices send for it; None where nothing is said of them."""
    if shape.input_px is not None or not shape.input_bytes:
        return shape.input_px
    return max(1, round(math.sqrt(shape.input_bytes / BYTES_PER_PIXEL)))


def _latencies(latencies: Mapping[tuple[int, int], float], p99_ms: float | None) -> tuple[Latency, ...]:
    """As an import measures them, by (batch, concurrency); the least concurrency that is written stands for one run at
    a time.
    """
    alone = min(concurrency for _, concurrency in latencies)
    rows = sorted((1 if level == alone else level, batch, ms) for (batch, level), ms in latencies.items())
    return tuple(
        Latency(batch, ms, p99_ms if p99_ms is not None and (batch, concurrency) == (1, 1) else ms, concurrency)
        for concurrency, batch, ms in rows
    )


def _content(model: str, variant: str) -> str:
    return hashlib.sha256(f"{model}:{variant}".encode()).hexdigest()


def resident_builds(scenario: Scenario) -> list[str]:
    """Builds that are in memory when the scenario starts."""
    return _builds(scenario, lambda variant: variant.resident)


def sleeping_builds(scenario: Scenario) -> list[str]:
    """Builds that are asleep when the scenario starts."""
    return _builds(scenario, lambda variant: variant.asleep)


def _builds(scenario: Scenario, is_one: Callable[[VariantShape], bool]) -> list[str]:
    kind = scenario.processor.kind or scenario.processor.name
    return [build_id(_content(m.name, v.name), kind) for m in scenario.models for v in m.variants if is_one(v)]


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
                asleep_bytes=None if shape.asleep_mb is None else megabytes(shape.asleep_mb),
                sleep_ns=round(shape.wakes_in_ms * NS_PER_MS),
                wake_ns=round(shape.wakes_in_ms * NS_PER_MS),
            )
    return costs
