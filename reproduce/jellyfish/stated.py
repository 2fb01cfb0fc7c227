"""What Jellyfish states in numbers, and what is asked of us, each beside what our runs give (JF-26 to JF-29)."""

from collections.abc import Callable, Sequence
from itertools import product
from statistics import fmean

from reproduce.claims import UNSAID, Claim, Claims, Numbers, Paper, over
from reproduce.jellyfish.experiments import (
    ABLATIONS,
    AS_THERE,
    BASELINES,
    CLIENTS,
    EDF,
    EXPERIMENTS,
    OPEN,
    OURS,
    RATES,
    SLOS_MS,
)

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
    claims.say("VI-B", "worker utilisation, most", "0.75", _most_busy)
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


def _most_busy(numbers: Numbers) -> float:
    return max(value for name, value in numbers.items() if name.endswith(f"/{OURS}/busy"))


PAPER = Paper(EXPERIMENTS, statements, "The box, its processor, the links and the devices are emulated.")
