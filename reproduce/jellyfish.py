"""Jellyfish (RTSS 2022, §VI): experiments on an emulated box, and what it states in numbers beside ours (JF-26 to 29).

A repetition is a seed: other arrivals, other points of the trace, another LTE trace. All policies of a repetition have
the same links, the same clients and the same patience (a frame is given up when its promise is broken).

The zoo is one detector at 17 sizes. *Given*: sides, and bytes of a frame as large as the paper's videos had (constants
of its code). *Fitted*: run times, to the four that the text states (23 ms, 32 ms for a batch of 4, 90 and 32 frames/s).
*Assumed*: accuracies, mAP of such detectors, flat towards the largest.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from random import Random
from statistics import fmean
from typing import Any

from appliance.lab.scenario import parse_scenario
from appliance.lab.simulation import simulate
from reproduce.claims import UNSAID, Claim, Claims, Experiment, Numbers, Paper, named, over

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
    return _experiment(name, [(slo_ms, rate)] * clients, trace, policy)


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


# -- what the paper states ---------------------------------------------------------------------------------------------

MISSES = {(100, 15, 8): "1.153", (75, 25, 8): "15.427"}
MEDIANS = {100: "53.77", 150: "84.62"}
MISSES_MOST = {"synthetic": 1.0, "lte": 1.5}
SETTINGS = tuple((trace, slo_ms) for trace in ("synthetic", "lte") for slo_ms in (100, 150))


def statements(repetitions: Sequence[Numbers]) -> list[Claim]:
    """All of them."""
    claims = Claims(repetitions)
    for trace, slo_ms in SETTINGS:
        what = f"{trace}, {slo_ms} ms, 4 x 15 fps: frames due not in time, %"
        paper = "<= 1" if trace == "synthetic" else "<= 1.5"
        claims.say("VI-B", what, paper, _percent(f"{trace}/{slo_ms}/15/4/{OURS}"), most=MISSES_MOST[trace])
    for trace, slo_ms in SETTINGS:
        at = f"{trace}/{slo_ms}/15/4"
        claims.say("VI-C", f"{trace}, {slo_ms} ms: accuracy in time / best fixed network", "> 1", _gain(at, BASELINES))
        for policy in BASELINES:
            claims.say("VI-C", f"{trace}, {slo_ms} ms, {policy}: not in time, %", UNSAID, _percent(f"{at}/{policy}"))
    for name, baselines in (
        ("who does not fit refused", EDF),
        ("nobody refused, devices as in the paper", AS_THERE),
        ("nobody refused, our devices", OPEN),
        ("best of all", BASELINES),
    ):
        gains = [_gain(f"{trace}/{slo_ms}/15/4", baselines) for trace, slo_ms in SETTINGS]
        claims.say("VI-C", f"accuracy in time / best EDF, {name}: mean", "> 1", _of_all(gains, fmean), least=1.1)
        claims.say("VI-C", f"accuracy in time / best EDF, {name}: least", "> 1", _of_all(gains, min), least=0.98)
    for slo_ms, rate, clients in product(SLOS_MS, RATES, CLIENTS):
        at = f"synthetic/{slo_ms}/{rate}/{clients}/{OURS}"
        what = f"synthetic, {slo_ms} ms, {rate} fps, {clients} clients: not in time, %"
        claims.say("VI-B", what, MISSES.get((slo_ms, rate, clients), "< 1"), _percent(at))
    for slo_ms, paper in MEDIANS.items():
        at = f"synthetic/{slo_ms}/15/2/{OURS}"
        claims.say("VI-B", f"synthetic, {slo_ms} ms, 15 fps, 2 clients: median latency, ms", paper, f"{at}/p50")
    busy = f"/{OURS}/busy"
    claims.say("VI-B", "worker utilisation, most", "0.75", lambda one: max(one[at] for at in one if at.endswith(busy)))
    for clients, ours, middle in ((4, "0.95", "11.78"), (8, "1.62", "31.94")):
        what = f"LTE, {clients} clients of several kinds"
        claims.say("VI-C", f"{what}: not in time, %", ours, _percent(f"lte/mixed/{clients}/{OURS}"))
        there = _percent(f"lte/mixed/{clients}/open-middle, rate")
        claims.say("VI-C", f"{what}, middle network, devices as in the paper: %", middle, there)
        own = _percent(f"lte/mixed/{clients}/open-middle")
        claims.say("VI-C", f"{what}, middle network, our devices: %", UNSAID, own)
    for slo_ms in SLOS_MS:
        at = f"synthetic/{slo_ms}/15/4"
        for name, policy in ABLATIONS.items():
            what = f"synthetic, {slo_ms} ms, 4 x 15 fps, {name}"
            claims.say("VI-D", f"{what}: not in time, %", UNSAID, _percent(f"{at}/{policy}"))
            ratio = over(f"{at}/{policy}/accuracy", f"{at}/{OURS}/accuracy")
            claims.say("VI-D", f"{what}: accuracy in time / ours", "< 1", ratio)
    return claims.found


def _percent(at: str) -> Callable[[Numbers], float]:
    return lambda numbers: 100.0 * numbers[f"{at}/missed"]


def _gain(at: str, baselines: Sequence[str]) -> Callable[[Numbers], float]:
    """Ours over the best of the baselines."""
    best = [f"{at}/{policy}/accuracy" for policy in baselines]
    return over(f"{at}/{OURS}/accuracy", lambda numbers: max(numbers[name] for name in best))


def _of_all(
    gains: Sequence[Callable[[Numbers], float]], pool: Callable[[list[float]], float]
) -> Callable[[Numbers], float]:
    return lambda numbers: pool([gain(numbers) for gain in gains])


PAPER = Paper(EXPERIMENTS, statements, "The box, its processor, the links and the devices are emulated.")
