"""A box of a scenario's parts: what `runtime.assembly` makes for the running box, on emulated processors."""

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import geometric_mean
from typing import TypeVar

import numpy as np

from appliance.clock import NS_PER_MS
from appliance.domain.catalogue import (
    Accuracy,
    Application,
    Evidence,
    Late,
    Latency,
    Model,
    Precision,
    Prefer,
    Profile,
    Quota,
    RunBound,
    TaskSpec,
    Tenant,
    TensorSpec,
    Unverified,
    Variant,
)
from appliance.domain.hardware import PreparedForm, ProcessorDescription
from appliance.domain.names import application_id, build_id, content_of, model_id, part_build_id, variant_id
from appliance.domain.request import Tensors
from appliance.lab.faults import SPARE_BYTES, Machine
from appliance.lab.forecasts import Given
from appliance.lab.groups import Cores, EmulatedGroups
from appliance.lab.journal import Journal
from appliance.lab.loop import START_NS, VirtualClock
from appliance.lab.networks import INPUT, OUTPUT, Table, cut_of, kind_of, part_ms, parts_of, times_of
from appliance.lab.policies import Stopwatch
from appliance.lab.processors import BuildCost, EmulatedMemory, EmulatedProcessor
from appliance.lab.scenario import (
    BoxProcessor,
    ModelShape,
    Scenario,
    TenantShape,
    UnitGraph,
    VariantShape,
    megabytes,
    p99_of,
    run_bytes_of,
    served_of,
)
from appliance.lab.workload import draw, predictions
from appliance.policies.batching import BATCHING_POLICIES
from appliance.policies.batching import DEFAULT as DEFAULT_BATCHING
from appliance.policies.dispatch import DEFAULT as DEFAULT_DISPATCH
from appliance.policies.dispatch import DISPATCH_POLICIES
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
from appliance.runtime.ports import RunGroup
from appliance.runtime.sessions.sent import BYTES_PER_PIXEL
from appliance.runtime.telemetry import Telemetry

T = TypeVar("T")

TENSORS: Tensors = {INPUT: np.zeros(1, np.float32)}
"""What every request carries."""
_INPUTS = (TensorSpec(INPUT, "FP32", (-1,)),)
_OUTPUTS = (TensorSpec(OUTPUT, "FP32", (-1,)),)


@dataclass(frozen=True)
class LabBox:
    """The parts that a simulation holds on to."""

    core: RuntimeParts
    clock: VirtualClock
    processors: tuple[EmulatedProcessor, ...]
    memory: EmulatedMemory
    """Of all of them."""
    on_change: Callable[[], None]
    """Called when a processor has come or gone."""
    groups: tuple[RunGroup, ...]
    """Who takes runs at the same time."""
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
    memory = EmulatedMemory(scenario.memory_bytes, megabytes(scenario.box.overhead_mb))
    spare_bytes = megabytes(scenario.box.spare_mb)
    machine = Machine(scenario.budget_bytes, max(SPARE_BYTES, spare_bytes))
    given = _given(scenario)
    box = EmulatedGroups(_cores(scenario, clock, memory))
    is_alone = len(box.processors) == 1
    groups = (_alone(box.processors[0]),) if is_alone else box.groups()
    ports = RuntimePorts(
        clock=clock,
        processor=box.processors[0] if is_alone else box,
        groups=() if is_alone else groups,
        kinds=() if is_alone else box.kinds,
        fingerprints={} if is_alone else dict.fromkeys(box.kinds, ""),
        builds=_Builds(),
        telemetry=telemetry,
        events=journal,
        windows=journal,
        decisions=journal,
        available_bytes=machine.available_bytes,
        forecaster_of=_forecaster_of(scenario, given),
        memory_forecaster=Trend(),
        background=inline,
        save_forecasters=lambda texts: None,
        save_memory_forecaster=lambda text: None,
        seed=scenario.seed,
        given_forecasts=given,
        candidates=_candidates(scenario),
    )
    core = assemble(ports, _policies(scenario, stopwatch), _config(scenario))
    core.memory.set_overhead(megabytes(scenario.box.overhead_mb))
    core.memory.runs.spare_bytes = spare_bytes
    _fill(core.catalogue, scenario)

    def follow() -> None:
        if not is_alone:
            box.follow(core)

    return LabBox(core, clock, box.processors, memory, follow, groups, machine, journal, stopwatch, telemetry)


def _alone(processor: EmulatedProcessor) -> RunGroup:
    described = processor.describe()
    return RunGroup(described.name, described.workers, processor, {described.kind: ""})


def device_kinds(scenario: Scenario) -> frozenset[str]:
    """Kinds of processors whose workers are streams of one device: those with run times of several runs at once."""
    variants = [variant for model in scenario.models for variant in model.variants]
    return frozenset(
        kind_of(one)
        for one in scenario.box.processors
        if any(level > 1 for variant in variants for _, level in times_of(variant, one) or {})
    )


def _cores(scenario: Scenario, clock: VirtualClock, memory: EmulatedMemory) -> list[Cores]:
    """The processors, those that share cores together."""
    sizes = {group.name: group.cores for group in scenario.box.groups}
    together: dict[str, list[BoxProcessor]] = {}
    for shape in scenario.box.processors:
        together.setdefault(f"alone/{shape.name}" if shape.group is None else f"group/{shape.group}", []).append(shape)
    found = []
    for shapes in together.values():
        is_shared = len(scenario.box.processors) > 1 and shapes[0].group is not None
        widest = max(shape.concurrency for shape in shapes)
        workers = sizes.get(shapes[0].group or "", widest) if is_shared else widest
        made = [
            EmulatedProcessor(
                clock,
                _description(shape, workers),
                _costs(scenario, shape),
                memory,
                scenario.box.loads_parallel_max,
                scenario.seed,
            )
            for shape in shapes
        ]
        found.append(Cores(tuple(made), workers, _speed(scenario, shapes[0])))
    return found


def _speed(scenario: Scenario, shape: BoxProcessor) -> float:
    """Of a processor beside the first one of its kind, over all networks: what a machine says of its cores."""
    first = next(one for one in scenario.box.processors if kind_of(one) == kind_of(shape))
    pairs = [(times_of(v, first), times_of(v, shape)) for model in scenario.models for v in model.variants]
    ratios = [own[1, 1] / there[1, 1] for own, there in pairs if own and there and (1, 1) in own and (1, 1) in there]
    return geometric_mean(ratios) if ratios else 1.0


def _policies(scenario: Scenario, stopwatch: Stopwatch) -> Policies:
    eviction, dispatch = scenario.policies.get("eviction", DEFAULT), scenario.policies.get("dispatch", DEFAULT_DISPATCH)
    selection = scenario.policies.get("selection", DEFAULT_SELECTION)
    return Policies(
        selection=SELECTION_POLICIES[selection](),
        selection_name=selection,
        batching=BATCHING_POLICIES[scenario.policies.get("batching", DEFAULT_BATCHING)](),
        eviction=stopwatch.timed("eviction", EVICTION_POLICIES[eviction]()),
        eviction_name=eviction,
        dispatch=stopwatch.timed("dispatch", DISPATCH_POLICIES[dispatch]()),
        dispatch_name=dispatch,
    )


def _config(scenario: Scenario) -> RuntimeConfig:
    box = scenario.box
    return RuntimeConfig(
        budget_bytes=scenario.budget_bytes,
        wait_ms_max=box.wait_ms_max,
        asleep_share=box.asleep_share,
        timeout_ms=box.timeout_ms,
        queue_len_max=box.queue_len_max,
        queue_total_max=box.queue_total_max,
        queue_wait_ms_max=box.queue_wait_ms_max,
        loss_max=box.loss_max,
        **box.residency.model_dump(),
    )


async def inline(compute: Callable[[], T]) -> T:
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
            catalogue.put_model(_model(model, owners[model.name], scenario.box.processors))
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
                unverified=Unverified(shape.unverified),
            )
        )


def _description(shape: BoxProcessor, workers: int) -> ProcessorDescription:
    domain = "host" if shape.memory_mb is None else shape.name
    return ProcessorDescription(shape.name, kind_of(shape), workers, 1, domain, "emulated")


def _model(shape: ModelShape, owner: str, processors: Sequence[BoxProcessor]) -> Model:
    model = model_id(owner, shape.name)
    variants = tuple(_variant(model, shape, variant, processors) for variant in shape.variants)
    return Model(model, owner, shape.name, TaskSpec(), variants)


def _profile(shape: VariantShape, processor: BoxProcessor, latencies: Table) -> Profile:
    """As measured on a processor."""
    return Profile(
        processor.name,
        megabytes(shape.size_mb),
        megabytes(shape.peak_mb or shape.size_mb),
        shape.load_ms,
        shape.load_ms,
        _latencies(latencies, p99_of(shape, processor)),
        kind=kind_of(processor),
        asleep_bytes=None if shape.asleep_mb is None else megabytes(shape.asleep_mb),
        wake_ns=None if shape.asleep_mb is None else round(shape.wakes_in_ms * NS_PER_MS),
        shared_rows_max=shape.together_max or max(batch for batch, _ in latencies),
        runs=tuple(RunBound({INPUT: (batch,)}, 0.0, taken) for batch, taken in run_bytes_of(shape).items()),
    )


def _profile_in_parts(shape: VariantShape, processors: Sequence[BoxProcessor]) -> Profile:
    """Of a network that no processor runs whole: each unit on its quickest; of no kind."""
    assert isinstance(shape.units, UnitGraph), "any other network was refused when it was read"
    units = shape.units
    quickest_ms = [
        min(part_ms(units, part, one) for one in processors if kind_of(one) in part[0].processors)
        for part in parts_of(units, processors)
    ]
    return replace(_profile(shape, processors[0], {(1, 1): sum(quickest_ms)}), processor="", kind="")


def _variant(model: str, of: ModelShape, shape: VariantShape, processors: Sequence[BoxProcessor]) -> Variant:
    first = {kind_of(one): one for one in reversed(processors)}
    kinds = dict.fromkeys(kind_of(one) for one in processors)
    found = {kind: times_of(shape, first[kind]) for kind in kinds}
    profiles = [_profile(shape, first[kind], table) for kind, table in found.items() if table is not None]
    if not profiles:  # no processor runs all of it
        profiles = [_profile_in_parts(shape, processors)]
    profile = profiles[0]
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
        accuracy=Accuracy(
            shape.accuracy,
            "as given",
            "as given",
            1,
            evidence=Evidence.STATED if shape.verified else Evidence.NOISE,
            loss_points=shape.loss,
        ),
        profile=profile,
        other_profiles=tuple(profiles[1:]),
        cut=cut_of(shape, processors),
    )


def input_px(shape: VariantShape) -> int | None:
    """Longer side of the pictures that devices send for it; None where nothing is said of them."""
    if shape.input_px is not None or not shape.input_bytes:
        return shape.input_px
    return max(1, round(math.sqrt(shape.input_bytes / BYTES_PER_PIXEL)))


def _latencies(latencies: Table, p99_ms: Table) -> tuple[Latency, ...]:
    """As an import measures them, by (batch, concurrency); the least concurrency that is written stands for one run at
    a time. Of what no P99 is written, that of as many rows alone says how much runs differ.
    """
    alone = min(concurrency for _, concurrency in latencies)
    spread = {
        batch: p99_ms.get((batch, 1), p99_ms.get((batch, alone), ms)) / ms
        for (batch, level), ms in latencies.items()
        if level == alone
    }
    rows = sorted((1 if level == alone else level, batch, level, ms) for (batch, level), ms in latencies.items())
    return tuple(
        Latency(batch, ms, p99_ms.get((batch, level), ms * spread.get(batch, 1.0)), concurrency)
        for concurrency, batch, level, ms in rows
    )


def _content(model: str, variant: str) -> str:
    return hashlib.sha256(f"{model}:{variant}".encode()).hexdigest()


def resident_builds(scenario: Scenario, catalogue: Catalogue) -> list[str]:
    """Builds that are in memory when the scenario starts."""
    return _builds(scenario, catalogue, lambda variant: variant.resident)


def sleeping_builds(scenario: Scenario, catalogue: Catalogue) -> list[str]:
    """Builds that are asleep when the scenario starts."""
    return _builds(scenario, catalogue, lambda variant: variant.asleep)


def _builds(scenario: Scenario, catalogue: Catalogue, is_one: Callable[[VariantShape], bool]) -> list[str]:
    """As they serve, of the models that somebody may ask."""
    users = {shape.model: application_id(shape.tenant, shape.name) for shape in reversed(scenario.applications)}
    entries = {model: catalogue.entry(user) for model, user in users.items()}
    return [
        entries[m.name].servables[v.name].build_id
        for m in scenario.models
        if m.name in entries
        for v in m.variants
        if is_one(v)
    ]


def content_names(scenario: Scenario) -> dict[str, tuple[str, str]]:
    """Content → (model, variant), for people: what all builds of a variant are made of."""
    return {content_of(_content(m.name, v.name)): (m.name, v.name) for m in scenario.models for v in m.variants}


def _costs(scenario: Scenario, processor: BoxProcessor) -> dict[str, BuildCost]:
    """build id → what it costs on a processor: networks that it runs whole, and parts of those that are cut."""
    costs: dict[str, BuildCost] = {}
    kind = kind_of(processor)
    for model in scenario.models:
        users = tuple(a.name for a in scenario.applications if a.model == model.name)
        for shape in model.variants:
            content = _content(model.name, shape.name)
            latencies = times_of(shape, processor)
            if latencies is not None:
                served = served_of(shape, processor)
                costs[build_id(content, kind)] = _cost(shape, users, latencies, served)
            cut = cut_of(shape, scenario.box.processors)
            if cut is None or not isinstance(shape.units, UnitGraph):
                continue
            for number, part in enumerate(parts_of(shape.units, scenario.box.processors)):
                if kind in part[0].processors:
                    share = cut.parts[number].size_bytes / megabytes(shape.size_mb)
                    table = {(1, 1): part_ms(shape.units, part, processor)}
                    costs[part_build_id(content, number, kind)] = _cost(shape, users, table, share=share)
    return costs


def _cost(
    shape: VariantShape, users: tuple[str, ...], latencies: Table, served: Sequence[float] = (), share: float = 1.0
) -> BuildCost:
    """Of a share of a variant's weights."""
    return BuildCost(
        users,
        megabytes(shape.size_mb * share),
        megabytes((shape.peak_mb or shape.size_mb) * share),
        round(shape.load_ms * share * NS_PER_MS),
        round(shape.unloads_in_ms * share * NS_PER_MS),
        {key: round(ms * NS_PER_MS) for key, ms in latencies.items()},
        tuple(round(ms * NS_PER_MS) for ms in served),
        asleep_bytes=None if shape.asleep_mb is None else megabytes(shape.asleep_mb * share),
        sleep_ns=round(shape.wakes_in_ms * share * NS_PER_MS),
        wake_ns=round(shape.wakes_in_ms * share * NS_PER_MS),
        run_bytes=run_bytes_of(shape),
    )
