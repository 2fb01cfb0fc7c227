"""LoadedBuild: cold starts and utility of the eviction policies over deviation and memory, beside a clairvoyant's plan.

The whole engine in virtual time (`appliance.lab`), Table II, deviations 0 ... 90 %, memory 400 ... 2100 MB, ten seeds a
cell (`--quick`: two). "cold" is (cold + failed + dropped) / requests; "prompt utility" counts a cold answer's accuracy
the less the longer it took, down to nothing at one second. A cell is a deviation and a memory, its figure the mean over
seeds. iWS-BFE runs twice: by the paper's rules, and with the box's windows and patience, as `expected-utility`. With
`--keep FILE` what is done is written there as it is done, and a run that was broken off goes on (delete the file when
the code has changed). Cells that no policy was tuned on: `residency_cells`.
"""

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
from benchmarks import _results as results
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
Table = dict[tuple[float, float], float]
METRICS = {"cold": ("cold, points", 100.0), "utility": ("utility", 1.0), "prompt_utility": ("prompt utility", 1.0)}
JUDGED = ("what", "found", "asked", "reached")


def main() -> None:
    """Run the sweep, and print its tables."""
    parser = results.parser(__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--repetitions", type=int, default=REPETITIONS)
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--keep", type=Path, metavar="FILE")
    options = results.options(parser)
    seeds, first = 2 if options.quick else options.repetitions, options.first
    runner = Runner(options.processes, options.keep)
    found = dict(runner.spread(run_one, sweep_cells(seeds, first=first), "sweep"))
    busy = dict(runner.spread(run_one, degree_cells(seeds, (5,), first), "degree 5"))
    bounds = list(chain.from_iterable(runner.spread(bound_one, gap_jobs(found), "bounds")))
    _report(found, busy, bounds)
    _report_equal(with_equal_rules(found, dict(runner.spread(run_one, equal_cells(seeds, first), "equal rules"))))
    cells = [*order_cells(seeds, first), *own_forecast_cells(seeds, first)]
    _report_others(dict(runner.spread(run_one, cells, "orders, and the box's own forecasts")))


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


def _cell_mean(found: Results, policy: str, memory_mb: float, deviation: float, metric: str) -> float:
    return fmean(
        getattr(tally, metric)
        for cell, tally in found.items()
        if (cell.policy, cell.memory_mb, cell.deviation) == (policy, memory_mb, deviation)
    )


def _by_memory(found: Results, metric: str) -> None:
    what, factor = METRICS[metric]
    results.head("MB", *POLICIES, title=f"{what}, mean over deviations")
    for memory in MEMORIES_MB:
        means = [fmean(_cell_mean(found, p, memory, d, metric) for d in DEVIATIONS) * factor for p in POLICIES]
        results.cells(round(memory), *means)


def _against_iws(found: Results, metric: str, title: str = "") -> Table:
    """(memory, deviation) -> ours less iWS-BFE's, as means over seeds."""
    what, factor = METRICS[metric]
    table = {
        (memory, deviation): factor
        * (_cell_mean(found, OURS, memory, deviation, metric) - _cell_mean(found, "iws-bfe", memory, deviation, metric))
        for memory, deviation in product(MEMORIES_MB, DEVIATIONS)
    }
    results.head("MB", *(f"{d:.0%}" for d in DEVIATIONS), title=f"{title}{what}: {OURS} less iws-bfe")
    for memory in MEMORIES_MB:
        results.cells(round(memory), *(table[memory, d] for d in DEVIATIONS))
    return table


def _papers_memory(found: Results) -> float:
    """The memory at which the paper's policies have cold starts nearest to those that it reports."""

    def distance(memory_mb: float) -> float:
        return sum(abs(_cell_mean(found, p, memory_mb, USUAL, "cold") - cold) for p, cold in PAPERS_COLD.items())

    return min(MEMORIES_MB, key=distance)


def _satisfaction(found: Results) -> dict[tuple[float, str], float]:
    """(memory, policy) -> warm share at degree 5."""
    policies = ("none", "iws-bfe", OURS)
    warm = {
        (memory, policy): fmean(
            t.warm for c, t in found.items() if (c.policy, c.memory_mb, c.gap_s) == (policy, memory, gap_s(5))
        )
        for memory, policy in product(MEMORIES_MB, policies)
    }
    results.head("MB", *policies, title="Satisfaction (warm share) at degree 5")
    for memory in MEMORIES_MB:
        results.cells(round(memory), *(warm[memory, policy] for policy in policies))
    return warm


def _gaps(found: Results, bounds: list[tuple[Cell, Reference]]) -> float:
    names = (
        "runs",
        "utility: iws-bfe to ours",
        "to the clairvoyant's plan",
        "to the bound",
        "share of the last closed",
    )
    results.head(*names, "cold points: iws-bfe to bound", "closed", title="The clairvoyant")
    chosen = [
        *((f"{m:.0f} MB", [b for b in bounds if b[0].memory_mb == m]) for m in MEMORIES_MB),
        *((f"deviation {d:.0%}", [b for b in bounds if b[0].deviation == d]) for d in DEVIATIONS),
        ("all", bounds),
    ]
    for name, rows in chosen:
        one = gap(found, rows)
        sums = [value / one.runs for value in (one.utility_gained, one.utility_reached, one.utility_open)]
        results.cells(name, *sums, one.utility_share, 100 * one.cold_open / one.runs, one.cold_share)
    return gap(found, bounds).utility_share or 0.0


def _report(found: Results, busy: Results, bounds: list[tuple[Cell, Reference]]) -> None:
    for metric in METRICS:
        _by_memory(found, metric)
    cold, utility = _against_iws(found, "cold"), _against_iws(found, "utility")
    warm, closed, likely = _satisfaction(busy), _gaps(found, bounds), _papers_memory(found)
    none, iws = (fmean(warm[m, p] for m in MEMORIES_MB) for p in ("none", "iws-bfe"))
    tight = gap(found, [b for b in bounds if b[0].memory_mb < SMALLEST_MB]).cold_share or 0.0
    means = {p: fmean(t.cold for c, t in found.items() if c.policy == p) for p in POLICIES}
    results.head(*JUDGED, title="Asked")
    results.cells("satisfaction at degree 5, iws-bfe / none, all memories", iws / none, ">= 2", iws >= 2 * none)
    ratio = warm[likely, "iws-bfe"] / warm[likely, "none"]
    results.cells(f"... at {likely:.0f} MB, nearest to the paper's cold starts", ratio, ">= 2", ratio >= 2)
    for other in ("lfe", "bfe"):
        ratio = means["iws-bfe"] / means[other]
        results.cells(f"cold, iws-bfe / {other}, mean of the sweep", ratio, "<= 0.5", ratio <= 0.5)
    results.cells("cold, iws-bfe / ws-bfe (paper: 0.6)", means["iws-bfe"] / means["ws-bfe"], "reported", None)
    _judge_differences(cold, utility)
    results.cells(f"cold under {SMALLEST_MB:.1f} MB, share of the gap closed", tight, ">= 0.5", tight >= 0.5)
    results.cells("utility, share of the gap closed, pooled", closed, ">= 0.5", closed >= 0.5)


def _report_equal(found: Results) -> None:
    """The same windows and patience for both."""
    cold, utility, prompt = (_against_iws(found, metric, "Equal rules: ") for metric in METRICS)
    results.head(*JUDGED, title="Equal rules")
    _judge_differences(cold, utility)
    mean = fmean(prompt.values())
    results.cells("prompt utility, expected-utility - iws-bfe, mean", mean, "> 0", mean > 0)


def _report_others(found: Results) -> None:
    """Either order of iWS-BFE, and all without predictions: means over memories and seeds."""
    names = ("forecast", "policy", "rules", "cold, %", "utility", "prompt utility")
    results.head(*names, title="Orders at 30 %, and forecasts of the box's own")
    rows = {(cell.forecast, cell.policy, cell.windows) for cell in found}
    for row in sorted(rows, key=str, reverse=True):
        tallies = [t for cell, t in found.items() if (cell.forecast, cell.policy, cell.windows) == row]
        figures = [fmean(getattr(t, name) for t in tallies) for name in METRICS]
        results.cells(*row, 100 * figures[0], *figures[1:])


def _judge_differences(cold: Mapping[tuple[float, float], float], utility: Table) -> None:
    worst, over = max(cold.values()), sum(value > 1 for value in cold.values())
    results.cells(f"cold, {OURS} - iws-bfe, worst cell ({over} over)", worst, "<= +1", worst <= 1)
    worst, under = min(utility.values()), sum(value < -0.3 for value in utility.values())
    results.cells(f"utility, {OURS} - iws-bfe, worst cell ({under} under)", worst, ">= -0.3", worst >= -0.3)
    mean = fmean(utility.values())
    results.cells(f"utility, {OURS} - iws-bfe, mean", mean, "> 0", mean > 0)


if __name__ == "__main__":
    main()
