"""Edge-MultiAI's experiments (§IV-B to IV-G) on the boxes of its Table II: which runs they need, and what came of them.

Where the paper leaves something open:

- *deviation*: see `deviation`. *Memory*: it names none; figures are means over `MEMORIES_MB`, from less than all
  smallest variants to nearly everything.
- *degree of multi-tenancy* d (Figure 4): requests that come, in the mean, while a most accurate variant loads (0.68 s),
  so each application has 0.68·5/d seconds between two requests; deviation 30 %.
- *cold*: everything that was not warm, so failed and dropped requests too. *Accuracy* is over the answered.
- Figures 9 and 10 are taken at 30 % deviation, as Figure 7 is.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import sqrt
from statistics import fmean, stdev

from appliance.lab.clairvoyant.reference import Reference
from reproduce.edge_multiai.sweep import ALPHA, Cell, Tally, bound_cell, run_cell
from reproduce.edge_multiai.table2 import LOAD_MS_PER_MB, TABLE_II, Windows

PAPERS = ("none", "lfe", "bfe", "ws-bfe", "iws-bfe")
OURS = "expected-utility"
POLICIES = (*PAPERS, OURS)
DEVIATIONS = tuple(tenth / 10 for tenth in range(10))
MEMORIES_MB = (400.0, 700.0, 1000.0, 1500.0, 2100.0)
RULES: tuple[Windows, ...] = ("paper", "box")
DEGREES = (1, 2, 3, 4, 5)
ALPHAS = (0.0, 0.5, 1.02, 1.5, 2.0)
USUAL = 0.3
"""The paper's deviation where it is not varied."""
REPETITIONS = 10
MEAN_LOAD_S = fmean(variants[0][1] for variants in TABLE_II.values()) * LOAD_MS_PER_MB / 1000
_T = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120)
"""Student's t for 95 %, by degrees of freedom from 1."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean over repetitions, and half the width of its 95 % confidence interval."""

    mean: float
    half: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Estimate":
        """Raises: ValueError for no values; one value has no interval (0)."""
        if len(values) < 2:
            return cls(fmean(values), 0.0)
        t = _T[len(values) - 2] if len(values) - 2 < len(_T) else 1.96
        return cls(fmean(values), t * stdev(values) / sqrt(len(values)))


Metric = Callable[[Tally], float | None]
Results = Mapping[Cell, Tally]
GapJob = tuple[tuple[Cell, float], ...]
"""Cells with the same requests and memory, each with the share of requests that may be cold."""


def gap_s(degree: float) -> float:
    """Seconds between two requests of an application at a degree of multi-tenancy."""
    return MEAN_LOAD_S * len(TABLE_II) / degree


def sweep_cells(repetitions: int, policies: Sequence[str] = POLICIES, first: int = 1) -> list[Cell]:
    """Figures 5, 6, 8, 9 and 10. `first` is the first repetition's seed."""
    return [
        Cell(policy, memory_mb, deviation, repetition)
        for repetition in range(first, first + repetitions)
        for deviation in DEVIATIONS
        for memory_mb in MEMORIES_MB
        for policy in policies
    ]


def degree_cells(repetitions: int, degrees: Sequence[int] = DEGREES, first: int = 1) -> list[Cell]:
    """Figure 4."""
    return [
        Cell(policy, memory_mb, USUAL, repetition, gap_s=gap_s(degree))
        for repetition in range(first, first + repetitions)
        for degree in degrees
        for memory_mb in MEMORIES_MB
        for policy in ("none", "iws-bfe", OURS)
    ]


def equal_cells(repetitions: int, first: int = 1) -> list[Cell]:
    """iWS-BFE in the whole sweep by the rules that ours has: the box's windows and patience."""
    return [replace(cell, windows="box") for cell in sweep_cells(repetitions, ("iws-bfe",), first)]


def order_cells(repetitions: int, first: int = 1) -> list[Cell]:
    """iWS-BFE with either order of unloading and shrinking, by either rules, at the usual deviation."""
    return [
        replace(cell, windows=windows)
        for cell in sweep_cells(repetitions, ("iws-bfe", "iws-bfe-unload-first"), first)
        if cell.deviation == USUAL
        for windows in RULES
    ]


def own_forecast_cells(repetitions: int, first: int = 1) -> list[Cell]:
    """Without predictions: the box's forecasters learn from twice as many requests."""
    entries: tuple[tuple[str, Windows], ...] = (("iws-bfe", "paper"), ("iws-bfe", "box"), (OURS, "box"))
    return [
        Cell(policy, memory_mb, 0.0, repetition, count=80, windows=windows, forecast="box")
        for repetition in range(first, first + repetitions)
        for memory_mb in MEMORIES_MB
        for policy, windows in entries
    ]


def with_equal_rules(results: Results, equal: Results) -> dict[Cell, Tally]:
    """`results` with iWS-BFE's runs of `equal_cells` in the place of its own."""
    kept = {cell: tally for cell, tally in results.items() if cell.policy != "iws-bfe"}
    return kept | {replace(cell, windows=None): tally for cell, tally in equal.items()}


def alpha_cells(repetitions: int) -> list[Cell]:
    """Figure 7; α = 1.02 is in the sweep."""
    return [
        Cell(policy, memory_mb, USUAL, repetition, alpha=alpha)
        for repetition in range(1, repetitions + 1)
        for alpha in ALPHAS
        if alpha != ALPHA
        for memory_mb in MEMORIES_MB
        for policy in POLICIES
        if policy != "none"
    ]


def all_cells(repetitions: int) -> list[Cell]:
    return [*sweep_cells(repetitions), *degree_cells(repetitions), *alpha_cells(repetitions)]


def run_one(cell: Cell) -> tuple[Cell, Tally]:
    """For a pool of processes."""
    return cell, run_cell(cell)


def bound_one(job: GapJob) -> list[tuple[Cell, Reference]]:
    """For a pool of processes: the references of cells with the same requests and memory."""
    cells = [cell for cell, _ in job]
    return list(zip(cells, bound_cell(cells[0], [cold for _, cold in job]), strict=True))


def over_repetitions(results: Results, metric: Metric, chosen: Callable[[Cell], bool]) -> Estimate | None:
    """The metric of the chosen cells: the mean of each repetition's, then over repetitions.

    None where it has no value.
    """
    by_repetition: dict[int, list[float]] = defaultdict(list)
    for cell, tally in results.items():
        if chosen(cell) and (value := metric(tally)) is not None:
            by_repetition[cell.repetition].append(value)
    return Estimate.of([fmean(values) for values in by_repetition.values()]) if by_repetition else None


@dataclass(frozen=True, slots=True)
class Gap:
    """How far our policy goes from iWS-BFE to the clairvoyant, over a set of cells.

    Sums of utility and of cold share, one summand a run.
    """

    runs: int
    utility_gained: float
    utility_open: float
    utility_reached: float
    """By the clairvoyant's own plan: an estimate of `utility_open` from below."""
    cold_saved: float
    cold_open: float

    @property
    def utility_share(self) -> float | None:
        return self.utility_gained / self.utility_open if self.utility_open else None

    @property
    def cold_share(self) -> float | None:
        return self.cold_saved / self.cold_open if self.cold_open else None


def gap_jobs(results: Results) -> list[GapJob]:
    """What `bound_one` has to do: for each run of ours, the reference that may be as cold as the colder of the two
    policies.
    """
    jobs: dict[Cell, list[tuple[Cell, float]]] = defaultdict(list)
    for cell, tally in results.items():
        if cell.policy == OURS and (partner := partner_of(cell)) in results:
            jobs[replace(cell, deviation=0.0, alpha=ALPHA)].append((cell, max(tally.cold, results[partner].cold)))
    return [tuple(job) for job in jobs.values()]


def partner_of(cell: Cell, policy: str = "iws-bfe") -> Cell:
    """The same run with another policy."""
    return Cell(policy, cell.memory_mb, cell.deviation, cell.repetition, cell.alpha, cell.gap_s, cell.count)


def gap(results: Results, references: Iterable[tuple[Cell, Reference]]) -> Gap:
    """Pooled over all given runs."""
    runs, gained, open_, reached, saved, cold_open = 0, 0.0, 0.0, 0.0, 0.0, 0.0
    for cell, reference in references:
        ours, theirs = results[cell], results[partner_of(cell)]
        runs += 1
        gained += ours.utility - theirs.utility
        open_ += reference.utility_most - theirs.utility
        reached += reference.utility_reached - theirs.utility
        saved += theirs.cold - ours.cold
        cold_open += theirs.cold - reference.cold_least
    return Gap(runs, gained, open_, reached, saved, cold_open)
