"""A scenario as people write it: the box, its models, who asks when, what goes wrong.

Keys and units: the format of `appliance simulate`.

`read_scenario` turns a TOML or JSON file into a `Scenario` that is right in itself; what is not built yet is refused by
name.
"""

import json
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn

from pydantic import Field, StringConstraints

from appliance.domain.pipeline import PIPELINES_MAX
from appliance.lab.faults import Fault, check_faults
from appliance.lab.pipeline_shapes import PipelineShape, check_pipelines
from appliance.lab.policies import check_policies
from appliance.lab.problems.base import Malformed, Name, NotNegative, Positive, Shape, known, refuse_duplicates, shaped
from appliance.lab.problems.dispatch import OPERATORS_MAX, OperatorShape
from appliance.lab.session_shapes import SessionShape, check_sessions
from appliance.lab.workload import Arrivals, check_arrivals
from appliance.policies.dispatch.partition import Operator, Uncuttable, partition

LatencyKey = Annotated[str, StringConstraints(pattern=r"^[1-9][0-9]{0,3}(x[1-9][0-9]{0,2})?$")]
"""A batch size, `4`, or batch × concurrency, `4x2`."""
UNLOAD_SHARE = 0.05
"""Unloading takes this share of loading where nothing is said: 5 % of a plain file's load, up to 14 % of a prepared
one's (`scripts/bench loads`).
"""
WAKE_SHARE = 0.1
"""Waking takes this share of loading where nothing is said: 3.2 ms of 33 of a prepared ResNet-50 (`scripts/bench
sleeping`).
"""


class BoxProcessor(Shape):
    name: Name
    kind: Name | None = None
    """None: the name is the kind."""
    concurrency: Annotated[int, Field(ge=1, le=64)] = 1
    memory_mb: Positive | None = None
    group: Name | None = None
    """Processors that share cores."""
    power_w: NotNegative | None = None
    """Of a worker while it runs."""
    price_per_hour: NotNegative | None = None
    """Of a worker."""


class ProcessorGroupShape(Shape):
    """Never more runs at once than cores."""

    name: Name
    cores: Annotated[int, Field(ge=1, le=1024)]


class Residency(Shape):
    """The running box's settings of the same names, with its defaults."""

    alpha: Annotated[float, Field(ge=0, le=2)] = 1.02
    delta_ms: Positive = 500
    delta_share_max: Positive = 0.01
    history_window_s: Positive = 10
    tick_ms: Annotated[float, Field(ge=1, le=1e6)] = 20
    reloads_per_min_max: Annotated[int, Field(ge=1, le=10**6)] = 30
    patience_ms: Annotated[float, Field(ge=0)] | None = 500
    """None: a request that finds only expected applications in its way fails, as in the paper."""
    neighbours_share: Annotated[float, Field(ge=0, le=1)] = 1.0


class Box(Shape):
    """The keys below `groups` are the running box's settings of the same names, with its defaults."""

    memory_mb: Positive | None = None
    """Memory for builds."""
    overhead_mb: NotNegative = 0
    """Memory of guards and other processes during the whole scenario. The budget is `memory_mb` plus this."""
    planners_mb: NotNegative = 0
    """Part of `memory_mb` that planner processes take while no build needs it."""
    spare_mb: NotNegative = 0
    """Memory for runs that the machine has beside the budget."""
    processors: Annotated[list[BoxProcessor], Field(min_length=1, max_length=64)]
    groups: Annotated[list[ProcessorGroupShape], Field(max_length=64)] = Field([])
    queue_len_max: Annotated[int, Field(ge=1, le=10**6)] = 1024
    queue_total_max: Annotated[int, Field(ge=1, le=10**7)] = 4096
    queue_wait_ms_max: Annotated[float, Field(gt=0, le=10**7)] = 10_000
    timeout_ms: Positive = 30_000
    loss_max: Annotated[float, Field(ge=0, le=1)] = 0.005
    wait_ms_max: Positive = 30_000
    asleep_share: Annotated[float, Field(ge=0, le=0.9)] = 0.25
    loads_parallel_max: Annotated[int, Field(ge=1, le=16)] = 2
    media_threads: Annotated[int, Field(ge=1, le=1024)] | None = None
    """That CPU stages of pipelines run in; None: as many as workers."""
    turn_off_s: NotNegative = 30
    """So long a variant stays wished for that no plan of a pipeline has any more."""
    window_ms: Annotated[float, Field(ge=100, lt=1000)] = 450
    """Frames by which pipelines are planned are those of so long."""
    residency: Residency = Field(Residency())


class UnitGraph(Shape):
    """A network's operators, as `appliance plan` reads them; latencies by processor (or its kind) and operator."""

    ops: Annotated[list[OperatorShape], Field(min_length=1, max_length=OPERATORS_MAX)]
    latency_ms: dict[Name, dict[Name, NotNegative]]


class VariantShape(Shape):
    name: Name
    size_mb: Positive
    peak_mb: Positive | None = None
    accuracy: Annotated[float, Field(ge=0, le=1e6)]
    loss: Annotated[float, Field(ge=0, le=1e6)] | None = None
    """How far it may be behind the most accurate one at 95 %, in the unit of `accuracy`; None: nobody knows."""
    verified: bool = True
    """Whether the accuracy was measured on more than noise. An unverified variant serves applications that allow it."""
    load_ms: NotNegative
    unload_ms: NotNegative | None = None
    asleep_mb: Positive | None = None
    """What it takes asleep; None: it cannot sleep, and is unloaded."""
    wake_ms: NotNegative | None = None
    input_bytes: NotNegative = 0
    """Of a picture of its size, as devices send it; 0: nobody knows."""
    input_px: Annotated[int, Field(ge=1, le=100_000)] | None = None
    """Longer side of that picture; None: as the box expects pictures of so many bytes to be."""
    together_max: Annotated[int, Field(ge=1, le=4096)] | None = None
    """Rows of several requests that may share a run; None: as many as the largest batch of `latency_ms`."""
    latency_ms: dict[Name, Annotated[dict[LatencyKey, Positive], Field(min_length=1, max_length=1024)]] = Field({})
    run_mb: dict[Annotated[str, StringConstraints(pattern=r"^[1-9][0-9]{0,3}$")], NotNegative] = Field({})
    """Batch → memory of the activations of a run. Other batches: as the next larger one, else the largest."""
    units: Annotated[int, Field(ge=1, le=64)] | UnitGraph = 1
    """The operators; or how many pieces, which changes nothing, as neighbours with the same processors are one unit."""
    served_ms: dict[Name, Annotated[list[Positive], Field(min_length=1, max_length=10_000)]] = Field({})
    """Run times of one item as a box has seen them, by processor; a run takes one of them at random in place of
    `latency_ms`.
    """
    p99_ms: dict[Name, Positive | Annotated[dict[LatencyKey, Positive], Field(min_length=1, max_length=1024)]] = Field(
        {}
    )
    """By processor, of a run of one item, or as `latency_ms`: decides which variants keep an SLO, and what planners of
    sessions allow for. Absent: as `latency_ms`; of several runs at once as many times that as of one alone."""
    drop_times: Annotated[float, Field(ge=0, le=1000)] = 1.0
    """What its results lose with each frame of age, times the `drop_rate` of a session."""
    resident: bool = False
    """In memory when the scenario starts, as far as there is room."""
    asleep: bool = False
    """Asleep then, as far as there is room."""

    @property
    def unloads_in_ms(self) -> float:
        """As given, else as a share of the load."""
        return self.load_ms * UNLOAD_SHARE if self.unload_ms is None else self.unload_ms

    @property
    def wakes_in_ms(self) -> float:
        """As given, else as a share of the load."""
        return self.load_ms * WAKE_SHARE if self.wake_ms is None else self.wake_ms


class ModelShape(Shape):
    name: Name
    variants: Annotated[list[VariantShape], Field(min_length=1, max_length=256)]


class ApplicationShape(Shape):
    name: Name
    model: Name
    tenant: Name = "default"
    latency_slo_ms: Positive | None = None
    accuracy_min: NotNegative = 0
    weight: Positive = 1
    late: Literal["drop", "run"] = "drop"
    prefer: Literal["balanced", "accuracy", "speed"] = "balanced"
    unverified: Literal["never", "allow"] = "never"


class TenantShape(Shape):
    name: Name
    guarantee_mb: NotNegative = 0
    ceiling_mb: Positive | None = None
    rate_rps: Positive | None = None
    processor_weight: Positive = 1


class Scenario(Shape):
    """`base_dir` is where the relative paths in it start; it is no key of the format."""

    seed: int = 0
    duration_s: Annotated[float, Field(gt=0, le=1e8)] | None = None
    box: Box
    models: Annotated[list[ModelShape], Field(min_length=1, max_length=4096)]
    applications: Annotated[list[ApplicationShape], Field(min_length=1, max_length=4096)]
    tenants: Annotated[list[TenantShape], Field(max_length=4096)] = Field([])
    arrivals: Annotated[list[Arrivals], Field(max_length=4096)] = Field([])
    sessions: Annotated[list[SessionShape], Field(max_length=4096)] = Field([])
    pipelines: Annotated[list[PipelineShape], Field(max_length=PIPELINES_MAX)] = Field([])
    policies: dict[str, str] = Field({})
    faults: Annotated[list[Fault], Field(max_length=4096)] = Field([])
    base_dir: str = "."

    @property
    def processor(self) -> BoxProcessor:
        """The first one; that of an engine."""
        return self.box.processors[0]

    @property
    def has_graphs(self) -> bool:
        """Whether a network is written as a graph of operators."""
        return any(isinstance(variant.units, UnitGraph) for model in self.models for variant in model.variants)

    @property
    def media_threads(self) -> int:
        """As given, else as many as all processors have workers."""
        return self.box.media_threads or sum(one.concurrency for one in self.box.processors)

    @property
    def budget_bytes(self) -> int:
        """Return the memory for builds and for guards and other processes."""
        return self.memory_bytes + megabytes(self.box.overhead_mb)

    @property
    def memory_bytes(self) -> int:
        """Return the memory for builds: the processor's own memory where it has some, else the shared domain; with
        several processors the shared domain, where there is one.
        """
        own_mb = sum(processor.memory_mb or 0.0 for processor in self.box.processors)
        alone = len(self.box.processors) == 1
        size_mb = (own_mb or self.box.memory_mb) if alone else (self.box.memory_mb or own_mb)
        assert size_mb, "checked when it was read"
        return megabytes(size_mb)

    def accuracies(self) -> dict[tuple[str, str], float]:
        """(application, variant) → accuracy."""
        variants = {model.name: model.variants for model in self.models}
        return {(a.name, v.name): v.accuracy for a in self.applications for v in variants[a.model]}


def megabytes(size_mb: float) -> int:
    """Bytes of a size in MB of 10^6."""
    return round(size_mb * 1e6)


def read_scenario(path: Path, overrides: Mapping[str, Any] | None = None) -> Scenario:
    """The scenario in a file, `overrides` (top-level keys; `policies` key by key) in place of what it says.

    Raises: Malformed, OSError.
    """
    document = _parsed(path)
    for key, value in (overrides or {}).items():
        document[key] = {**_table(document, key), **value} if isinstance(value, dict) else value
    return parse_scenario(document, str(path.parent))


def parse_scenario(document: Mapping[str, Any], base_dir: str = ".") -> Scenario:
    """A scenario from the parsed file. Raises: Malformed, naming the key."""
    scenario = shaped(Scenario, {**document, "base_dir": base_dir})
    _check_box(scenario.box)
    _check_models(scenario)
    _check_applications(scenario)
    names = [a.name for a in scenario.applications]
    check_arrivals(scenario.arrivals, names, scenario.duration_s)
    slos = {a.name: a.latency_slo_ms for a in scenario.applications}
    check_sessions(scenario.sessions, slos, scenario.duration_s, base_dir, [p.name for p in scenario.pipelines])
    tenants = {a.name: a.tenant for a in scenario.applications}
    streamed = {one.pipeline for one in scenario.sessions if one.pipeline is not None}
    check_pipelines(scenario.pipelines, tenants, scenario.duration_s, base_dir, streamed)
    devices = [name for entry in scenario.sessions for name in (entry.name, *entry.names())]
    check_faults(scenario.faults, names, [p.name for p in scenario.box.processors], devices)
    check_policies(scenario.policies)
    _check_kinds(scenario)
    if scenario.sessions and scenario.has_graphs:
        raise Malformed("sessions", "is not built yet with networks in units")
    return scenario


def _check_kinds(scenario: Scenario) -> None:
    """Processors of a kind run the same networks: the engine hands out runs by kinds."""
    first: dict[str, BoxProcessor] = {}
    for i, processor in enumerate(scenario.box.processors):
        other = first.setdefault(processor.kind or processor.name, processor)
        if any(_can_run(v, processor) != _can_run(v, other) for model in scenario.models for v in model.variants):
            raise Malformed(f"box.processors[{i}].kind", f"is that of {other.name!r}, which runs other networks")


def _can_run(variant: VariantShape, processor: BoxProcessor) -> frozenset[str]:
    """The operators of a variant that a processor runs; of one that is no graph, its name."""
    if not isinstance(variant.units, UnitGraph):
        return frozenset(() if latency_of(variant, processor) is None else (variant.name,))
    marks = {processor.name, processor.kind or processor.name}
    return frozenset(op.name for op in variant.units.ops if not marks.isdisjoint(op.processors))


def _check_box(box: Box) -> None:
    refuse_duplicates((p.name for p in box.processors), "box.processors")
    refuse_duplicates((g.name for g in box.groups), "box.groups")
    for i, group in enumerate(box.groups):
        known(group.name, [p.group for p in box.processors if p.group is not None], f"box.groups[{i}].name")
    if box.memory_mb is None and all(processor.memory_mb is None for processor in box.processors):
        raise Malformed("box.memory_mb", "is missing")


def _check_models(scenario: Scenario) -> None:
    refuse_duplicates((m.name for m in scenario.models), "models")
    for i, model in enumerate(scenario.models):
        refuse_duplicates((v.name for v in model.variants), f"models[{i}].variants")
        for j, variant in enumerate(model.variants):
            key = f"models[{i}].variants[{j}]"
            if variant.peak_mb is not None and variant.peak_mb < variant.size_mb:
                raise Malformed(f"{key}.peak_mb", "must be >= size_mb")
            if variant.asleep_mb is not None and variant.asleep_mb > variant.size_mb:
                raise Malformed(f"{key}.asleep_mb", "must be <= size_mb")
            if variant.asleep_mb is None and variant.wake_ms is not None:
                raise Malformed(f"{key}.wake_ms", "is of no use without asleep_mb")
            if variant.asleep and (variant.asleep_mb is None or variant.resident):
                raise Malformed(f"{key}.asleep", "needs asleep_mb, and goes with no resident")
            if isinstance(variant.units, UnitGraph):
                _check_units(variant.units, scenario.box.processors, f"{key}.units")
            elif all(latency_of(variant, processor) is None for processor in scenario.box.processors):
                names = " or ".join(repr(processor.name) for processor in scenario.box.processors)
                raise Malformed(f"{key}.latency_ms", f"has nothing for processor {names}")


def _check_units(units: UnitGraph, processors: Sequence[BoxProcessor], key: str) -> None:
    refuse_duplicates((op.name for op in units.ops), f"{key}.ops")
    names = [op.name for op in units.ops]
    bears = {p.name: {p.name, p.kind or p.name} for p in processors}
    for i, op in enumerate(units.ops):
        for j, needed in enumerate(op.inputs):
            known(needed, names, f"{key}.ops[{i}].inputs[{j}]")
        able = [name for name, marks in bears.items() if not marks.isdisjoint(op.processors)]
        if not able:
            raise Malformed(f"{key}.ops[{i}].processors", "has none of the box's processors")
        for name in able:
            table = next(
                (units.latency_ms[mark] for mark in (name, *sorted(bears[name])) if mark in units.latency_ms), {}
            )
            if op.name not in table:
                raise Malformed(f"{key}.latency_ms.{name}", f"lacks operator {op.name!r}, which runs there")
    try:
        partition("", [Operator(op.name, frozenset(), tuple(op.inputs)) for op in units.ops], {})
    except Uncuttable as error:
        raise Malformed(f"{key}.ops", str(error)) from None


def run_bytes_of(variant: VariantShape) -> dict[int, int]:
    """Return the bytes of activations by batch, ascending; a larger batch takes no less."""
    found: dict[int, int] = {}
    for batch, size_mb in sorted((int(key), size_mb) for key, size_mb in variant.run_mb.items()):
        found[batch] = max(megabytes(size_mb), *found.values(), 0)
    return found


def latency_of(variant: VariantShape, processor: BoxProcessor) -> Mapping[tuple[int, int], float] | None:
    """(batch, concurrency) → ms on a processor, under its name or its kind; None when the variant cannot run there."""
    rows = variant.latency_ms.get(processor.name) or variant.latency_ms.get(processor.kind or processor.name)
    if rows is None:
        return None
    return _by_batch(rows)


def _by_batch(rows: Mapping[str, float]) -> dict[tuple[int, int], float]:
    table: dict[tuple[int, int], float] = {}
    for key, ms in rows.items():
        batch, _, concurrency = key.partition("x")
        table[int(batch), int(concurrency or 1)] = ms
    return table


def p99_of(variant: VariantShape, processor: BoxProcessor) -> Mapping[tuple[int, int], float]:
    """P99 of runs as far as the scenario says, (batch, concurrency) → ms."""
    found = variant.p99_ms.get(processor.name) or variant.p99_ms.get(processor.kind or processor.name) or {}
    return _by_batch(found) if isinstance(found, dict) else {(1, 1): found}


def served_of(variant: VariantShape, processor: BoxProcessor) -> list[float]:
    """Run times on a processor as they were seen, ms; none where nobody has."""
    return variant.served_ms.get(processor.name) or variant.served_ms.get(processor.kind or processor.name) or []


def _check_applications(scenario: Scenario) -> None:
    refuse_duplicates((a.name for a in scenario.applications), "applications")
    refuse_duplicates((t.name for t in scenario.tenants), "tenants")
    models = [m.name for m in scenario.models]
    tenants = [t.name for t in scenario.tenants]
    for i, application in enumerate(scenario.applications):
        known(application.model, models, f"applications[{i}].model")
        if tenants and application.tenant != "default":
            known(application.tenant, tenants, f"applications[{i}].tenant")


def _parsed(path: Path) -> dict[str, Any]:
    """The document in a file; TOML by its ending, JSON by its ending or when it starts like it."""
    try:
        text = path.read_bytes().decode()
    except UnicodeDecodeError:
        raise Malformed("", "not a scenario: the text is not UTF-8") from None
    is_json = path.suffix.lower() == ".json" or (path.suffix.lower() != ".toml" and text.lstrip().startswith("{"))
    try:
        document = json.loads(text, parse_constant=_refuse_constant) if is_json else tomllib.loads(text)
    except RecursionError:
        raise Malformed("", "not a scenario: nested too deeply") from None
    except ValueError as error:
        reason = str(error).splitlines()[0][:200]
        raise Malformed("", f"not {'JSON' if is_json else 'TOML'}: {reason}") from None
    if not isinstance(document, dict):
        raise Malformed("scenario", "must be an object")
    return document


def _refuse_constant(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no number there")


def _table(document: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = document.get(key, {})
    if not isinstance(value, dict):
        raise Malformed(key, "must be an object")
    return value
