"""`expected-utility` against `iws-bfe` in cells of residency that neither was tuned on, by what requests wait for.

Asked of every cell: P99 of the wait at most 3 % more (waits below a millisecond count as one), at most 1 point colder,
at most 0.3 less utility; in the mean better in all three.

Two parts. *sweep*: Table II over deviation and memory, its repetitions pooled. *untuned*: arrivals that nothing was
tuned on (even, bursty, daily, on-off, heavy-tailed), of zoos and memories drawn at random, with predictions that are
true, false, missing, or left to the box. Both policies get the same requests, predictions, sleeping states, windows and
patience, those of the box; with `--awake` no build sleeps. A wake counts as cold; the wait is the time until a
request's run begins, or until the request is told that there is none.
"""

import multiprocessing
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import exp, log, pi, sin
from random import Random
from statistics import fmean
from typing import Any

from appliance.clock import NS_PER_MS
from appliance.lab.scenario import parse_scenario
from appliance.lab.simulation import simulate
from benchmarks import _results as results
from reproduce.edge_multiai.experiments import DEVIATIONS, MEMORIES_MB, OURS
from reproduce.edge_multiai.sweep import ALPHA, Cell, traces_of
from reproduce.edge_multiai.table2 import LOAD_MS_PER_MB, TABLE_II, document

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
YARDSTICK = "iws-bfe"
WAIT_MORE_MAX, COLD_MORE_MAX, UTILITY_LESS_MAX = 1.03, 1.0, 0.3
WAIT_MS_MIN = 1.0
"""Where no request waits a ratio says nothing."""
ASLEEP_MB, ASLEEP_SHARE_MAX = 1.5, 0.2
"""What a session keeps, whatever its weights; of a small network, no more than this share."""
WAKE_MS, WAKE_MS_PER_MB = 1.5, 0.03
"""Page faults of a file in the page cache."""
ARRIVALS = ("even", "bursty", "daily", "on-off", "heavy-tailed")
DAY_S = 600.0

Times = dict[str, list[float]]
Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Job:
    """A cell's name and one of its repetitions."""

    part: str
    cell: str
    number: int
    seed: int
    requests: int
    is_awake: bool


@dataclass(frozen=True, slots=True)
class Figures:
    """What a policy came to in a cell."""

    waits_ms: tuple[float, ...]
    cold: float
    """Per cent: cold, failed and dropped."""
    utility: float

    @property
    def wait_p99_ms(self) -> float:
        return results.percentile(self.waits_ms, 99)


# -- cells -------------------------------------------------------------------------------------------------------------


def sweep_document(job: Job, policy: str) -> Document:
    """`number` counts memories and deviations."""
    memory_mb, deviation = list(product(MEMORIES_MB, DEVIATIONS))[job.number]
    cell = Cell(policy, memory_mb, deviation, job.seed)
    return document(traces_of(cell), memory_mb, policy, ALPHA, "box")


def untuned_document(job: Job, policy: str) -> Document:
    """The same for the same seed and number."""
    chance = Random(f"{job.seed}/{job.number}")
    arrivals = ARRIVALS[job.number % len(ARRIVALS)]
    zoo = _zoo(chance)
    whole_mb = sum(max(mb for _, mb, *_ in variants) for variants in zoo.values())
    gaps_s = {name: _between(chance, 1, 60) for name in zoo}
    duration_s = job.requests / sum(1 / gap_s for gap_s in gaps_s.values())
    actual = {name: list(_times(chance, arrivals, gaps_s[name], duration_s)) for name in zoo}
    predicted = _predictions(chance, actual, gaps_s, duration_s)
    memory_mb = round(max(chance.uniform(0.3, 0.9) * whole_mb, 1.2 * _largest_mb(zoo)), 1)
    return {
        "box": {"memory_mb": memory_mb, "processors": [{"name": "cpu", "concurrency": 2}]},
        "models": [{"name": name, "variants": [_variant(*row) for row in rows]} for name, rows in zoo.items()],
        "applications": [{"name": name, "model": name} for name in actual],
        "arrivals": [
            {"application": name, "times_s": times, **({"predicted_s": predicted[name]} if predicted else {})}
            for name, times in actual.items()
        ],
        "policies": {"eviction": policy},
    }


PARTS: Mapping[str, Callable[[Job, str], Document]] = {"sweep": sweep_document, "untuned": untuned_document}


def _zoo(chance: Random) -> Mapping[str, Variants]:
    """A known zoo, or a drawn one: 3 to 10 applications of 1 to 4 variants."""
    kind = chance.choice((*sorted(ZOOS), "drawn", "drawn"))
    if kind != "drawn":
        return ZOOS[kind]
    zoo: dict[str, Variants] = {}
    for number in range(chance.randint(3, 10)):
        mb, accuracy = _between(chance, 5, 500), chance.uniform(70, 100)
        rows = []
        for level in range(chance.randint(1, 4)):
            load_ms = mb * chance.uniform(0.3, 2.0) + chance.uniform(5, 60)
            rows.append((f"v{level}", round(mb, 1), round(accuracy, 1), round(load_ms), _between(chance, 1, 60)))
            mb, accuracy = mb * chance.uniform(0.3, 0.8), accuracy - chance.uniform(0.2, 12)
        zoo[f"app{number}"] = tuple(rows)
    return zoo


def _largest_mb(zoo: Mapping[str, Variants]) -> float:
    return max(min(mb for _, mb, *_ in variants) for variants in zoo.values())


def _predictions(chance: Random, actual: Times, gaps_s: Mapping[str, float], duration_s: float) -> Times:
    """None at all: the box forecasts by itself."""
    kind = chance.choice(("box", "true", "mixed", "false"))
    if kind == "box":
        return {}
    missing, off = chance.uniform(0, 0.5) if kind == "mixed" else 0.0, chance.choice((0.02, 0.1, 0.3))
    predicted = {}
    for name, times in actual.items():
        true = [abs(chance.gauss(at_s, off * gaps_s[name])) for at_s in times if chance.random() >= missing]
        wrong = [chance.uniform(0, duration_s) for _ in true]
        predicted[name] = sorted({"true": true, "mixed": [*true, *wrong[::2]], "false": wrong}[kind]) or [duration_s]
    return predicted


def _times(chance: Random, kind: str, gap_s: float, duration_s: float) -> Iterator[float]:
    """Requests of one application, `gap_s` apart in the mean."""
    at_s, phase = 0.0, chance.uniform(0, 2 * pi)
    until_s, is_on = 0.0, False
    while True:
        if kind == "bursty":
            is_inside = chance.random() < 0.75
            inside_s = min(1.0, gap_s / 10)
            at_s += chance.expovariate(1 / (inside_s if is_inside else 4 * gap_s - 3 * inside_s))
        elif kind == "heavy-tailed":
            at_s += gap_s * chance.paretovariate(1.5) / 3
        elif kind == "daily":
            at_s += chance.expovariate(1.9 / gap_s)
            while chance.random() > (1 + 0.9 * sin(2 * pi * at_s / DAY_S + phase)) / 1.9:
                at_s += chance.expovariate(1.9 / gap_s)
        elif kind == "on-off":
            at_s += chance.expovariate(2 / gap_s)
            while at_s >= until_s or not is_on:
                at_s = max(at_s, until_s)
                is_on = not is_on
                until_s = at_s + chance.expovariate(1 / (20 * gap_s))
        else:
            at_s += chance.expovariate(1 / gap_s)
        if at_s >= duration_s:
            return
        yield at_s


def _between(chance: Random, least: float, most: float) -> float:
    """Of every order of magnitude alike."""
    return exp(chance.uniform(log(least), log(most)))


def _variant(name: str, mb: float, accuracy: float, load_ms: float, run_ms: float) -> Document:
    return {
        "name": name,
        "size_mb": mb,
        "accuracy": accuracy,
        "load_ms": load_ms,
        "latency_ms": {"cpu": {"1": run_ms}},
    }


def _sleeping(scenario: Document) -> Document:
    """The same, with builds that sleep."""
    for model in scenario["models"]:
        for variant in model["variants"]:
            variant["asleep_mb"] = min(ASLEEP_MB, ASLEEP_SHARE_MAX * variant["size_mb"])
            variant["wake_ms"] = WAKE_MS + WAKE_MS_PER_MB * variant["size_mb"]
    return scenario


# -- runs --------------------------------------------------------------------------------------------------------------


def measure(job: Job) -> tuple[Job, dict[str, Figures]]:
    """For a pool of processes."""
    documents = {policy: PARTS[job.part](job, policy) for policy in (OURS, YARDSTICK)}
    return job, {policy: _figures(made if job.is_awake else _sleeping(made)) for policy, made in documents.items()}


def _figures(scenario: Document) -> Figures:
    answers = simulate(parse_scenario(scenario)).outcome.answers
    return Figures(
        tuple(a.wait_ns / NS_PER_MS for a in answers),
        100 * fmean(a.kind != "warm" for a in answers),
        fmean(a.accuracy or 0.0 for a in answers),
    )


def pooled(found: Sequence[Figures]) -> Figures:
    """Of a cell's repetitions."""
    waits = tuple(wait for one in found for wait in one.waits_ms)
    return Figures(waits, fmean(one.cold for one in found), fmean(one.utility for one in found))


# -- figures -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Verdict:
    """Ours beside the yardstick's, in one cell."""

    cell: str
    ours: Figures
    theirs: Figures

    @property
    def wait(self) -> float:
        return max(self.ours.wait_p99_ms, WAIT_MS_MIN) / max(self.theirs.wait_p99_ms, WAIT_MS_MIN)

    @property
    def cold(self) -> float:
        return self.ours.cold - self.theirs.cold

    @property
    def utility(self) -> float:
        return self.ours.utility - self.theirs.utility

    @property
    def is_worse(self) -> bool:
        return self.wait > WAIT_MORE_MAX or self.cold > COLD_MORE_MAX or self.utility < -UTILITY_LESS_MAX

    def row(self) -> tuple[Any, ...]:
        ours, theirs = self.ours, self.theirs
        waits = (theirs.wait_p99_ms, ours.wait_p99_ms, self.wait)
        figures = (theirs.cold, self.cold, theirs.utility, self.utility)
        return (self.cell, len(ours.waits_ms), *waits, *figures, not self.is_worse)


def _report(part: str, verdicts: Sequence[Verdict], rows: bool) -> None:
    waits = ("wait P99, ms", "ours", "ours / theirs")
    figures = ("cold, %", "ours colder", "utility", "ours better", "reached")
    title = f"{part}: {OURS} against {YARDSTICK}, {len(verdicts)} cells"
    results.head("cell", "requests", *waits, *figures, title=title)
    for verdict in verdicts if rows else [v for v in verdicts if v.is_worse]:
        results.cells(*verdict.row())
    wait, cold, less = [v.wait for v in verdicts], [v.cold for v in verdicts], [-v.utility for v in verdicts]
    results.head("what", "worst cell", "cells worse", "mean", "asked of each", "of the mean")
    for what, found, most, mean, at_most in (
        ("wait P99, ours / theirs", wait, WAIT_MORE_MAX, exp(fmean(map(log, wait))), 1),
        ("points colder", cold, COLD_MORE_MAX, fmean(cold), 0),
        ("less utility", less, UTILITY_LESS_MAX, fmean(less), 0),
    ):
        results.cells(what, max(found), sum(one > most for one in found), mean, f"<= {most}", f"< {at_most}")


def main() -> None:
    """Print the cells that are worse, and the verdict."""
    parser = results.parser(__doc__)
    parser.add_argument("--seed", type=int, default=1, help="the first repetition, and the seed of untuned cells")
    parser.add_argument("--repetitions", type=int, default=10, help="of each cell of the sweep")
    parser.add_argument("--every", type=int, default=1, help="only each so manieth cell of the sweep")
    parser.add_argument("--cells", type=int, default=100, help="untuned")
    parser.add_argument("--requests", type=int, default=4000, help="of each untuned cell")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--part", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--awake", action="store_true", help="no build sleeps")
    parser.add_argument("--rows", action="store_true", help="every cell, not only those that are worse")
    options = results.options(parser)
    places = list(enumerate(product(MEMORIES_MB, DEVIATIONS)))[:: options.every]
    jobs = [
        Job("sweep", f"{memory_mb:.0f} MB, {deviation:.0%}", number, options.seed + repetition, 0, options.awake)
        for number, (memory_mb, deviation) in places
        for repetition in range(options.repetitions)
    ]
    jobs += [
        Job("untuned", f"{n} {ARRIVALS[n % len(ARRIVALS)]}", n, options.seed, options.requests, options.awake)
        for n in range(options.cells)
    ]
    jobs = [job for job in jobs if job.part in options.part]
    cells: dict[tuple[str, str], list[dict[str, Figures]]] = {}
    with multiprocessing.get_context("spawn").Pool(options.processes) as pool:
        for job, found in pool.imap(measure, jobs):
            cells.setdefault((job.part, job.cell), []).append(found)
    for part in PARTS:
        verdicts = [
            Verdict(cell, pooled([f[OURS] for f in found]), pooled([f[YARDSTICK] for f in found]))
            for (of, cell), found in cells.items()
            if of == part
        ]
        if verdicts:
            _report(part, verdicts, options.rows)


if __name__ == "__main__":
    main()
