"""LoadedBuild: cold starts and utility of the eviction policies over deviation and memory, beside a clairvoyant's.

The whole engine in virtual time (`appliance.lab`), Table II, deviations 0 ... 90 %, memory 400 ... 2100 MB, ten seeds a
cell (`--quick`: two). "cold" is (cold + failed + dropped) / requests; "prompt utility" counts a cold answer's accuracy
the less the longer it took, down to nothing at one second. A cell is a deviation and a memory, its figure the mean over
seeds. iWS-BFE runs twice: by the paper's rules, and with the box's windows and patience, as `expected-utility`. With
`--keep FILE` what is done is written there as it is done, and a run that was broken off goes on (delete the file when
the code has changed).
"""

import argparse
import multiprocessing
import pickle
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from itertools import chain, product
from pathlib import Path
from statistics import fmean
from typing import Any, TypeVar

from appliance.lab.clairvoyant.reference import Reference
from reproduce.edge_multiai.experiments import (
    DEVIATIONS,
    MEMORIES_MB,
    OURS,
    POLICIES,
    REPETITIONS,
    USUAL,
    Results,
    bound_one,
    degree_cells,
    equal_cells,
    gap,
    gap_jobs,
    gap_s,
    order_cells,
    own_forecast_cells,
    run_one,
    sweep_cells,
    with_equal_rules,
)
from reproduce.edge_multiai.stated import PAPERS_COLD
from reproduce.edge_multiai.sweep import Cell
from reproduce.edge_multiai.table2 import SMALLEST_MB

Job = TypeVar("Job")
Done = TypeVar("Done")
Bounds = list[tuple[Cell, Reference]]


class Runner:
    """Spreads jobs over processes, and remembers what is done in a file."""

    def __init__(self, processes: int, keep: Path | None) -> None:
        self._processes = processes
        self._keep = keep
        self._done: dict[object, Any] = dict(_kept(keep)) if keep is not None and keep.exists() else {}

    def spread(self, work: Callable[[Job], Done], jobs: list[Job], what: str) -> list[Done]:
        left = [job for job in jobs if job not in self._done]
        print(f"{what}: {len(left)} of {len(jobs)} to do", file=sys.stderr, flush=True)
        with multiprocessing.get_context("spawn").Pool(self._processes) as pool:
            for job, done in zip(left, pool.imap(work, left, chunksize=4), strict=True):
                self._done[job] = done
                if self._keep is not None:
                    with self._keep.open("ab") as file:
                        pickle.dump((job, done), file)
        return [self._done[job] for job in jobs]


def _kept(path: Path) -> Iterator[tuple[object, Any]]:
    with path.open("rb") as file, suppress(EOFError, pickle.UnpicklingError):  # the last one may be half written
        while True:
            yield pickle.load(file)


def cell_mean(results: Results, policy: str, memory_mb: float, deviation: float, metric: str) -> float:
    return fmean(
        getattr(tally, metric)
        for cell, tally in results.items()
        if (cell.policy, cell.memory_mb, cell.deviation) == (policy, memory_mb, deviation)
    )


def by_memory(results: Results, metric: str, factor: float) -> None:
    print("| MB | " + " | ".join(POLICIES) + " |\n| --- |" + " --- |" * len(POLICIES))
    for memory in MEMORIES_MB:
        means = [fmean(cell_mean(results, p, memory, d, metric) for d in DEVIATIONS) * factor for p in POLICIES]
        print(f"| {memory:.0f} | " + " | ".join(f"{mean:.1f}" for mean in means) + " |")
    print(flush=True)


def against_iws(results: Results, metric: str, factor: float) -> dict[tuple[float, float], float]:
    """(memory, deviation) → ours less iWS-BFE's, as means over seeds."""
    table = {
        (memory, deviation): factor
        * (
            cell_mean(results, OURS, memory, deviation, metric)
            - cell_mean(results, "iws-bfe", memory, deviation, metric)
        )
        for memory, deviation in product(MEMORIES_MB, DEVIATIONS)
    }
    print("| MB | " + " | ".join(f"{d:.0%}" for d in DEVIATIONS) + " |\n| --- |" + " --- |" * len(DEVIATIONS))
    for memory in MEMORIES_MB:
        print(f"| {memory:.0f} | " + " | ".join(f"{table[memory, d]:+.1f}" for d in DEVIATIONS) + " |")
    print(flush=True)
    return table


def papers_memory(results: Results) -> float:
    """The memory at which the paper's policies have cold starts nearest to those that it reports."""

    def distance(memory_mb: float) -> float:
        return sum(abs(cell_mean(results, p, memory_mb, USUAL, "cold") - cold) for p, cold in PAPERS_COLD.items())

    return min(MEMORIES_MB, key=distance)


def satisfaction(results: Results) -> dict[tuple[float, str], float]:
    """(memory, policy) → warm share at degree 5."""
    warm = {}
    print("| MB | none | iws-bfe | expected-utility |\n| --- | --- | --- | --- |")
    for memory in MEMORIES_MB:
        for policy in ("none", "iws-bfe", OURS):
            warm[memory, policy] = fmean(
                t.warm for c, t in results.items() if (c.policy, c.memory_mb, c.gap_s) == (policy, memory, gap_s(5))
            )
        row = [f"{warm[memory, p]:.1%}" for p in ("none", "iws-bfe", OURS)]
        print(f"| {memory:.0f} | " + " | ".join(row) + " |")
    print()
    return warm


def gaps(results: Results, bounds: Bounds) -> float:
    print(
        "| | utility: iws-bfe to ours | to the clairvoyant's plan | to the bound | share of the last closed "
        "| cold points: iws-bfe to bound | closed |\n| --- | --- | --- | --- | --- | --- | --- |"
    )
    chosen: list[tuple[str, Bounds]] = [
        *((f"{m:.0f} MB", [b for b in bounds if b[0].memory_mb == m]) for m in MEMORIES_MB),
        *((f"deviation {d:.0%}", [b for b in bounds if b[0].deviation == d]) for d in DEVIATIONS),
    ]
    for name, rows in [*chosen, ("all", bounds)]:
        one = gap(results, rows)
        sums = (one.utility_gained, one.utility_reached, one.utility_open)
        print(
            f"| {name} | {' | '.join(f'{value / one.runs:.2f}' for value in sums)} | {_share(one.utility_share)} "
            f"| {100 * one.cold_open / one.runs:.2f} | {_share(one.cold_share)} |"
        )
    print(flush=True)
    return gap(results, bounds).utility_share or 0.0


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def judge(what: str, found: str, asked: str, holds: bool) -> None:
    print(f"| {what} | {found} | {asked} | {'yes' if holds else 'NO'} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--repetitions", type=int, default=REPETITIONS)
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--keep", type=Path, metavar="FILE")
    options = parser.parse_args()
    repetitions = 2 if options.quick else options.repetitions
    runner = Runner(options.processes, options.keep)
    results = dict(runner.spread(run_one, sweep_cells(repetitions, first=options.first), "sweep"))
    busy = dict(runner.spread(run_one, degree_cells(repetitions, (5,), options.first), "degree 5"))
    bounds = list(chain.from_iterable(runner.spread(bound_one, gap_jobs(results), "bounds")))
    report(results, busy, bounds)
    equal = dict(runner.spread(run_one, equal_cells(repetitions, options.first), "equal rules"))
    report_equal(with_equal_rules(results, equal))
    cells = [*order_cells(repetitions, options.first), *own_forecast_cells(repetitions, options.first)]
    report_others(dict(runner.spread(run_one, cells, "orders, and the box's own forecasts")))


def report_equal(results: Results) -> None:
    """The same windows and patience for both."""
    print("\n## Equal rules: cold of expected-utility less that of iws-bfe, points\n")
    cold = against_iws(results, "cold", 100)
    print("## Equal rules: utility of expected-utility less that of iws-bfe\n")
    utility = against_iws(results, "utility", 1)
    print("## Equal rules: prompt utility of expected-utility less that of iws-bfe\n")
    prompt = against_iws(results, "prompt_utility", 1)
    print("## Equal rules\n\n| what | found | asked | reached |\n| --- | --- | --- | --- |")
    judge_differences(cold, utility)
    mean = fmean(prompt.values())
    judge("prompt utility, expected-utility - iws-bfe, mean", f"{mean:+.2f}", "> 0", mean > 0)


def report_others(results: Results) -> None:
    """Either order of iWS-BFE, and all without predictions: means over memories and seeds."""
    print("\n## Orders at 30 %, and forecasts of the box's own\n")
    print("| forecast | policy | rules | cold, % | utility | prompt utility |\n| --- | --- | --- | --- | --- | --- |")
    rows = {(cell.forecast, cell.policy, cell.windows) for cell in results}
    for row in sorted(rows, key=str, reverse=True):
        tallies = [t for cell, t in results.items() if (cell.forecast, cell.policy, cell.windows) == row]
        figures = [
            fmean(100 * t.cold for t in tallies),
            fmean(t.utility for t in tallies),
            fmean(t.prompt_utility for t in tallies),
        ]
        print(f"| {' | '.join(map(str, row))} | {' | '.join(f'{figure:.2f}' for figure in figures)} |")


def judge_differences(cold: Mapping[tuple[float, float], float], utility: Mapping[tuple[float, float], float]) -> None:
    worst, over = max(cold.values()), sum(value > 1 for value in cold.values())
    judge("cold, expected-utility - iws-bfe, worst cell", f"{worst:+.2f} ({over} cells over)", "<= +1", worst <= 1)
    worst, under = min(utility.values()), sum(value < -0.3 for value in utility.values())
    judge(
        "utility, expected-utility - iws-bfe, worst cell",
        f"{worst:+.2f} ({under} cells under)",
        ">= -0.3",
        worst >= -0.3,
    )
    mean = fmean(utility.values())
    judge("utility, expected-utility - iws-bfe, mean", f"{mean:+.2f}", "> 0", mean > 0)


def report(results: Results, busy: Results, bounds: Bounds) -> None:
    print("## Cold, %, mean over deviations\n")
    by_memory(results, "cold", 100)
    print("## Utility, mean over deviations\n")
    by_memory(results, "utility", 1)
    print("## Prompt utility, mean over deviations\n")
    by_memory(results, "prompt_utility", 1)
    print("## Cold of expected-utility less that of iws-bfe, points\n")
    cold = against_iws(results, "cold", 100)
    print("## Utility of expected-utility less that of iws-bfe\n")
    utility = against_iws(results, "utility", 1)
    print("## Satisfaction (warm) at degree 5\n")
    warm = satisfaction(busy)
    none, iws = (fmean(warm[m, p] for m in MEMORIES_MB) for p in ("none", "iws-bfe"))
    likely = papers_memory(results)
    print("## The clairvoyant\n")
    closed = gaps(results, bounds)
    tight = gap(results, [b for b in bounds if b[0].memory_mb < SMALLEST_MB]).cold_share or 0.0
    means = {p: fmean(t.cold for c, t in results.items() if c.policy == p) for p in POLICIES}
    print("## Asked\n\n| what | found | asked | reached |\n| --- | --- | --- | --- |")
    judge("satisfaction at degree 5, iws-bfe / none, all memories", f"{iws / none:.2f}", ">= 2", iws >= 2 * none)
    ratio = warm[likely, "iws-bfe"] / warm[likely, "none"]
    judge(f"... at {likely:.0f} MB, nearest to the paper's cold starts", f"{ratio:.2f}", ">= 2", ratio >= 2)
    for other in ("lfe", "bfe"):
        ratio = means["iws-bfe"] / means[other]
        judge(f"cold, iws-bfe / {other}, mean of the sweep", f"{ratio:.2f}", "<= 0.5", ratio <= 0.5)
    ratio = means["iws-bfe"] / means["ws-bfe"]
    judge("cold, iws-bfe / ws-bfe (paper: 0.6)", f"{ratio:.2f}", "reported", True)
    judge_differences(cold, utility)
    judge(f"cold under {SMALLEST_MB:.1f} MB, share of the gap closed", f"{tight:.2f}", ">= 0.5", tight >= 0.5)
    judge("utility, share of the gap closed, pooled", f"{closed:.2f}", ">= 0.5", closed >= 0.5)


if __name__ == "__main__":
    main()
