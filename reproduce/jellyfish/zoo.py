"""Jellyfish's zoo: one detector at 17 sizes.

*Given*: sides, and bytes of a frame as large as the paper's videos had (constants of its code). *Fitted*: run times,
to the four that the text states (23 ms, 32 ms for a batch of 4, 90 and 32 frames/s). *Assumed*: accuracies, mAP of
such detectors, flat towards the largest.
"""

from typing import Any

SIDES = range(128, 641, 32)
"""Pixels."""
FRAME_BYTES = (
    10283, 14918, 20614, 26595, 34003, 40573, 47769, 56698, 65236, 74668, 84117, 93141, 103833, 114719, 124916, 136391,
    143770,
)  # fmt: skip
ACCURACIES = (22.0, 27.0, 31.0, 34.3, 36.9, 39.0, 40.8, 42.3, 43.5, 44.5, 45.4, 46.1, 46.7, 47.2, 47.6, 47.9, 47.4)
"""As `FRAME_BYTES` in the order of sides; the largest but one is the best."""
BATCH_MAX = 12
FIXED_MS, EACH_MS, MEGAPIXEL_MS = 20.0, 2.0, 53.0
SIZE_MB, LOAD_MS = 250.0, 170.0
"""Loading takes 150 to 200 ms (§VI-G)."""


def run_ms(side: int, batch: int) -> float:
    """P99 of a run."""
    return FIXED_MS + batch * (EACH_MS + MEGAPIXEL_MS * side * side / 1e6)


def variants() -> list[dict[str, Any]]:
    """As a scenario writes them. All are held in memory, as in the paper (§V)."""
    return [
        {
            "name": f"yolo-{side}",
            "size_mb": SIZE_MB,
            "accuracy": accuracy,
            "load_ms": LOAD_MS,
            "resident": True,
            "input_bytes": size,
            "input_px": side,
            "latency_ms": {"gpu": {str(n): round(run_ms(side, n), 2) for n in range(1, BATCH_MAX + 1)}},
        }
        for side, size, accuracy in zip(SIDES, FRAME_BYTES, ACCURACIES, strict=True)
    ]
