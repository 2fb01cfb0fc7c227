"""Whether an answer of kind `pipeline` keeps every rule of its problem, from the written JSON alone; shares nothing
with the policies.
"""

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

EPSILON = 1e-6


def broken(problem: Mapping[str, Any], answer: Mapping[str, Any]) -> list[str]:
    """What is wrong with a feasible answer, in words; empty when nothing is."""
    faults: list[str] = []
    worst = _stages(problem, answer, faults)
    path = _critical(problem, worst)
    if path > problem["slo_ms"] * (1 + EPSILON):
        faults.append(f"the critical path takes {path} ms, the SLO is {problem['slo_ms']}")
    if abs(path - answer["latency_ms"]) > EPSILON * max(1.0, path):
        faults.append(f"latency_ms says {answer['latency_ms']}, the critical path takes {path}")
    cost = sum(row["instances"] * _instance_cost(problem, row) for row in answer["allocations"])
    if abs(cost - answer["cost"]) > EPSILON * max(1.0, cost):
        faults.append(f"cost says {answer['cost']}, the instances cost {cost}")
    _placement(problem, answer, faults)
    return faults


def _profile(problem: Mapping[str, Any], row: Mapping[str, Any]) -> tuple[float, float, Mapping[str, Any]]:
    """Latency and throughput of a row's configuration with ballooning, and its profile."""
    module = next(m for m in problem["modules"] if m["name"] == row["module"])
    keys = ("worker", "batch", "concurrency")
    profile = next(p for p in module["profiles"] if all(p[k] == row[k] for k in keys))
    factor = module.get("ballooning") or 1.0
    latency = profile["latency_ms"] * factor
    given = profile.get("throughput_rps")
    throughput = given / factor if given else 1000.0 * profile["batch"] * profile["concurrency"] / latency
    return latency, throughput, profile


def _instance_cost(problem: Mapping[str, Any], row: Mapping[str, Any]) -> float:
    by = problem.get("cost_by", "price")
    profile = _profile(problem, row)[2]
    draws = profile.get("draws", ())
    if by == "seconds":
        return 1.0 + sum(float(draw["share"]) for draw in draws)
    if by == "energy":
        return float(profile["power_w"])
    costs = {worker["name"]: worker["cost"] for worker in problem["workers"]}
    return float(costs[row["worker"]] + sum(draw["share"] * costs[draw["worker"]] for draw in draws))


def _stages(problem: Mapping[str, Any], answer: Mapping[str, Any], faults: list[str]) -> dict[str, float]:
    """The worst latency by module; rates add up, full instances are full, one partial one at most."""
    worst: dict[str, float] = {}
    for module in problem["modules"]:
        rows = [row for row in answer["allocations"] if row["module"] == module["name"]]
        rate = sum(row["rate_rps"] for row in rows)
        if abs(rate - module["rate_rps"]) > EPSILON * max(1.0, rate):
            faults.append(f"{module['name']}: rates add up to {rate}, not {module['rate_rps']}")
        partial = [row for row in rows if abs(row["instances"] - round(row["instances"])) > EPSILON]
        partial += [row for row in rows if row not in partial and row["instances"] < 0.5]
        if len(partial) > 1:
            faults.append(f"{module['name']}: {len(partial)} partial instances")
        latencies = [0.0]
        for row in rows:
            latency, throughput, _ = _profile(problem, row)
            if abs(row["instances"] * throughput - row["rate_rps"]) > EPSILON * max(1.0, row["rate_rps"]):
                faults.append(f"{module['name']}: {row['instances']} instances do not carry {row['rate_rps']}")
            if row["instances"] <= 0 or (row in partial and row["instances"] > 1):
                faults.append(f"{module['name']}: {row['instances']} instances")
            each = row["rate_rps"] if row in partial else throughput
            awaited = {"full": row["batch"], "rest": row["batch"] - 1, "none": 0}[problem.get("batch_wait", "full")]
            latencies.append(latency + 1000.0 * awaited / each)
            if abs(latencies[-1] - row["worst_latency_ms"]) > EPSILON * max(1.0, latencies[-1]):
                faults.append(f"{module['name']}: worst latency is {latencies[-1]}, not {row['worst_latency_ms']}")
        worst[module["name"]] = max(latencies)
    return worst


def _critical(problem: Mapping[str, Any], worst: Mapping[str, float]) -> float:
    """The longest path, by relaxing the edges as often as there are modules."""
    end = dict(worst)
    for _ in problem["modules"]:
        for source, target in problem.get("edges", ()):
            end[target] = max(end[target], end[source] + worst[target])
    return max(end.values())


def _placement(problem: Mapping[str, Any], answer: Mapping[str, Any], faults: list[str]) -> None:
    """Every instance has a place, no worker more than 1, no type or group more workers than available."""
    pools = {worker["name"]: worker.get("group") or worker["name"] for worker in problem["workers"]}
    used: dict[tuple[str, int], float] = defaultdict(float)
    placed: dict[tuple[str, str], list[float]] = defaultdict(list)
    for existing in problem.get("existing", ()):
        used[pools[existing["worker"]], existing["index"]] += sum(p["share"] for p in existing.get("parts", ()))
    for worker in answer["placement"]:
        for part in worker["parts"]:
            used[pools[worker["worker"]], worker["index"]] += part["share"]
            placed[part["module"], worker["worker"]].append(part["share"])
    faults += [f"{key} is used {share}" for key, share in used.items() if share > 1 + EPSILON]
    _instances(problem, answer, placed, faults)
    for worker in problem["workers"]:
        pool = pools[worker["name"]]
        existing = len({e["index"] for e in problem.get("existing", ()) if pools[e["worker"]] == pool})
        count = len({index for name, index in used if name == pool})
        if worker.get("available") is not None and count > max(worker["available"], existing):
            faults.append(f"{worker['name']}: {count} workers, {worker['available']} available")


def _instances(
    problem: Mapping[str, Any],
    answer: Mapping[str, Any],
    placed: dict[tuple[str, str], list[float]],
    faults: list[str],
) -> None:
    """Every instance is placed, and what it draws of other types is; nothing else."""
    wanted: dict[tuple[str, str], list[float]] = defaultdict(list)
    drawn: dict[tuple[str, str], float] = defaultdict(float)
    for row in answer["allocations"]:
        whole = round(row["instances"])
        is_whole = whole >= 1 and abs(row["instances"] - whole) <= EPSILON
        wanted[row["module"], row["worker"]] += [1.0] * whole if is_whole else [row["instances"]]
        for draw in _profile(problem, row)[2].get("draws", ()):
            drawn[row["module"], draw["worker"]] += row["instances"] * draw["share"]
    for key, share in drawn.items():  # on whichever workers, in whatever pieces, beside whole and partial instances
        got = placed.pop(key, [])
        for own in sorted(wanted.pop(key, [])):
            match = min(got, key=lambda one: abs(one - own), default=None)
            if match is None or abs(match - own) > EPSILON:
                faults.append(f"{key}: an instance of {own} is not placed")
            else:
                got.remove(match)
        if abs(sum(got) - share) > EPSILON * max(1.0, share):
            faults.append(f"{key}: {share} workers are drawn, {sum(got)} placed")
    for key in wanted.keys() | placed.keys():
        ask, got = sorted(wanted[key]), sorted(placed[key])
        if len(ask) != len(got) or any(abs(a - g) > EPSILON for a, g in zip(ask, got, strict=True)):
            faults.append(f"{key}: shares {ask} are wanted, {got} placed")
