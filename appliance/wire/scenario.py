"""The running box as a scenario of the lab, out of what `/v1` says of it: for `appliance scenario`, and for the box's
own simulations.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from appliance.domain.accuracy import UNMEASURED_POINTS, points
from appliance.domain.hardware import CPU_KINDS
from appliance.domain.overhead import PLANNERS
from appliance.wire.access import TenantShape
from appliance.wire.box import MemoryShape, ProcessorShape, SystemShape
from appliance.wire.catalogue import ApplicationShape, LatencyShape, ModelShape, ProfileShape, SeenShape, VariantShape
from appliance.wire.pipelines import PipelineStatusShape
from appliance.wire.scenario_pipelines import Applications, items_asked, pipelines_of

SEED = 1
SERVED = ("ready",)
"""States of variants that the box chooses by itself."""
RUNS_MIN, RUNS_KEPT = 10, 1000
"""Fewer runs say less than the profile, which was off by 8 to 30 % (docs/benchmarks/lab.md); more are written as so
many evenly spaced ones of the sorted.
"""
SETTINGS = {
    "queue_len_max": ("queues", "len_max"),
    "queue_total_max": ("queues", "total_max"),
    "queue_wait_ms_max": ("queues", "wait_ms_max"),
    "timeout_ms": ("queues", "timeout_ms"),
    "wait_ms_max": ("memory", "wait_ms_max"),
    "loads_parallel_max": ("memory", "loads_parallel_max"),
    "asleep_share": ("memory", "asleep_share"),
    "loss_max": ("selection", "loss_max"),
    "media_threads": ("queues", "media_threads"),
    "turn_off_s": ("pipelines", "turn_off_s"),
    "window_ms": ("pipelines", "window_ms"),
}
"""Key of `box` in a scenario → (section, key) of the box's settings."""


@dataclass(frozen=True, slots=True)
class Use:
    """An application with its model, how many of its requests were answered since the box started, and its latest
    run times by variant.
    """

    application: ApplicationShape
    model: ModelShape
    answered: int
    runs: Mapping[str, Sequence[float]]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What `/v1` says of a box. `uses` have a measured variant each."""

    system: SystemShape
    memory: MemoryShape
    processors: Sequence[ProcessorShape]
    tenants: Sequence[TenantShape]
    uses: Sequence[Use]
    pipelines: Sequence[PipelineStatusShape] = ()

    def names(self) -> dict[tuple[str, str], str]:
        """(tenant, application) → its name in the scenario."""
        return _qualified([(use.application.tenant, use.application.name) for use in self.uses])

    def applications(self) -> Applications:
        """What pipelines may ask."""
        shared = frozenset(
            (use.application.tenant, use.application.name) for use in self.uses if use.application.shared
        )
        return Applications(self.names(), shared)


def scenario_of(box: Snapshot, *, rate_rps: float, duration_s: float) -> dict[str, Any]:
    """The document; `rate_rps` is the rate of applications that nobody has called yet."""
    processors = [one for one in box.processors if one.state in ("serving", "throttled")]
    called = box.names()
    owned = _qualified(sorted({(use.model.tenant, use.model.name) for use in box.uses}))
    models = {owned[use.model.tenant, use.model.name]: use.model for use in box.uses}
    served = _served([(owned[use.model.tenant, use.model.name], use) for use in box.uses])
    uptime_s = box.system.uptime_s
    items = items_asked(box.pipelines, box.applications())
    pipelines = pipelines_of(box.pipelines, box.applications(), uptime_s)
    return {
        "seed": SEED,
        "duration_s": duration_s,
        "box": {
            **_memory_of(box.memory),
            "processors": processors_of(processors, len(box.system.engine["workers"])),
            **_settings(box.system.settings),
        },
        "policies": dict(box.system.policies),
        "tenants": [_tenant(tenant, box.memory) for tenant in box.tenants],
        "models": [
            {
                "name": name,
                "variants": [_variant(v, served.get((name, v.name), []), processors) for v in measured(model)],
            }
            for name, model in sorted(models.items())
        ],
        "applications": [
            _application(
                use.application,
                called[use.application.tenant, use.application.name],
                owned[use.model.tenant, use.model.name],
            )
            for use in box.uses
        ],
        "arrivals": [
            _arrivals(called[use.application.tenant, use.application.name], use.answered, items, uptime_s, rate_rps)
            for use in box.uses
        ],
        **({"pipelines": pipelines} if pipelines else {}),
    }


def _memory_of(memory: MemoryShape) -> dict[str, float]:
    """Return the account of memory: what builds may take, what processes beside them take, and what the machine has for
    runs beside the budget.
    """
    planners = sum(one.bytes for one in memory.beside if one.of == PLANNERS)
    overhead = memory.overhead_bytes - planners  # planners end where builds need their memory
    found = {"overhead_mb": overhead, "planners_mb": planners, "spare_mb": memory.spare_bytes}
    builds = max(1, memory.budget_bytes - overhead)
    return {"memory_mb": builds / 1e6, **{key: count / 1e6 for key, count in found.items() if count}}


def _arrivals(
    application: str, answered: int, items: Mapping[str, int], uptime_s: float, rate_rps: float
) -> dict[str, Any]:
    """Single calls: without the items of pipelines, which a frame brings."""
    single = max(0, answered - items.get(application, 0))
    is_known = answered > 0 or application in items
    return {"application": application, "poisson_rps": round(single / uptime_s, 6) if is_known else rate_rps}


def processors_of(processors: Sequence[ProcessorShape], workers: int) -> list[dict[str, Any]]:
    """Those of a scenario, the box's first one first: each processor with cores or a device of its own, and beside each
    set of cores the other kinds that compute on them, in its group.
    """
    first, *others = processors
    twins = [one for one in others if one.kind == first.kind]
    guests = [one for one in others if one.kind != first.kind and one.kind in CPU_KINDS]
    devices = [one for one in others if one.kind != first.kind and one.kind not in CPU_KINDS]
    own = first.workers if twins and first.workers else workers
    written = []
    for host, concurrency in ((first, own), *((one, one.workers or 1) for one in twins)):
        group = {"group": host.name} if guests else {}
        written.append({"name": host.name, "kind": host.kind, "concurrency": concurrency, **group, **_costs(host)})
        for guest in guests:
            name = guest.name if host is first else f"{guest.name}/{host.name}"
            written.append({"name": name, "kind": guest.kind, "concurrency": concurrency, **group, **_costs(guest)})
    written += [
        {"name": one.name, "kind": one.kind, "concurrency": one.workers or 1, **_memory(one), **_costs(one)}
        for one in devices
    ]
    return written


def _memory(one: ProcessorShape) -> dict[str, float]:
    """Of a device that has its own."""
    return {} if one.memory_budget_bytes is None else {"memory_mb": one.memory_budget_bytes / 1e6}


def _costs(one: ProcessorShape) -> dict[str, float]:
    """Of a worker, as far as they are known: pipelines are planned by them."""
    known = {"power_w": one.watts, "price_per_hour": one.price_per_hour}
    return {name: value for name, value in known.items() if value is not None}


def _settings(settings: Mapping[str, Mapping[str, int | float | None]]) -> dict[str, Any]:
    """Those of the box that a scenario knows, under its names; without what is not set, or that an older box lacks."""
    found = {name: settings.get(section, {}).get(key) for name, (section, key) in SETTINGS.items()}
    known = {name: value for name, value in found.items() if value is not None}
    return known | {"residency": dict(settings["residency"])}


def measured(model: ModelShape) -> list[VariantShape]:
    """The variants that the box chooses among and has profiled."""
    return [v for v in model.variants if v.state in SERVED and v.profile is not None and v.profile.latencies]


def _served(uses: list[tuple[str, Use]]) -> dict[tuple[str, str], list[float]]:
    """(model, variant) → milliseconds of its latest runs, for whichever application."""
    served: dict[tuple[str, str], list[float]] = {}
    for model, use in uses:
        for variant, runs in use.runs.items():
            served.setdefault((model, variant), []).extend(runs)
    return served


def _qualified(owned: list[tuple[str, str]]) -> dict[tuple[str, str], str]:
    """(tenant, name) → the name where it is one tenant's, else `tenant/name`: a scenario has one name space."""
    names = [name for _, name in owned]
    return {(tenant, name): name if names.count(name) == 1 else f"{tenant}/{name}" for tenant, name in owned}


def _tenant(tenant: TenantShape, memory: MemoryShape) -> dict[str, Any]:
    """With what it may use, where that is limited."""
    holding = next((h for h in memory.tenants if h.tenant == tenant.name), None)
    limits = {
        "guarantee_mb": holding.guarantee_bytes / 1e6 if holding and holding.guarantee_bytes else None,
        "ceiling_mb": holding.ceiling_bytes / 1e6 if holding and holding.ceiling_bytes is not None else None,
        "rate_rps": tenant.quota.requests_per_s,
        "processor_weight": tenant.quota.processor_weight,
    }
    return {"name": tenant.name} | {key: value for key, value in limits.items() if value is not None}


def _variant(variant: VariantShape, runs: list[float], processors: Sequence[ProcessorShape]) -> dict[str, Any]:
    profile = variant.serving_profile
    assert profile is not None, "those without were left out"
    asleep: dict[str, Any] = {}
    if profile.asleep_bytes and profile.asleep_bytes <= profile.resident_bytes and profile.wake_ms is not None:
        asleep = {
            "asleep_mb": profile.asleep_bytes / 1e6,
            "wake_ms": profile.wake_ms,
            "asleep": variant.residency == "asleep",
        }
    medians, p99s = _times(variant, profile, processors)
    return {
        "name": variant.name,
        "size_mb": max(profile.resident_bytes, 1) / 1e6,
        "peak_mb": max(profile.peak_bytes, profile.resident_bytes, 1) / 1e6,
        "accuracy": points(variant.accuracy.value) if variant.accuracy else UNMEASURED_POINTS,
        **({} if variant.loss is None else {"loss": points(variant.loss)}),
        **({"verified": False} if not variant.evidence.is_proof else {}),
        "load_ms": profile.load_ms,
        **asleep,
        **_run_mb(variant),
        "together_max": profile.shared_rows_max,
        "latency_ms": medians,
        "p99_ms": p99s,
        "served_ms": served_ms(_served_on(profile, processors), runs),
        "resident": variant.residency == "resident",
    }


def _run_mb(variant: VariantShape) -> dict[str, dict[str, float]]:
    """Return the memory of runs by batch, of the smallest inputs that were measured with that batch."""
    if variant.profile is None or not variant.profile.runs:
        return {}
    batched = next((one.name for one in variant.inputs if one.shape and one.shape[0] < 0), None)
    found: dict[str, float] = {}
    for bound in variant.profile.runs:
        rows = 1 if batched is None else bound.shapes.get(batched, [1])[0]
        found.setdefault(str(rows), bound.peak_bytes / 1e6)
    return {"run_mb": found} if any(found.values()) else {}


def _times(
    variant: VariantShape, serving: ProfileShape, processors: Sequence[ProcessorShape]
) -> tuple[dict[str, dict[str, float]], dict[str, dict[str, float]]]:
    """Medians and P99: by processor of the first one's kind, and by kind of the others that the import measured. What a
    further one of the first one's kind takes is what was seen there, or as on the first.
    """
    first = processors[0]
    measured_on = {one.kind: one for one in variant.profiles} | {serving.kind: serving}
    at_first = measured_on.get(first.kind, serving)
    medians, p99s = {}, {}
    for one in processors:
        is_first_kind = one.kind == first.kind
        profile = at_first if is_first_kind else measured_on.get(one.kind)
        if profile is None:
            continue
        is_twin = is_first_kind and one is not first
        seen_at = one.name if is_twin else None
        seen = [row for row in variant.seen if row.processor == seen_at] if profile is serving else []
        name = one.name if is_first_kind else one.kind
        medians[name] = latency_ms(profile.latencies, seen, is_measured=not is_twin)
        if not is_twin:
            p99s[name] = _p99_ms(profile.latencies, medians[name])
    return medians, p99s


def _served_on(serving: ProfileShape, processors: Sequence[ProcessorShape]) -> str:
    """The key of `served_ms`: the first processor, or the kind of another one."""
    first = processors[0]
    others = {one.kind for one in processors} - {first.kind}
    return serving.kind if serving.kind in others else first.name


def latency_ms(
    rows: Sequence[LatencyShape], seen: Sequence[SeenShape], *, is_measured: bool = True
) -> dict[str, float]:
    """Medians as a variant of a scenario has them: by batch, and `batch x concurrency` of several runs at once; as seen
    where such runs were. But the first as measured, where it was: by it variants are chosen, and `served_ms` says what
    its runs took.
    """
    medians = {(row.batch, row.concurrency): row.p50_ms for row in rows}
    for one in seen:
        if (one.batch, one.concurrency) in list(medians)[is_measured:] and one.elements_max is None and one.p50_ms > 0:
            medians[one.batch, one.concurrency] = one.p50_ms
    return {_key(batch, at_once): ms for (batch, at_once), ms in medians.items()}


def _p99_ms(rows: Sequence[LatencyShape], medians: Mapping[str, float]) -> dict[str, float]:
    """As many times the medians as was measured at import."""
    spread = {_key(row.batch, row.concurrency): row.p99_ms / row.p50_ms if row.p50_ms > 0 else 1.0 for row in rows}
    return {key: max(ms * spread[key], 1e-6) for key, ms in medians.items()}


def _key(batch: int, at_once: int) -> str:
    return str(batch) if at_once == 1 else f"{batch}x{at_once}"


def served_ms(processor: str, runs: list[float]) -> dict[str, list[float]]:
    """Run times as a variant of a scenario has them; nothing where they are too few to go before the profile."""
    return {processor: evenly(sorted(runs))} if len(runs) >= RUNS_MIN else {}


def evenly(ordered: list[float]) -> list[float]:
    """At most `RUNS_KEPT` of them: each the middle one of as many in a row."""
    count = min(RUNS_KEPT, len(ordered))
    return [round(ordered[(2 * i + 1) * len(ordered) // (2 * count)], 4) for i in range(count)]


def _application(shape: ApplicationShape, name: str, model: str) -> dict[str, Any]:
    promised = {} if shape.latency_slo_ms is None else {"latency_slo_ms": shape.latency_slo_ms}
    return {
        "name": name,
        "model": model,
        "tenant": shape.tenant,
        **promised,
        "accuracy_min": points(shape.accuracy_min),
        "weight": shape.weight,
        "late": shape.late.value,
        "prefer": shape.prefer.value,
        "unverified": shape.unverified.value,
    }
