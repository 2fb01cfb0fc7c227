"""Jellyfish's zoo: one detector at 17 sizes.

*Given*: sides, and bytes of a frame as large as the paper's videos had (constants of its code). *Fitted*: run times,
to the four that the text states (23 ms, 32 ms for a batch of 4, 90 and 32 frames/s). *Assumed*: accuracies, mAP of
such detectors, flat towards the largest.
"""

from typing import Any

FRAME_BYTES = {
    128: 10283,
    160: 14918,
    192: 20614,
    224: 26595,
    256: 34003,
    288: 40573,
    320: 47769,
    352: 56698,
    384: 65236,
    416: 74668,
    448: 84117,
    480: 93141,
    512: 103833,
    544: 114719,
    576: 124916,
    608: 136391,
    640: 143770,
}
"""By side in pixels."""
ACCURACIES = (22.0, 27.0, 31.0, 34.3, 36.9, 39.0, 40.8, 42.3, 43.5, 44.5, 45.4, 46.1, 46.7, 47.2, 47.6, 47.9, 47.4)
"""In the order of sides; the largest but one is the best."""
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
        for (side, size), accuracy in zip(FRAME_BYTES.items(), ACCURACIES, strict=True)
    ]
