"""Problems of kind `pipeline`: the paper's worked example as a file, seeded random graphs, and thirty worker types."""

import copy
import json
import random
from pathlib import Path
from typing import Any

Problem = dict[str, Any]

SHAPES: dict[str, tuple[int, tuple[tuple[int, int], ...]]] = {
    "single": (1, ()),
    "fork": (3, ((0, 1), (0, 2))),
    "join": (3, ((0, 2), (1, 2))),
    "diamond": (4, ((0, 1), (0, 2), (1, 3), (2, 3))),
    "zigzag": (4, ((0, 2), (0, 3), (1, 3))),
}
"""And `chainN`: N modules one after the other."""


def _shape(name: str) -> tuple[int, tuple[tuple[int, int], ...]]:
    if name.startswith("chain"):
        count = int(name.removeprefix("chain"))
        return count, tuple((i, i + 1) for i in range(count - 1))
    return SHAPES[name]


def paper(slo_ms: float = 300.0) -> Problem:
    """Tables 3 and 4 of the Scrooge paper, 80 items a second, four times as many at B."""
    problem: Problem = json.loads((Path(__file__).parent / "paper.json").read_text())
    problem["slo_ms"] = slo_ms
    return problem


def paper_sweep() -> list[dict[str, float]]:
    """SLO, optimal cost and its latency, found by exhaustive search from the paper's definitions."""
    sweep: list[dict[str, float]] = json.loads((Path(__file__).parent / "paper_sweep.json").read_text())
    return sweep


def drawn(
    seed: int,
    shape: str,
    *,
    types: int = 2,
    batches: tuple[int, ...] = (1, 4, 16),
    concurrencies: tuple[int, ...] = (1, 3),
    instances: float = 4.0,
    slack: tuple[float, float] = (1.2, 5.0),
) -> Problem:
    """A random pipeline.

    Latency grows with the batch from a fixed part; concurrency lifts throughput, and latency more than that. Rates ask
    for about 0.2 to `instances` workers; the SLO is `slack` times the path of batch 1."""
    dice = random.Random(f"{seed}/{shape}/{types}/{batches}/{concurrencies}")
    count, edges = _shape(shape)
    workers = [{"name": f"t{i:02}", "cost": round(dice.uniform(0.8, 8.0), 2), "available": None} for i in range(types)]
    modules = [_module(dice, f"m{m}", workers, batches, concurrencies, instances) for m in range(count)]
    names = [module["name"] for module in modules]
    fastest = sum(min(2.2 * p["latency_ms"] for p in module["profiles"]) for module in modules)
    return {
        "kind": "pipeline",
        "slo_ms": round(fastest * dice.uniform(*slack), 1),
        "workers": workers,
        "modules": modules,
        "edges": [[names[a], names[b]] for a, b in edges],
    }


def _module(
    dice: random.Random,
    name: str,
    workers: list[dict[str, Any]],
    batches: tuple[int, ...],
    concurrencies: tuple[int, ...],
    instances: float,
) -> dict[str, Any]:
    fixed, each = dice.uniform(3, 25), dice.uniform(1, 10)
    profiles = []
    for worker in workers:
        speed = (worker["cost"] / 3.0) ** dice.uniform(0.5, 1.1) * dice.uniform(0.8, 1.25)
        overlap = dice.uniform(0.1, 0.5)
        for batch in batches:
            for concurrency in concurrencies:
                latency = (fixed + each * batch) / speed * dice.uniform(0.95, 1.05)
                gain = 1.0 + overlap * (1.0 - 1.0 / concurrency) * fixed / (fixed + each * batch) * 3.0
                profiles.append(
                    {
                        "worker": worker["name"],
                        "batch": batch,
                        "concurrency": concurrency,
                        "latency_ms": round(latency * concurrency / gain, 3),
                        "power_w": round(40.0 * worker["cost"] * dice.uniform(0.7, 1.0), 1),
                    }
                )
    typical = 1000.0 * batches[-1] / ((fixed + each * batches[-1]) / 1.0)
    return {"name": name, "rate_rps": round(typical * dice.uniform(0.2, instances), 1), "profiles": profiles}


def scarce(seed: int, shape: str, **more: Any) -> Problem:
    """A random pipeline that cannot have as many workers as it would like, with others' workers running already."""
    problem = copy.deepcopy(drawn(seed, shape, **more))
    dice = random.Random(f"scarce/{seed}/{shape}")
    for worker in problem["workers"]:
        worker["available"] = dice.choice((0, 1, 1, 2, 2, 3, 4, 8))
    names = [module["name"] for module in problem["modules"]]
    problem["existing"] = [
        {
            "worker": worker["name"],
            "index": dice.randrange(5),
            "parts": [{"module": "other", "share": round(dice.uniform(0.0, 0.9), 2)}],
            "loaded": dice.sample(names, 1),
        }
        for worker in problem["workers"]
        if worker["available"] and dice.random() < 0.5
    ]
    return problem


def grouped(seed: int, shape: str, **more: Any) -> Problem:
    """As `scarce`, of three types of which two are on the same cores, with others' parts of both on one of these."""
    problem = copy.deepcopy(drawn(seed, shape, types=3, **more))
    dice = random.Random(f"grouped/{seed}/{shape}")
    first, second, third = problem["workers"]
    for worker in (first, second):
        worker.update(group="cores", available=seed % 5)
    third["available"] = dice.choice((0, 0, 1, 2, None))
    names = [module["name"] for module in problem["modules"]]
    problem["existing"] = [
        {
            "worker": worker["name"],
            "index": 1,
            "parts": [{"module": "other", "share": round(dice.uniform(0.0, 0.5), 2)}],
            "loaded": dice.sample(names, 1),
        }
        for worker in (first, second)
        if seed % 5 and dice.random() < 0.6
    ]
    return problem


def drawing(seed: int, shape: str, **more: Any) -> Problem:
    """As `scarce` or `grouped`, with some profiles that draw of another type, as networks in parts do."""
    problem = copy.deepcopy((grouped if seed % 2 else scarce)(seed, shape, **more))
    dice = random.Random(f"drawing/{seed}/{shape}")
    names = [worker["name"] for worker in problem["workers"]]
    for module in problem["modules"]:
        for profile in module["profiles"]:
            others = [name for name in names if name != profile["worker"]]
            if others and dice.random() < 0.6:
                own_ms = dice.uniform(0.5, 1.0) * profile["latency_ms"]
                profile["throughput_rps"] = 1000.0 * profile["batch"] * profile["concurrency"] / own_ms
                profile["draws"] = [{"worker": dice.choice(others), "share": round(dice.uniform(0.05, 1.0), 3)}]
    return problem


def thirty(seed: int) -> Problem:
    """Thirty worker types, four modules in a chain, batches 1 … 128 at three concurrency levels."""
    batches = tuple(2**i for i in range(8))
    return drawn(seed, "chain4", types=30, batches=batches, concurrencies=(1, 2, 4), instances=6.0)
