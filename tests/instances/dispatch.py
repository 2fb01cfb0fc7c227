"""Problems of kind `dispatch`, drawn at random: small graphs that are mostly no chain."""

from random import Random
from typing import Any

PROCESSORS = ("cpu", "gpu", "npu")


def drawn(seed: int, ops: int = 6, models: int = 2, jobs: int = 3) -> dict[str, Any]:
    """A written problem; whole numbers, so that ends are often equally early."""
    random = Random(seed)
    networks = [_model(random, f"m{index}", random.randint(1, ops)) for index in range(models)]
    return {
        "kind": "dispatch",
        "policy": "least-slack",
        "now_ms": 5,
        "transfer_ms": random.choice([0, 0, 1, 4]),
        "processors": [{"name": name, "busy_until_ms": random.choice([0, 5, 9, 20])} for name in PROCESSORS[:2]]
        + ([{"name": "npu", "busy_until_ms": 0}] if random.random() < 0.7 else []),
        "models": networks,
        "jobs": [_job(random, f"j{index}", random.choice(networks)) for index in range(random.randint(1, jobs))],
    }


def _model(random: Random, name: str, count: int) -> dict[str, Any]:
    names = [f"op{index}" for index in range(count)]
    ops = [
        {
            "name": op,
            "processors": sorted(random.sample(PROCESSORS, random.choice([1, 2, 3, 3]))),
            "inputs": sorted(random.sample(names[:index], min(index, random.choice([0, 1, 1, 2])))),
        }
        for index, op in enumerate(names)
    ]
    latency_ms = {
        processor: {op["name"]: random.randint(0, 9) for op in ops if processor in op["processors"]}
        for processor in PROCESSORS
    }
    random.shuffle(ops)  # the order in the file says nothing
    return {"name": name, "ops": ops, "latency_ms": latency_ms}


def _job(random: Random, name: str, model: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": name,
        "model": model["name"],
        "done_ops": [],
        "arrival_ms": random.randint(0, 5),
        "slo_ms": random.choice([5, 20, 40, 80]),
    }
