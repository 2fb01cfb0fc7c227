"""Scenarios drawn at random: boxes from roomy to hopeless, bursts and silences, faults on top of one another."""

from random import Random
from typing import Any

from appliance.lab.scenario import Scenario, parse_scenario
from appliance.policies.residency import EVICTION_POLICIES


def random_scenario(seed: int, duration_s: float = 60) -> Scenario:
    """The scenario of a seed."""
    return parse_scenario(_document(Random(f"scenario/{seed}"), seed, duration_s))


def _document(rng: Random, seed: int, duration_s: float) -> dict[str, Any]:
    models = [_model(rng, f"net{i}") for i in range(rng.randint(1, 6))]
    tenants = [_tenant(rng, name) for name in ("shop", "town")]
    applications = [_application(rng, f"app{i}", models, tenants) for i in range(rng.randint(1, 8))]
    smallest = sum(m["variants"][-1]["size_mb"] for m in models)
    largest = sum(m["variants"][0]["size_mb"] for m in models)
    memory_mb = rng.choice([smallest * rng.uniform(0.3, 1.2), rng.uniform(smallest, largest), largest * 1.2])
    return {
        "seed": seed,
        "duration_s": duration_s,
        "box": {
            "memory_mb": memory_mb,
            "processors": [{"name": "dev", "concurrency": rng.choice([1, 1, 2, 4])}],
            "queue_len_max": rng.choice([3, 256]),
            "queue_total_max": rng.choice([5, 4096]),
            "timeout_ms": rng.choice([500, 30_000]),
            "wait_ms_max": rng.choice([200, 30_000]),
            "loads_parallel_max": rng.choice([1, 2, 4]),
        },
        "models": models,
        "tenants": tenants,
        "applications": applications,
        "arrivals": [_arrivals(rng, a["name"], duration_s) for a in applications],
        "policies": {"eviction": rng.choice(sorted(EVICTION_POLICIES))},
        "faults": [_fault(rng, applications, memory_mb, duration_s) for _ in range(rng.randint(0, 4))],
    }


def _model(rng: Random, name: str) -> dict[str, Any]:
    size_mb, accuracy, load_ms = rng.uniform(5, 600), rng.uniform(70, 99), rng.uniform(0, 2000)
    run_ms = rng.choice([0.5, 5, 50, 400])
    variants = []
    for i in range(rng.randint(1, 4)):
        share = 0.5**i
        variants.append(
            {
                "name": f"v{i}",
                "size_mb": size_mb * share,
                "peak_mb": size_mb * share * rng.choice([1, 1, 1.5]),
                "accuracy": accuracy - 7 * i,
                "load_ms": load_ms * share,
                "latency_ms": {"dev": {"1": run_ms * share, "4": 3 * run_ms * share, "1x2": 1.5 * run_ms * share}},
            }
        )
    return {"name": name, "variants": variants}


def _tenant(rng: Random, name: str) -> dict[str, Any]:
    tenant: dict[str, Any] = {"name": name, "guarantee_mb": rng.choice([0, 50])}
    if rng.random() < 0.3:
        tenant["rate_rps"] = rng.uniform(0.5, 20)
    if rng.random() < 0.3:
        tenant["ceiling_mb"] = rng.uniform(50, 1000)
    return tenant


def _application(rng: Random, name: str, models: list[dict[str, Any]], tenants: list[dict[str, Any]]) -> dict[str, Any]:
    application: dict[str, Any] = {
        "name": name,
        "model": rng.choice(models)["name"],
        "tenant": rng.choice(["default", *(t["name"] for t in tenants)]),
        "weight": rng.choice([1, 1, 5]),
    }
    if rng.random() < 0.5:
        application["latency_slo_ms"] = rng.choice([20, 200, 2000])
    if rng.random() < 0.2:
        application["accuracy_min"] = rng.uniform(50, 95)
    return application


def _arrivals(rng: Random, application: str, duration_s: float) -> dict[str, Any]:
    entry: dict[str, Any] = {"application": application}
    match rng.randrange(3):
        case 0:
            entry["poisson_rps"] = rng.choice([0.05, 0.5, 5])
        case 1:  # a burst at one instant
            entry["times_s"] = [rng.uniform(0, duration_s)] * rng.randint(1, 40)
        case _:
            entry["times_s"] = [rng.uniform(0, duration_s) for _ in range(rng.randint(0, 40))]
    if rng.random() < 0.4:
        entry["predicted_s"] = [rng.uniform(0, duration_s) for _ in range(rng.randint(0, 40))]
    return entry


def _fault(rng: Random, applications: list[dict[str, Any]], memory_mb: float, duration_s: float) -> dict[str, Any]:
    fault: dict[str, Any] = {"at_s": rng.uniform(0, duration_s), "for_s": rng.uniform(0.1, duration_s / 2)}
    if rng.random() < 0.2:
        del fault["for_s"]
    match rng.randrange(5):
        case 0:
            return {**fault, "kind": "processor-lost", "target": "dev"}
        case 1:
            return {**fault, "kind": "slow-down", "factor": rng.choice([0.5, 3, 50])}
        case 2:
            return {**fault, "kind": "load-fails", "application": rng.choice(applications)["name"]}
        case 3:
            return {**fault, "kind": "memory-taken", "mb": memory_mb * rng.uniform(0.1, 1.5)}
        case _:
            return {**fault, "kind": "clock-step", "ms": rng.uniform(-1e7, 1e7)}
