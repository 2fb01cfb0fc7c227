"""Small scenarios for tests: a box of two applications, changed key by key."""

import copy
from typing import Any

from appliance.lab.scenario import Scenario, parse_scenario
from appliance.lab.simulation import simulate

SMALL: dict[str, Any] = {
    "seed": 3,
    "duration_s": 120,
    "box": {"memory_mb": 700, "processors": [{"name": "cpu", "kind": "cpu"}]},
    "models": [
        {
            "name": "faces",
            "variants": [
                {"name": "fp32", "size_mb": 500, "accuracy": 90, "load_ms": 900, "latency_ms": {"cpu": {"1": 40}}},
                {"name": "int8", "size_mb": 140, "accuracy": 70, "load_ms": 240, "latency_ms": {"cpu": {"1": 20}}},
            ],
        },
        {
            "name": "words",
            "variants": [
                {"name": "fp32", "size_mb": 450, "accuracy": 92, "load_ms": 800, "latency_ms": {"cpu": {"1": 30}}},
                {"name": "int8", "size_mb": 130, "accuracy": 76, "load_ms": 230, "latency_ms": {"cpu": {"1": 15}}},
            ],
        },
    ],
    "applications": [{"name": "door", "model": "faces"}, {"name": "captions", "model": "words"}],
    "policies": {"eviction": "iws-bfe"},
    "arrivals": [{"application": "door", "poisson_rps": 1}, {"application": "captions", "poisson_rps": 0.5}],
}


def document(**changes: Any) -> dict[str, Any]:
    """The small scenario as it is written, with top-level keys replaced."""
    return {**copy.deepcopy(SMALL), **changes}


def scenario(**changes: Any) -> Scenario:
    return parse_scenario(document(**changes))


def figures(written: dict[str, Any]) -> dict[str, Any]:
    """What comes of a scenario, but for the times that decisions took."""
    found: dict[str, Any] = simulate(parse_scenario(written)).outcome.document()
    found.pop("decisions")
    return found


CPU, NPU = {"name": "cpu"}, {"name": "npu"}


def resident(name: str, **variant: Any) -> dict[str, Any]:
    """A model of one variant of 100 MB that is in memory at the start."""
    shape = {"name": "int8", "size_mb": 100, "accuracy": 80, "load_ms": 200, "resident": True, **variant}
    return {"name": name, "variants": [shape]}


def several(*processors: dict[str, Any], slo_ms: float = 100, **changes: Any) -> dict[str, Any]:
    """A scenario with these processors in 500 MB: `door` asks `faces`."""
    return document(
        **{
            "box": {"memory_mb": 500, "processors": list(processors)},
            "applications": [{"name": "door", "model": "faces", "latency_slo_ms": slo_ms}],
            "policies": {},
            "duration_s": 10,
            **changes,
        }
    )
