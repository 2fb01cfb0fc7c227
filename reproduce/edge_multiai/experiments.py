"""Edge-MultiAI's experiments (§IV-B to IV-G) on the boxes of its Table II: which runs they need, and their numbers.

Where the paper leaves something open:

- *deviation*: see `deviation`. *Memory*: it names none; figures are means over `MEMORIES_MB`, from less than all
  smallest variants to nearly everything.
- *degree of multi-tenancy* d (Figure 4): requests that come, in the mean, while a most accurate variant loads (0.68 s),
  so each application has 0.68·5/d seconds between two requests; deviation 30 %.
- *cold*: everything that was not warm, so failed and dropped requests too. *Accuracy* is over the answered.
- Figures 9 and 10 are taken at 30 % deviation, as Figure 7 is.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from itertools import product
from statistics import fmean

from appliance.domain.robustness import Served, fairness, robustness
from reproduce.claims import Experiment, Numbers, named
from reproduce.edge_multiai.sweep import ALPHA, Cell, run_cell, traces_of
from reproduce.edge_multiai.table2 import LOAD_MS_PER_MB, TABLE_II

OURS = "expected-utility"
POLICIES = ("none", "lfe", "bfe", "ws-bfe", "iws-bfe", OURS)
EVICTING = POLICIES[1:]
DEVIATIONS = tuple(tenth / 10 for tenth in range(10))
MEMORIES_MB = (400.0, 700.0, 1000.0, 1500.0, 2100.0)
DEGREES = (1, 2, 3, 4, 5)
ALPHAS = (0.0, 0.5, 1.02, 1.5, 2.0)
USUAL = 0.3
"""The paper's deviation where it is not varied."""
MEAN_LOAD_S = fmean(variants[0][1] for variants in TABLE_II.values()) * LOAD_MS_PER_MB / 1000


def name_of(
    policy: str, memory_mb: float, deviation: float = USUAL, *, alpha: float = ALPHA, degree: int | None = None
) -> str:
    """The name of a run, with which its numbers begin."""
    at = f"{policy}/{memory_mb:g} MB/{deviation:g}"
    return f"{at}/α {alpha:g}" if degree is None else f"{at}/degree {degree}"


def gap_s(degree: float) -> float:
    """Seconds between two requests of an application at a degree of multi-tenancy."""
    return MEAN_LOAD_S * len(TABLE_II) / degree


def cells() -> dict[str, Cell]:
    """By name, the runs of the first repetition."""
    found = {name_of(p, mb, d): Cell(p, mb, d, 1) for d, mb, p in product(DEVIATIONS, MEMORIES_MB, POLICIES)}
    for degree, mb, policy in product(DEGREES, MEMORIES_MB, ("none", "iws-bfe", OURS)):
        found[name_of(policy, mb, degree=degree)] = Cell(policy, mb, USUAL, 1, gap_s=gap_s(degree))
    for alpha, mb, policy in product(ALPHAS, MEMORIES_MB, EVICTING):
        found[name_of(policy, mb, alpha=alpha)] = Cell(policy, mb, USUAL, 1, alpha=alpha)
    return found


def numbers_of(served: Mapping[str, Served], deviation: float) -> Numbers:
    """The figures of a run, in percent but for `robustness` and `fairness`; without answers some are missing.

    `cold`: everything that was not warm. `utility`: accuracy over all requests. `error`: 100 - that of the answered.
    `deviation`: what was reached.
    """
    everything = [*served.values()]
    requests, answered = sum(one.requests for one in everything), sum(one.answered for one in everything)
    accuracy = sum(one.accuracy_sum for one in everything)
    warm = 100 * sum(one.warm for one in everything) / requests
    found = {"cold": 100 - warm, "warm": warm, "utility": accuracy / requests, "deviation": deviation}
    found["error"] = 100 - accuracy / answered if answered else 100.0
    if answered:
        found["normalised"] = 100 * sum(one.answered * (one.normalised or 0.0) for one in everything) / answered
    found["robustness"], found["fairness"] = robustness(everything) or 0.0, fairness(everything) or 0.0
    for name, one in served.items():
        found[f"{name}/cold"] = 100 * (1 - one.warm / one.requests)
        if one.accuracy is not None:
            found[f"{name}/accuracy"] = 100 * one.accuracy
    return found


def mean(key: str, runs: Iterable[str]) -> Callable[[Numbers], float]:
    """The mean of a figure over the runs of these names that have it; NaN where none has."""
    names = [f"{run}/{key}" for run in runs]

    def number(one: Numbers) -> float:
        values = [one[name] for name in names if name in one]
        return fmean(values) if values else math.nan

    return number


def _experiment(name: str, cell: Cell) -> Experiment:
    def experiment(repetition: int) -> Numbers:
        own = replace(cell, repetition=repetition)
        return named(name, numbers_of(run_cell(own), traces_of(own).deviation))

    return experiment


EXPERIMENTS: Mapping[str, Experiment] = {name: _experiment(name, cell) for name, cell in cells().items()}
