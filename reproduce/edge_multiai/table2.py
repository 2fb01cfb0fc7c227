"""The five applications of Edge-MultiAI's Table II, and the boxes that the paper's experiments run them on.

Sizes and accuracies (%) are the paper's; `scenarios/edge-multiai-table2.toml` has them. It gives no load and inference
times for these models: loads are taken at 1.6 ms per MB, runs at what such models take on a small accelerator.
"""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from reproduce.edge_multiai.deviation import Traces

LOAD_MS_PER_MB = 1.6
SCENARIO = Path(__file__).parents[2] / "scenarios" / "edge-multiai-table2.toml"
MODELS: list[dict[str, Any]] = tomllib.loads(SCENARIO.read_text(encoding="utf-8"))["models"]
TABLE_II: Mapping[str, tuple[tuple[str, float, float, float], ...]] = {
    model["name"]: tuple(
        (one["name"], one["size_mb"], one["accuracy"], one["latency_ms"]["gpu"]["1"]) for one in model["variants"]
    )
    for model in MODELS
}
"""Application → (variant, MB, accuracy %, ms of a run), the most accurate first."""
NO_LIMIT = 1000.0
"""Of Δ, in mean times between two requests."""
Windows = Literal["paper", "box"]
"""The rules around a policy.

`paper`: windows as wide as Δ says, which nobody may break. `box`: the box's own settings, narrow windows and patience.
"""


def document(traces: Traces, memory_mb: float, policy: str, alpha: float, windows: Windows) -> dict[str, Any]:
    """The scenario of one run, as it would be written in a file."""
    residency: dict[str, Any] = {"alpha": alpha}
    if windows == "paper":
        residency |= {"delta_share_max": NO_LIMIT, "patience_ms": None}
    return {
        "box": {"memory_mb": memory_mb, "processors": [{"name": "gpu", "kind": "gpu"}], "residency": residency},
        "models": MODELS,
        "applications": [{"name": name, "model": name} for name in traces.actual],
        "arrivals": [
            {"application": name, "times_s": list(times), "predicted_s": list(traces.predicted[name])}
            for name, times in traces.actual.items()
        ],
        "policies": {"eviction": policy},
    }
