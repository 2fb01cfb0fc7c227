"""Re-checks an answer of kind `adaptation` against its problem, from the words of the format alone; shares nothing
with the policies.
"""

from fractions import Fraction
from itertools import product
from typing import Any

SLACK = Fraction(1, 10**8)


def faults(problem: dict[str, Any], answer: dict[str, Any]) -> list[str]:
    """Every constraint that the answer breaks, in words; an empty list is a pass."""
    found: list[str] = []
    clients = {c["name"]: c for c in problem["clients"]}
    models = {m["name"]: m for m in problem["models"]}
    if len(answer["workers"]) > problem["workers"]:
        found.append("more workers than there are")
    served = [name for worker in answer["workers"] for name in worker["clients"]]
    if sorted([*served, *answer["unmapped"]]) != sorted(clients):
        found.append("not every client is on exactly one worker or unmapped")
    for worker in answer["workers"]:
        found += _worker_faults(models[worker["model"]], worker, [clients[name] for name in worker["clients"]])
    total = sum(
        Fraction(models[w["model"]]["accuracy"]) * Fraction(clients[name]["rate_rps"])
        for w in answer["workers"]
        for name in w["clients"]
    )
    if abs(total - Fraction(answer["objective"])) > SLACK * (1 + total):
        found.append("the objective is not the sum of accuracy and rate")
    return found


def _worker_faults(model: dict[str, Any], worker: dict[str, Any], clients: list[dict[str, Any]]) -> list[str]:
    latency = model["latency_ms"].get(str(worker["batch"]))
    if latency is None:
        return [f"{model['name']} has no batch {worker['batch']}"]
    found = [f"{c['name']} is late" for c in clients if not in_time(model, Fraction(latency), c)]
    rate = sum((Fraction(c["rate_rps"]) for c in clients), Fraction(0))
    if rate * Fraction(latency) > 1000 * worker["batch"] * (1 + SLACK):
        found.append(f"worker with {model['name']} has too much to do")
    return found


def in_time(model: dict[str, Any], latency_ms: Fraction, client: dict[str, Any]) -> bool:
    budget = Fraction(client["slo_ms"]) - 8000 * Fraction(model["input_bytes"]) / Fraction(client["bandwidth_bps"])
    return 2 * latency_ms <= budget + SLACK * abs(budget)


def optimum(problem: dict[str, Any]) -> tuple[int, float]:
    """Most clients mapped and, with that many, the largest objective: by trying everything.

    For a handful of clients.
    """
    best = (0, 0.0)
    workers = range(problem["workers"])
    values: dict[tuple[str, ...], float | None] = {}
    for places in product(range(-1, problem["workers"]), repeat=len(problem["clients"])):
        groups = [[c for c, p in zip(problem["clients"], places, strict=True) if p == k] for k in workers]
        for group in groups:
            names = tuple(c["name"] for c in group)
            if names not in values:
                values[names] = _group_value(problem["models"], group)
        found = [values[tuple(c["name"] for c in group)] for group in groups]
        if None not in found:
            best = max(best, (sum(len(g) for g in groups), sum(v or 0.0 for v in found)))
    return best


def _group_value(models: list[dict[str, Any]], group: list[dict[str, Any]]) -> float | None:
    """The best Σ accuracy·rate of one worker with these clients; None when no network serves them."""
    if not group:
        return 0.0
    values = [
        sum(m["accuracy"] * c["rate_rps"] for c in group)
        for m in models
        for batch, ms in m["latency_ms"].items()
        if _serves(m, batch, Fraction(ms), group)
    ]
    return max(values, default=None)


def _serves(model: dict[str, Any], batch: str, latency: Fraction, group: list[dict[str, Any]]) -> bool:
    rate = sum((Fraction(c["rate_rps"]) for c in group), Fraction(0))
    return rate * latency <= 1000 * int(batch) * (1 + SLACK) and all(in_time(model, latency, c) for c in group)
