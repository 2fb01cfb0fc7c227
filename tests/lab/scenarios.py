"""Small scenarios for tests: a box of two applications, changed key by key."""

import copy
from typing import Any

from appliance.lab.scenario import Scenario, parse_scenario

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
