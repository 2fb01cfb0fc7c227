"""Zoos as plain numbers: application → variants with MB, accuracy in per cent, milliseconds of a load and of a run."""

from collections.abc import Mapping

from reproduce.edge_multiai.table2 import LOAD_MS_PER_MB, TABLE_II

Variants = tuple[tuple[str, float, float, float, float], ...]

ZOOS: Mapping[str, Mapping[str, Variants]] = {
    "table-ii": {
        name: tuple((v, mb, accuracy, round(mb * LOAD_MS_PER_MB), run) for v, mb, accuracy, run in variants)
        for name, variants in TABLE_II.items()
    },
    "demo": {
        "faces": (("fp32", 7.7, 100.0, 16, 145), ("int8", 3.5, 100.0, 228, 155)),
        "objects": (("fp32", 15.8, 100.0, 82, 336), ("int8", 5.1, 98.3, 303, 200)),
        "page-side": (("fp32", 7.0, 87.5, 47, 29), ("int8", 2.9, 93.8, 134, 50)),
        "read-text": (("fp32", 12.9, 97.6, 62, 56), ("int8", 5.9, 97.4, 396, 61)),
        "what": (("fp32", 18.8, 87.5, 101, 75), ("int8", 6.4, 87.5, 183, 56)),
        "what-large": (("fp32", 25.0, 87.5, 120, 184), ("int8", 8.7, 87.5, 356, 194)),
        "who": (("fp32", 12.9, 100.0, 20, 84), ("int8", 3.9, 100.0, 83, 49)),
    },
}
"""The demo's as `appliance scenario` wrote them on 2 virtual cores with other work on them, 16 samples for each
accuracy.
"""
