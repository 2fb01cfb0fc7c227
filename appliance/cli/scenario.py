"""`appliance scenario`: the running box as a scenario of `appliance simulate`, so that "what if ten more cameras
come" is one edit away.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from appliance.cli.connection import Connection, connected
from appliance.domain.accuracy import UNMEASURED_POINTS, points
from appliance.terminal import screen
from appliance.terminal.failure import CommandFailed

if TYPE_CHECKING:
    from appliance.client import Client
    from appliance.wire.access import TenantShape
    from appliance.wire.box import MemoryShape, ProcessorShape
    from appliance.wire.catalogue import ApplicationShape, LatencyShape, ModelShape, SeenShape, VariantShape

SEED, DURATION_S, RATE_RPS = 1, 300.0, 0.5
SERVED = ("ready",)
"""States of variants that the box chooses by itself."""
RUNS_MIN, RUNS_KEPT = 10, 1000
"""Fewer runs say less than the profile, which was off by 8 to 30 % (docs/benchmarks.md); more are written as so many
evenly spaced ones of the sorted.
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
}
"""Key of `box` in a scenario → (section, key) of the box's settings."""


@connected
def scenario(
    box: Connection,
    output: Annotated[Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write it there.")] = None,
    rate_rps: Annotated[float, typer.Option(min=0, help="Rate of applications that nobody has called yet.")] = RATE_RPS,
    duration_s: Annotated[float, typer.Option(min=1, help="Length of the scenario.")] = DURATION_S,
) -> None:
    """Write the running box as a scenario: processors, budget, models with measured profiles, tenants, applications and
    their traffic.

    The traffic of an application is its mean rate since the box started. Run times are those of its latest requests,
    once there are ten, and what is in memory now is in memory at the start. Accuracies are percent. With an admin key
    all tenants are in it, with a tenant's key what that tenant sees. `--json` writes JSON in place of TOML.

    [dim]$[/dim] appliance scenario -o box.toml
    [dim]$[/dim] appliance simulate box.toml
    [dim]$[/dim] appliance replay box.toml
    """
    document = exported(box, rate_rps=rate_rps, duration_s=duration_s)
    if box.as_json and output is None:
        screen.show_json(document)
        return
    import json

    text = json.dumps(document, indent=2) + "\n" if box.as_json else toml_of(document)
    if output is None:
        print(text, end="")
    else:
        output.write_text(text)
        screen.say(f"{screen.count(len(document['applications']), 'application')} in {output}")


def exported(box: Connection, *, rate_rps: float = RATE_RPS, duration_s: float = DURATION_S) -> dict[str, Any]:
    """The document of the box. Raises: CommandFailed when nothing of it could be simulated; what `Client` raises."""
    with box.client() as client:
        system, memory = client.system(), client.memory()
        processors = [one for one in client.processors() if one.state in ("serving", "throttled")]
        workers = len(system.engine["workers"])
        tenants = list(client.tenants())
    uses = [use for tenant in tenants for use in _uses(box, tenant.name)]
    called = _qualified([(use.application.tenant, use.application.name) for use in uses])
    owned = _qualified(sorted({(use.model.tenant, use.model.name) for use in uses}))
    models = {owned[use.model.tenant, use.model.name]: use.model for use in uses}
    served = _served([(owned[use.model.tenant, use.model.name], use) for use in uses])
    if not uses:
        raise CommandFailed("the box has no application with a measured variant; import a model first")
    from appliance.lab.policies import FAMILIES

    return {
        "seed": SEED,
        "duration_s": duration_s,
        "box": {
            "memory_mb": memory.budget_bytes / 1e6,
            "processors": processors_of(processors, workers),
            **_settings(system.settings),
        },
        "policies": {family: name for family, name in system.policies.items() if family in FAMILIES},
        "tenants": [_tenant(tenant, memory) for tenant in tenants],
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
            for use in uses
        ],
        "arrivals": [
            {
                "application": called[use.application.tenant, use.application.name],
                "poisson_rps": round(use.answered / system.uptime_s, 6) if use.answered else rate_rps,
            }
            for use in uses
        ],
    }


def processors_of(processors: "Sequence[ProcessorShape]", workers: int) -> list[dict[str, Any]]:
    """The first one, and those with cores of their own beside it; a kind on the cores of others is none of its own."""
    first, *others = processors
    apart = [one for one in others if one.kind == first.kind]
    own = first.workers if apart and first.workers else workers
    return [
        {"name": first.name, "kind": first.kind, "concurrency": own},
        *({"name": one.name, "kind": one.kind, "concurrency": one.workers or 1} for one in apart),
    ]


def _settings(settings: "Mapping[str, Mapping[str, int | float | None]]") -> dict[str, Any]:
    """Those of the box that a scenario knows, under its names."""
    from appliance.lab.scenario import Residency

    known = {name: settings[section][key] for name, (section, key) in SETTINGS.items()}
    return known | {"residency": {name: settings["residency"][name] for name in Residency.model_fields}}


def measured(model: "ModelShape") -> "list[VariantShape]":
    """The variants that the box chooses among and has profiled."""
    return [v for v in model.variants if v.state in SERVED and v.profile is not None and v.profile.latencies]


class _Use:
    """An application with its model, how many of its requests were answered since the box started, and its latest
    run times by variant.
    """

    def __init__(
        self, application: "ApplicationShape", model: "ModelShape", answered: int, runs: dict[str, list[float]]
    ) -> None:
        self.application, self.model, self.answered, self.runs = application, model, answered, runs


def _uses(box: Connection, tenant: str) -> Iterator[_Use]:
    """A tenant's own applications whose models can be simulated; the others are named to the person."""
    acting = Connection(box.url, box.key, tenant, box.ca, box.state)
    with acting.client() as client:
        answered = client.answered()
        for application in client.applications():
            if application.tenant != tenant:
                continue
            model = _model(client, application)
            if model is None or not measured(model):
                screen.say(f"left out: {tenant}/{application.name} has no variant with a profile")
                continue
            yield _Use(application, model, answered.get(application.name, 0), client.run_times(application.name))


def _served(uses: "list[tuple[str, _Use]]") -> dict[tuple[str, str], list[float]]:
    """(model, variant) → milliseconds of its latest runs, for whichever application."""
    served: dict[tuple[str, str], list[float]] = {}
    for model, use in uses:
        for variant, runs in use.runs.items():
            served.setdefault((model, variant), []).extend(runs)
    return served


def _model(client: "Client", application: "ApplicationShape") -> "ModelShape | None":
    from appliance.domain.errors import ApplianceError

    try:
        return client.model(application.model)
    except ApplianceError:
        return None


def _qualified(owned: list[tuple[str, str]]) -> dict[tuple[str, str], str]:
    """(tenant, name) → the name where it is one tenant's, else `tenant/name`: a scenario has one name space."""
    names = [name for _, name in owned]
    return {(tenant, name): name if names.count(name) == 1 else f"{tenant}/{name}" for tenant, name in owned}


def _tenant(tenant: "TenantShape", memory: "MemoryShape") -> dict[str, Any]:
    """With what it may use, where that is limited."""
    holding = next((h for h in memory.tenants if h.tenant == tenant.name), None)
    limits = {
        "guarantee_mb": holding.guarantee_bytes / 1e6 if holding and holding.guarantee_bytes else None,
        "ceiling_mb": holding.ceiling_bytes / 1e6 if holding and holding.ceiling_bytes is not None else None,
        "rate_rps": tenant.quota.requests_per_s,
        "processor_weight": tenant.quota.processor_weight,
    }
    return {"name": tenant.name} | {key: value for key, value in limits.items() if value is not None}


def _variant(variant: "VariantShape", runs: list[float], processors: "Sequence[ProcessorShape]") -> dict[str, Any]:
    profile, first = variant.serving_profile, variant.profile
    assert profile is not None and first is not None, "those without were left out"
    asleep: dict[str, Any] = {}
    if profile.asleep_bytes and profile.asleep_bytes <= profile.resident_bytes and profile.wake_ms is not None:
        asleep = {
            "asleep_mb": profile.asleep_bytes / 1e6,
            "wake_ms": profile.wake_ms,
            "asleep": variant.residency == "asleep",
        }
    return {
        "name": variant.name,
        "size_mb": max(profile.resident_bytes, 1) / 1e6,
        "peak_mb": max(profile.peak_bytes, profile.resident_bytes, 1) / 1e6,
        "accuracy": points(variant.accuracy.value) if variant.accuracy else UNMEASURED_POINTS,
        **({} if variant.loss is None else {"loss": points(variant.loss)}),
        "load_ms": profile.load_ms,
        **asleep,
        "together_max": profile.shared_rows_max,
        "latency_ms": {
            first.processor: latency_ms(profile.latencies, [row for row in variant.seen if row.processor is None]),
            **_elsewhere(variant, processors),
        },
        "p99_ms": {first.processor: max(profile.latencies[0].p99_ms, 1e-6)},
        "served_ms": served_ms(first.processor, runs),
        "resident": variant.residency == "resident",
    }


def _elsewhere(variant: "VariantShape", processors: "Sequence[ProcessorShape]") -> dict[str, dict[str, float]]:
    """The same on further processors of the first one's kind, as seen there; where nothing was, as on the first."""
    profile = variant.serving_profile
    assert profile is not None, "those without were left out"
    return {
        one.name: latency_ms(
            profile.latencies, [row for row in variant.seen if row.processor == one.name], is_measured=False
        )
        for one in processors[1:]
        if one.kind == processors[0].kind
    }


def latency_ms(
    rows: "Sequence[LatencyShape]", seen: "Sequence[SeenShape]", *, is_measured: bool = True
) -> dict[str, float]:
    """Medians as a variant of a scenario has them: by batch, and `batch x concurrency` of several runs at once; as seen
    where such runs were. But the first as measured, where it was: by it variants are chosen, and `served_ms` says what
    its runs took.
    """
    medians = {(row.batch, row.concurrency): row.p50_ms for row in rows}
    for one in seen:
        if (one.batch, one.concurrency) in list(medians)[is_measured:] and one.elements_max is None and one.p50_ms > 0:
            medians[one.batch, one.concurrency] = one.p50_ms
    return {str(batch) if at_once == 1 else f"{batch}x{at_once}": ms for (batch, at_once), ms in medians.items()}


def served_ms(processor: str, runs: list[float]) -> dict[str, list[float]]:
    """Run times as a variant of a scenario has them; nothing where they are too few to go before the profile."""
    return {processor: evenly(sorted(runs))} if len(runs) >= RUNS_MIN else {}


def evenly(ordered: list[float]) -> list[float]:
    """At most `RUNS_KEPT` of them: each the middle one of as many in a row."""
    count = min(RUNS_KEPT, len(ordered))
    return [round(ordered[(2 * i + 1) * len(ordered) // (2 * count)], 4) for i in range(count)]


def _application(shape: "ApplicationShape", name: str, model: str) -> dict[str, Any]:
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
    }


# -- TOML --------------------------------------------------------------------------------------------------------------


def toml_of(document: dict[str, Any]) -> str:
    """A scenario as TOML: tables and lists of tables down to the innermost tables, which stand on one line."""
    return "\n".join(_lines(document, "")) + "\n"


def _lines(table: dict[str, Any], path: str) -> Iterator[str]:
    inner = {key: value for key, value in table.items() if _is_tables(value) or (not path and isinstance(value, dict))}
    for key, value in table.items():
        if key not in inner:
            yield f"{_key(key)} = {_value(value)}"
    for key, value in inner.items():
        below = f"{path}.{_key(key)}" if path else _key(key)
        for one in value if isinstance(value, list) else [value]:
            yield ""
            yield f"[[{below}]]" if isinstance(value, list) else f"[{below}]"
            yield from _lines(one, below)


def _is_tables(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and isinstance(value[0], dict)


def _key(key: str) -> str:
    return key if key.isidentifier() and key.isascii() else _text(key)


def _value(value: Any) -> str:
    match value:
        case bool():
            return str(value).lower()
        case dict():
            return "{ " + ", ".join(f"{_key(k)} = {_value(v)}" for k, v in value.items()) + " }"
        case list():
            return "[" + ", ".join(map(_value, value)) + "]"
        case str():
            return _text(value)
        case _:
            return repr(value)


def _text(text: str) -> str:
    """JSON's escapes are TOML's too."""
    import json

    return json.dumps(text)
