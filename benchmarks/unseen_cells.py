"""LoadedBuild: `expected-utility` against `iws-bfe` in cells drawn by a seed that nobody has looked at.

Asked: nowhere colder by a point, never less utility by 0.3.

A cell is a zoo (Table II, or the demo's), memory of 40-90 % of all its largest variants, requests of each application
1-60 s apart in the mean, alone or in bursts, and predictions of which up to 60 % are false, or missing, or both, the
true ones some way off. Both policies get the same requests, predictions, windows and patience, those of the box.
Differences are of equal stretches of a run, 20 of them, with Student's interval at 95 %.
"""

import argparse
import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import exp, log
from random import Random
from statistics import fmean
from typing import Any

from appliance.lab.outcome import Answer
from appliance.lab.scenario import parse_scenario
from appliance.lab.simulation import simulate
from benchmarks._zoos_in_numbers import ZOOS
from reproduce.edge_multiai.experiments import OURS, Estimate

YARDSTICK = "iws-bfe"
STRETCHES = 20
BURST = 4.0
"""Requests of a burst, in the mean, a second apart or a tenth of the mean gap, whichever is less."""
COLD_MORE_MAX, UTILITY_LESS_MAX = 1.0, 0.3


@dataclass(frozen=True, slots=True)
class Cell:
    """`gaps_s`: of each application, mean seconds between two requests.

    Shares are of predictions (`false`) and of requests (`missing`).
    """

    number: int
    zoo: str
    memory_mb: float
    gaps_s: tuple[float, ...]
    bursts: bool
    false: float
    missing: float
    off: float
    """How far off true predictions are: standard deviation, in mean gaps."""


@dataclass(frozen=True, slots=True)
class Found:
    """Ours less the yardstick's, and the yardstick's own; cold in per cent."""

    cell: Cell
    requests: int
    cold: Estimate
    utility: Estimate
    theirs: tuple[float, float]


def draw_cell(seed: int, number: int) -> Cell:
    """The same for the same seed and number, however many cells there are."""
    chance = Random(f"{seed}/{number}")
    zoo = chance.choice(sorted(ZOOS))
    largest_mb = sum(max(mb for _, mb, *_ in variants) for variants in ZOOS[zoo].values())
    gaps_s = tuple(_between(chance, 1, 60) for _ in ZOOS[zoo])
    share, kind = chance.uniform(0, 0.6), chance.choice(("false", "missing", "both"))
    return Cell(
        number,
        zoo,
        round(chance.uniform(0.4, 0.9) * largest_mb, 1),
        gaps_s,
        bursts=chance.random() < 0.4,
        false=0.0 if kind == "missing" else share,
        missing=0.0 if kind == "false" else share,
        off=chance.choice((0.02, 0.1, 0.3)),
    )


def _between(chance: Random, least: float, most: float) -> float:
    """Of every order of magnitude alike."""
    return exp(chance.uniform(log(least), log(most)))


def traces(cell: Cell, requests: int, seed: int) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """Application → seconds of its requests, and of what is predicted; `requests` of all together, or a few more or
    less.
    """
    duration_s = requests / sum(1 / gap_s for gap_s in cell.gaps_s)
    actual: dict[str, list[float]] = {}
    predicted: dict[str, list[float]] = {}
    for name, gap_s in zip(ZOOS[cell.zoo], cell.gaps_s, strict=True):
        chance = Random(f"{seed}/{cell.number}/{name}")
        actual[name] = times = list(_times(chance, gap_s, duration_s, cell.bursts))
        true = [abs(chance.gauss(at_s, cell.off * gap_s)) for at_s in times if chance.random() >= cell.missing]
        false = round(len(true) * cell.false / (1 - cell.false))
        predicted[name] = sorted([*true, *(chance.uniform(0, duration_s) for _ in range(false))])
    return actual, predicted


def _times(chance: Random, gap_s: float, duration_s: float, bursts: bool) -> Iterator[float]:
    inside_s = min(1.0, gap_s / 10)
    at_s = 0.0
    while True:
        is_inside = bursts and chance.random() < 1 - 1 / BURST
        mean_s = inside_s if is_inside else BURST * gap_s - (BURST - 1) * inside_s if bursts else gap_s
        at_s += chance.expovariate(1 / mean_s)
        if at_s >= duration_s:
            return
        yield at_s


def measure(job: tuple[Cell, int, int]) -> Found:
    """For a pool of processes: a cell, how many requests, and the seed."""
    cell, requests, seed = job
    actual, predicted = traces(cell, requests, seed)
    ours, theirs = (_answers(cell, policy, actual, predicted) for policy in (OURS, YARDSTICK))
    return Found(
        cell,
        len(ours),
        _difference(ours, theirs, _cold),
        _difference(ours, theirs, _utility),
        (_cold(theirs), _utility(theirs)),
    )


def _answers(
    cell: Cell, policy: str, actual: dict[str, list[float]], predicted: dict[str, list[float]]
) -> list[Answer]:
    """In the order of their requests."""
    answers = simulate(parse_scenario(_document(cell, policy, actual, predicted))).outcome.answers
    return sorted(answers, key=lambda answer: (answer.at_ns, answer.application))


def _document(
    cell: Cell, policy: str, actual: dict[str, list[float]], predicted: dict[str, list[float]]
) -> dict[str, Any]:
    return {
        "box": {"memory_mb": cell.memory_mb, "processors": [{"name": "cpu", "concurrency": 2}]},
        "models": [
            {
                "name": name,
                "variants": [
                    {"name": v, "size_mb": mb, "accuracy": accuracy, "load_ms": load, "latency_ms": {"cpu": {"1": run}}}
                    for v, mb, accuracy, load, run in variants
                ],
            }
            for name, variants in ZOOS[cell.zoo].items()
        ],
        "applications": [{"name": name, "model": name} for name in actual],
        "arrivals": [
            {"application": name, "times_s": times, "predicted_s": predicted[name]} for name, times in actual.items()
        ],
        "policies": {"eviction": policy},
    }


def _cold(answers: Sequence[Answer]) -> float:
    """Per cent: cold, failed and dropped."""
    return 100 * fmean(answer.kind != "warm" for answer in answers)


def _utility(answers: Sequence[Answer]) -> float:
    """Accuracy of the answered over all requests."""
    return fmean(answer.accuracy or 0.0 for answer in answers)


def _difference(
    ours: Sequence[Answer], theirs: Sequence[Answer], figure: Callable[[Sequence[Answer]], float]
) -> Estimate:
    edges = [len(ours) * i // STRETCHES for i in range(STRETCHES + 1)]
    return Estimate.of([figure(ours[a:b]) - figure(theirs[a:b]) for a, b in pairwise(edges)])


def _row(found: Found) -> str:
    cell = found.cell
    parts = (
        f"{cell.number}",
        f"{cell.zoo}, {cell.memory_mb:g} MB",
        f"{' '.join(f'{gap_s:.0f}' for gap_s in cell.gaps_s)} s{', bursts' if cell.bursts else ''}",
        f"{cell.false:.0%} false, {cell.missing:.0%} missing, {cell.off:g} off",
        f"{found.requests}",
        f"{found.theirs[0]:.1f}",
        f"{found.cold.mean:+.2f} ± {found.cold.half:.2f}",
        f"{found.theirs[1]:.2f}",
        f"{found.utility.mean:+.2f} ± {found.utility.half:.2f}",
    )
    return f"| {' | '.join(parts)} |"


def main() -> None:
    """Print a row a cell as it is done, and the verdict."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, required=True, help="of the cells and of their requests")
    parser.add_argument("--cells", type=int, default=60)
    parser.add_argument("--requests", type=int, default=6000)
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    jobs = [(draw_cell(options.seed, n), options.requests, options.seed) for n in range(options.cells)]
    print(f"| cell | zoo, memory | gap | predictions | requests | {YARDSTICK}: cold, % | {OURS}: more cold | ", end="")
    print(f"{YARDSTICK}: utility | {OURS}: more utility |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |", flush=True)
    every: list[Found] = []
    with multiprocessing.get_context("spawn").Pool(options.processes) as pool:
        for found in pool.imap_unordered(measure, jobs):
            every.append(found)
            print(_row(found), flush=True)
    _judge(sorted(every, key=lambda found: found.cell.number))


def _judge(every: Sequence[Found]) -> None:
    colder = [f.cell.number for f in every if f.cold.mean - f.cold.half > COLD_MORE_MAX]
    worse = [f.cell.number for f in every if f.utility.mean < -UTILITY_LESS_MAX]
    cold, utility = (Estimate.of([getattr(f, figure).mean for f in every]) for figure in ("cold", "utility"))
    print("\n| what | found | asked | reached |\n| --- | --- | --- | --- |")
    for what, found, asked, holds in (
        (f"cells colder by {COLD_MORE_MAX:g} point for certain", f"{len(colder)} {colder or ''}", "none", not colder),
        (f"cells with {UTILITY_LESS_MAX:g} less utility", f"{len(worse)} {worse or ''}", "none", not worse),
        ("cold, mean over cells", f"{cold.mean:+.2f} ± {cold.half:.2f}", "reported", True),
        ("utility, mean over cells", f"{utility.mean:+.2f} ± {utility.half:.2f}", "> 0", utility.mean > 0),
    ):
        print(f"| {what} | {found.strip()} | {asked} | {'yes' if holds else 'NO'} |")


if __name__ == "__main__":
    main()
