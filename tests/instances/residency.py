"""Written problems of kind `residency`: the sizes of Edge-MultiAI's Table II, and random ones in which every rule
can bind.
"""

import random
from collections.abc import Iterator
from typing import Any

TABLE_II = {
    "face_recognition": [("FP32", 535.1, 90.2), ("FP16", 378.8, 82.5), ("INT8", 144.2, 71.8)],
    "image_classification": [("FP32", 346.4, 94.5), ("FP16", 242.2, 81.3), ("INT8", 106.7, 72.2)],
    "speech_recognition": [("FP32", 285.2, 89.7), ("FP16", 228.0, 77.2), ("INT8", 78.4, 68.0)],
    "sentence_prediction": [("FP32", 471.3, 88.2), ("FP16", 377.6, 81.7), ("INT8", 98.9, 76.2)],
    "text_classification": [("FP32", 499.0, 91.1), ("FP16", 392.2, 82.4), ("INT8", 132.3, 76.6)],
}
LOAD_MS_PER_MB = 1.7
"""The paper gives no load times of these; about what it measures in Table I."""

Problem = dict[str, Any]


def application(name: str, resident: str | None = None, **more: Any) -> dict[str, Any]:
    """One of Table II, not expected soon."""
    variants = [
        {"name": precision, "size_mb": mb, "accuracy": accuracy, "load_ms": mb * LOAD_MS_PER_MB}
        for precision, mb, accuracy in TABLE_II[name]
    ]
    return {"name": name, "variants": variants, "resident": resident, "next_request_s": None, **more}


def problem(applications: list[dict[str, Any]], request: str, **more: Any) -> Problem:
    """At 1000 s, with Δ 1 s and H 3 s in 1500 MB, where nothing else is said."""
    return {
        "kind": "residency",
        "now_s": 1000.0,
        "memory_mb": 1500,
        "history_window_s": 3.0,
        "delta_s": 1.0,
        "applications": applications,
        "request": request,
        **more,
    }


def drawn(seeds: range) -> Iterator[Problem]:
    """Random problems: small whole sizes, so that ties and exact fits are common; every optional key now and then."""
    for seed in seeds:
        yield draw(random.Random(seed))


def draw(chance: random.Random) -> Problem:
    """One random problem whose residents fit its memory."""
    names = [f"a{i}" for i in range(chance.randint(1, 6))]
    tenants = ["t", "u"] if chance.random() < 0.5 else []
    applications = [_drawn_application(chance, name, tenants) for name in names]
    held = sum(v["size_mb"] for a in applications for v in a["variants"] if v["name"] == a["resident"])
    memory = held + chance.choice([0, 0, 1, 2, 3, 5, 8, 13])
    shares = [_drawn_tenant(chance, name, memory / 2) for name in tenants]
    more: dict[str, Any] = {"tenants": shares} if tenants else {}
    asker = chance.choice(names)
    return problem(applications, asker, memory_mb=max(memory, 1), delta_s=chance.choice([0.0, 1.0, 2.0]), **more)


def _drawn_application(chance: random.Random, name: str, tenants: list[str]) -> dict[str, Any]:
    sizes = chance.sample(range(1, 12), chance.randint(1, 3))
    variants = []
    for mb in sorted(sizes, reverse=True):
        more = {"peak_mb": mb + chance.randint(0, 3)} if chance.random() < 0.3 else {}
        load_ms = chance.choice([0, 500, 1500])
        variants.append({"name": f"v{mb}", "size_mb": mb, "accuracy": 60 + 2 * mb, "load_ms": load_ms, **more})
    found: dict[str, Any] = {
        "name": name,
        "variants": variants,
        "resident": chance.choice([None, *(v["name"] for v in variants)]),
        "pinned": chance.random() < 0.15,
        "last_request_s": chance.choice([None, 990.0, 998.0, 1000.0]),
        "next_request_s": chance.choice([None, 998.5, 1000.5, 1002.0, 1010.0, 1020.0]),
        "unexpected_probability": chance.choice([0.0, 0.1, 0.5, 1.0]),
    }
    if chance.random() < 0.3:
        found["accuracy_min"] = chance.choice(variants)["accuracy"]
    if chance.random() < 0.3:
        wished = chance.choice(variants)["name"]
        found["keep"] = [{"variant": wished, "until_s": chance.choice([990, 1100]), "priority": chance.randint(0, 2)}]
    if chance.random() < 0.3:
        found["weight"] = chance.choice([0, 0.5, 3])
    if chance.random() < 0.3:
        found["rate_rps"] = chance.choice([0.01, 1.0])
    if tenants:
        found["tenant"] = chance.choice(tenants)
    return found


def _drawn_tenant(chance: random.Random, name: str, guarantee_max: float) -> dict[str, Any]:
    guarantee = chance.choice([0, int(guarantee_max / 2), int(guarantee_max)])
    return {"name": name, "guarantee_mb": guarantee, "ceiling_mb": chance.choice([None, guarantee + 5, guarantee + 20])}
