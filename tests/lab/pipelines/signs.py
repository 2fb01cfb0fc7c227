"""A scenario with a pipeline that reads signs."""

import json
from typing import Any

FIND = {"name": "find", "variants": [{"name": "one", "size_mb": 10, "accuracy": 80, "load_ms": 50, "resident": True}]}
READ = {"name": "read", "variants": [{"name": "one", "size_mb": 10, "accuracy": 90, "load_ms": 50, "resident": True}]}
STAGES = [{"application": "find"}, {"application": "read", "after": "find", "items": [3]}]


def document(pipeline: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """20 ms to find, 10 ms to read, one worker."""
    find, read = json.loads(json.dumps([FIND, READ]))
    find["variants"][0]["latency_ms"] = {"cpu": {"1": 20}}
    read["variants"][0]["latency_ms"] = {"cpu": {"1": 10}}
    return {
        "seed": 1,
        "duration_s": 20,
        "box": {"memory_mb": 100, "processors": [{"name": "cpu"}]},
        "models": [find, read],
        "applications": [{"name": "find", "model": "find"}, {"name": "read", "model": "read"}],
        "pipelines": [{"name": "signs", "latency_slo_ms": 200, "stages": STAGES, **pipeline}],
        **changes,
    }
