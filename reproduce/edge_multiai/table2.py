"""The five applications of Edge-MultiAI's Table II, and the boxes that the paper's experiments run them on.

Sizes and accuracies (%) are the paper's. It gives no load and inference times for these models: loads are taken at 1.6
ms per MB, runs at what such models take on a small accelerator. `scenarios/edge-multiai-table2.toml` has the same
figures.
"""

from collections.abc import Mapping
from typing import Any, Literal

from reproduce.edge_multiai.deviation import Traces

LOAD_MS_PER_MB = 1.6

TABLE_II: Mapping[str, tuple[tuple[str, float, float, float], ...]] = {
    "face_recognition": (("fp32", 535.1, 90.2, 20), ("fp16", 378.8, 82.5, 14), ("int8", 144.2, 71.8, 9)),
    "image_classification": (("fp32", 346.4, 94.5, 18), ("fp16", 242.2, 81.3, 12), ("int8", 106.7, 72.2, 8)),
    "speech_recognition": (("fp32", 285.2, 89.7, 30), ("fp16", 228.0, 77.2, 21), ("int8", 78.4, 68.0, 14)),
    "sentence_prediction": (("fp32", 471.3, 88.2, 12), ("fp16", 377.6, 81.7, 9), ("int8", 98.9, 76.2, 6)),
    "text_classification": (("fp32", 499.0, 91.1, 14), ("fp16", 392.2, 82.4, 10), ("int8", 132.3, 76.6, 7)),
}
"""Application → (variant, MB, accuracy %, ms of a run), the most accurate first."""


def accuracy_range(application: str) -> tuple[float, float]:
    """Least and most accurate variant, for the paper's min-max normalisation."""
    accuracies = [accuracy for _, _, accuracy, _ in TABLE_II[application]]
    return min(accuracies), max(accuracies)


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
        "models": [{"name": name, "variants": [_variant(*row) for row in rows]} for name, rows in TABLE_II.items()],
        "applications": [{"name": name, "model": name} for name in traces.actual],
        "arrivals": [
            {"application": name, "times_s": list(times), "predicted_s": list(traces.predicted[name])}
            for name, times in traces.actual.items()
        ],
        "policies": {"eviction": policy},
    }


def _variant(name: str, size_mb: float, accuracy: float, run_ms: float) -> dict[str, Any]:
    return {
        "name": name,
        "size_mb": size_mb,
        "accuracy": accuracy,
        "load_ms": round(size_mb * LOAD_MS_PER_MB),
        "latency_ms": {"gpu": {"1": run_ms}},
    }
