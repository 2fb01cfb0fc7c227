"""Jellyfish's experiments, one number a name: what each measures is said in `stated`.

A repetition is a seed: other arrivals, other points of the trace, another LTE trace. All policies of a repetition have
the same links, the same clients and the same patience (a frame is given up when its promise is broken).
"""

from collections.abc import Mapping, Sequence
from itertools import product
from random import Random
from typing import Any

from appliance.lab.scenario import parse_scenario
from appliance.lab.simulation import simulate
from reproduce.claims import Experiment, Numbers, named
from reproduce.jellyfish.zoo import variants

OURS = "exchange"
EDF = ("edf-smallest", "edf-middle", "edf-largest")
"""The planner refuses who does not fit."""
OPEN = ("open-smallest", "open-middle", "open-largest")
"""Nobody is refused, as in the paper."""
AS_THERE = tuple(f"{policy}, rate" for policy in OPEN)
"""The same with devices that fit pictures to the rate of their link only, as in the paper: many come too late."""
BASELINES = (*EDF, *OPEN, *AS_THERE)
MIDDLE_PX = 352
ABLATIONS = {
    "pictures of one size": f"one-picture, rate, {MIDDLE_PX}",
    "by the link only, 50 % for the computation": "half-budget, rate",
    "by the link only, 75 % for the computation": "three-quarters-budget, rate",
    "by the deadline, 50 % for the computation": "half-budget",
    "by the deadline, 75 % for the computation": "three-quarters-budget",
}
"""Of data adaptation, and the compute budget (§VI-D)."""
GPUS = 2
DURATION_S = 60.0
"""The synthetic trace takes 140 s; each client begins at a point of its own."""
APART_S = (1.0, 9.0)
"""Clients come 1 to 10 s after one another (§VI-B): 5 on average. Were it exactly 5, which is a whole number of frames,
all cameras would capture at the same instants."""
RTT_MS = 2.0
"""Two machines in one room; only the rate was shaped."""
SLOS_MS, RATES, CLIENTS = (75, 100, 150), (15, 25), (1, 2, 4, 8)
TRACES = {"synthetic": "stairs", "lte": "lte"}
MIXED: Mapping[int, Sequence[tuple[int, int]]] = {
    4: ((75, 15), (100, 15), (150, 25), (75, 25)),
    8: ((75, 15), (100, 15), (150, 15), (75, 15), (100, 25), (150, 25), (75, 25), (100, 25)),
}
"""(SLO ms, frames/s) of heterogeneous clients (§VI-C), as the authors' repository has them."""


def setting(slo_ms: int, rate: int, clients: int) -> list[tuple[int, int]]:
    """Clients that are all alike."""
    return [(slo_ms, rate)] * clients


def run(clients: Sequence[tuple[int, int]], trace: str, policy: str, seed: int, duration_s: float) -> Numbers:
    """`missed` of the frames due, `accuracy`: Σ accuracy · in time / frames due of all clients that came, were they
    served or not; `busy`, latency percentiles.
    """
    found = simulate(parse_scenario(document(clients, trace, policy, seed, duration_s))).outcome.document()
    figures: Any = found["sessions"]
    latency: Any = found["latency_ms"]
    wanted = sum(figures["groups"][f"c{i}"]["captured"] for i in range(len(clients))) if len(clients) > 1 else 0
    wanted = wanted or figures["captured"]
    due, in_time = figures["due"], figures["in_time"] or 0.0
    busy: Any = found["processors"]
    return {
        "missed": 1.0 - in_time,
        "accuracy": (figures["accuracy_in_time"] or 0.0) * due / max(1, wanted),
        "windows": figures["within_slo"] if figures["within_slo"] is not None else 0.0,
        "served": figures["served_mean"],
        "busy": busy["gpu"]["busy"],
        "p50": latency["p50"] or 0.0,
        "p99": latency["p99"] or 0.0,
    }


def document(
    clients: Sequence[tuple[int, int]], trace: str, policy: str, seed: int, duration_s: float
) -> dict[str, Any]:
    """The scenario. `policy`: its name, and after commas what pictures are fitted to, where that is no deadline, and
    their size, where that is always the same."""
    policy, fits, sends_px = (*policy.split(", "), "", "")[:3]
    random, arrive_s = Random(f"{seed}/arrivals"), [0.0]
    for _ in clients[1:]:
        arrive_s.append(arrive_s[-1] + random.uniform(*APART_S))
    device = {"fits": fits or "deadline", **({"sends_px": int(sends_px)} if sends_px else {})}
    network = {"like": TRACES[trace], "begins_anywhere": True, "rtt_ms": RTT_MS, "downlink_mbps": 1000.0}
    return {
        "seed": seed,
        "duration_s": duration_s,
        "box": {"memory_mb": 11_000, "processors": [{"name": "gpu", "concurrency": GPUS}]},
        "models": [{"name": "yolo", "variants": variants()}],
        "applications": [{"name": "traffic", "model": "yolo"}],
        "policies": {"adaptation": policy},
        "sessions": [
            {
                "name": f"c{index}",
                "application": "traffic",
                "rate_rps": rate,
                "latency_slo_ms": slo_ms,
                "arrive_s": arrive_s[index],
                **device,
                "network": network,
            }
            for index, (slo_ms, rate) in enumerate(clients)
        ],
    }


def _experiment(name: str, clients: Sequence[tuple[int, int]], trace: str, policy: str) -> Experiment:
    return lambda seed: named(f"{name}/{policy}", run(clients, trace, policy, seed, DURATION_S))


def _alike(slo_ms: int, rate: int, clients: int, trace: str, policy: str) -> Experiment:
    name = f"{trace}/{slo_ms}/{rate}/{clients}"
    return _experiment(name, setting(slo_ms, rate, clients), trace, policy)


def _experiments() -> dict[str, Experiment]:
    found: dict[str, Experiment] = {}
    for slo_ms, rate, clients in product(SLOS_MS, RATES, CLIENTS):
        found[f"grid {slo_ms} {rate} {clients}"] = _alike(slo_ms, rate, clients, "synthetic", OURS)
    for trace, slo_ms in product(TRACES, (100, 150)):
        for policy in BASELINES if trace == "synthetic" else (OURS, *BASELINES):
            found[f"compare {trace} {slo_ms} {policy}"] = _alike(slo_ms, 15, 4, trace, policy)
    for slo_ms, policy in product(SLOS_MS, ABLATIONS.values()):
        found[f"ablation synthetic {slo_ms} {policy}"] = _alike(slo_ms, 15, 4, "synthetic", policy)
    for number, policy in product(MIXED, (OURS, "open-middle", "open-middle, rate")):
        found[f"mixed {number} {policy}"] = _experiment(f"lte/mixed/{number}", MIXED[number], "lte", policy)
    return found


EXPERIMENTS: Mapping[str, Experiment] = _experiments()
