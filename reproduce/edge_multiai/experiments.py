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
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any, TypeVar

from appliance.domain.robustness import Served, fairness, robustness
from reproduce.claims import (
    UNSAID,
    Claim,
    Claims,
    Estimate,
    Experiment,
    Figure,
    Number,
    Numbers,
    Paper,
    estimate,
    named,
    over,
)
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


# -- what the paper states ---------------------------------------------------------------------------------------------

PAPERS_COLD = {"lfe": 58.0, "bfe": 55.0, "ws-bfe": 22.0, "iws-bfe": 15.0}
"""Cold starts in % at 30 % deviation (the axis of Figure 7), from a plotting script of the paper's authors."""
PAPERS_ERROR = {"lfe": 20, "bfe": 15, "ws-bfe": 28, "iws-bfe": 11}
"""Model error in % beside them."""
Found = Callable[[Numbers], float]


def statements(repetitions: Sequence[Numbers]) -> list[Claim]:
    """All of them, in the order of the paper; and the memory that is nearest to the paper's."""
    nearest_mb = nearest_memory_mb(repetitions)
    overall, there = (_claims(repetitions, memories) for memories in (MEMORIES_MB, (nearest_mb,)))
    nearest = Claim(UNSAID, "memory with cold starts nearest to the paper's, MB", UNSAID, Estimate(nearest_mb, 0.0))
    return [
        *(replace(one, beside={"ours_at_nearest_memory": at.ours}) for one, at in zip(overall, there, strict=True)),
        nearest,
    ]


def nearest_memory_mb(repetitions: Sequence[Numbers]) -> float:
    """The memory at which the paper's policies have cold starts nearest to those that it reports."""

    def distance(memory_mb: float) -> float:
        found = {policy: estimate(repetitions, f"{name_of(policy, memory_mb)}/cold") for policy in PAPERS_COLD}
        return sum(abs(one.mean - PAPERS_COLD[policy]) for policy, one in found.items() if one)

    return min(MEMORIES_MB, key=distance)


def _claims(repetitions: Sequence[Numbers], memories: Sequence[float]) -> list[Claim]:
    """Claims of the means over these memories."""
    claims = Claims(repetitions)
    say = claims.say

    def of(key: str, policy: str, *deviations: float) -> Found:
        """A policy's mean over these deviations, or over all."""
        return mean(key, [name_of(policy, mb, d) for d, mb in product(deviations or DEVIATIONS, memories)])

    def warm_at_most(policy: str) -> Found:
        return mean("warm", [name_of(policy, mb, degree=DEGREES[-1]) for mb in memories])

    def below(ours: str, *theirs: str) -> Found:
        """Percent by which a policy has fewer cold starts than the mean of others."""
        others = [of("cold", policy) for policy in theirs]
        ratio = over(of("cold", ours), lambda one: sum(other(one) for other in others) / len(others))
        return lambda one: 100 * (1 - ratio(one))

    worst = [name_of(policy, mb, DEVIATIONS[-1]) for mb, policy in product(memories, POLICIES)]
    say("IV-A", "worst forecasts: deviation reached, nats", "0.9", mean("deviation", worst))
    warm = over(of("warm", "iws-bfe"), of("warm", "none"))
    what = "warm starts of iws-bfe above those of none, %"
    say("abstract", what, "~60", lambda one: 100 * (warm(one) - 1), least=60)
    dense = over(warm_at_most("iws-bfe"), warm_at_most("none"))
    say("abstract", f"warm starts of iws-bfe / none at degree {DEGREES[-1]}", ">= 2", dense, least=2)
    what = f"satisfaction of iws-bfe above none at degree {DEGREES[-1]}, %"
    say("IV-B", what, "~130", lambda one: 100 * (dense(one) - 1), least=130)
    for ours, theirs in product(("ws-bfe", "iws-bfe"), ("lfe", "bfe")):
        say("IV-C", f"cold starts of {ours} below {theirs}, %", ">= 65", below(ours, theirs), least=65)
    say("IV-C", "cold starts of iws-bfe below lfe and bfe, %", "102 (sic)", below("iws-bfe", "lfe", "bfe"))
    say("IV-C", "cold starts of iws-bfe below ws-bfe, %", "40", below("iws-bfe", "ws-bfe"), least=40)
    accuracies = [(d, [of("normalised", policy, d) for policy in ("iws-bfe", "lfe", "bfe")]) for d in DEVIATIONS]
    what = "least deviation with lfe or bfe more accurate than iws-bfe, %"
    say("IV-D", what, "90", lambda one: _turn(one, accuracies), least=90)
    runs = {alpha: [name_of("iws-bfe", mb, alpha=alpha) for mb in memories] for alpha in ALPHAS}
    scores = {alpha: (mean("cold", names), mean("error", names)) for alpha, names in runs.items()}
    what = "best α for iws-bfe (cold + error least)"
    say("IV-E", what, "1.02", lambda one: min(ALPHAS, key=lambda alpha: sum(part(one) for part in scores[alpha])))
    for policy, cold in PAPERS_COLD.items():
        say("IV-E", f"cold starts of {policy} at 30 %, %", f"{cold:.0f}", of("cold", policy, USUAL))
    for policy, error in PAPERS_ERROR.items():
        say("IV-E", f"model error of {policy} at 30 %, %", f"{error}", of("error", policy, USUAL))
    for policy in POLICIES:
        say("IV-F", f"R (eq. 4) of {policy}", UNSAID, of("robustness", policy))
    for ours, theirs in product(("ws-bfe", "iws-bfe"), ("none", "lfe", "bfe")):
        gain = _difference(of("robustness", ours), of("robustness", theirs))
        say("IV-F", f"R of {ours} less that of {theirs}", "> 0", gain, least=0)
    first, last = (of("robustness", "iws-bfe", deviation) for deviation in (DEVIATIONS[0], DEVIATIONS[-1]))
    say("IV-F", "R of iws-bfe at 0 % less that at 90 %", "> 0", _difference(first, last), least=0)
    for policy in POLICIES:
        what = f"fairness of {policy} at 30 % (Jain's index of warm shares)"
        say("IV-G", what, "no bias", of("fairness", policy, USUAL))
    return claims.found


def _difference(first: Found, second: Found) -> Found:
    return lambda one: first(one) - second(one)


def _turn(one: Numbers, accuracies: Sequence[tuple[float, Sequence[Found]]]) -> float:
    """The least deviation (%) at which another policy is more accurate than the first; 100 where none ever is."""
    found = [(deviation, [number(one) for number in numbers]) for deviation, numbers in accuracies]
    return 100 * min((deviation for deviation, (ours, *theirs) in found if max(theirs) > ours), default=1.0)


# -- figures -----------------------------------------------------------------------------------------------------------

TEXTS: Mapping[str, Mapping[str, Any]] = tomllib.loads(Path(__file__).with_name("figures.toml").read_text("utf-8"))
"""Of each figure; `{}` in `found` is what the runs say."""
Row = TypeVar("Row")
Column = TypeVar("Column")
Rows = Mapping[str, Sequence[Estimate | None]]


def figures(repetitions: Sequence[Numbers]) -> list[Figure]:
    """All of them."""

    def rows(left: Mapping[str, Row], columns: Sequence[Column], number: Callable[[Row, Column], Number]) -> Rows:
        return {name: [estimate(repetitions, number(row, column)) for column in columns] for name, row in left.items()}

    def by_deviation(key: str) -> Rows:
        left = {f"{deviation:.0%}": deviation for deviation in DEVIATIONS}
        return rows(left, POLICIES, lambda d, policy: mean(key, [name_of(policy, mb, d) for mb in MEMORIES_MB]))

    def by_application(key: str) -> Rows:
        left = {name: f"{name}/{key}" for name in TABLE_II}
        return rows(left, POLICIES, lambda at, policy: mean(at, [name_of(policy, mb) for mb in MEMORIES_MB]))

    few, errors = ("none", "iws-bfe", OURS), [(policy, key) for policy in EVICTING for key in ("cold", "error")]
    by_degree = rows(
        {str(degree): degree for degree in DEGREES},
        few,
        lambda degree, policy: mean("warm", [name_of(policy, mb, degree=degree) for mb in MEMORIES_MB]),
    )
    by_memory = rows(
        {f"{mb:.0f}": mb for mb in MEMORIES_MB},
        POLICIES,
        lambda mb, policy: mean("cold", [name_of(policy, mb, deviation) for deviation in DEVIATIONS]),
    )
    by_alpha = rows(
        {f"{alpha:g}": alpha for alpha in ALPHAS},
        errors,
        lambda alpha, at: mean(at[1], [name_of(at[0], mb, alpha=alpha) for mb in MEMORIES_MB]),
    )
    most = {name: Estimate(variants[0][2], 0.0) for name, variants in TABLE_II.items()}
    accuracies = {name: [*found, most[name]] for name, found in by_application("accuracy").items()}
    cold = by_deviation("cold")
    made: dict[str, tuple[Sequence[str], Rows]] = {
        "4": (few, by_degree),
        "5": (POLICIES, cold),
        "5, by memory": (POLICIES, by_memory),
        "6": (POLICIES, by_deviation("normalised")),
        "7": ([f"{policy} {key}" for policy, key in errors], by_alpha),
        "8": (POLICIES, by_deviation("robustness")),
        "9": (POLICIES, by_application("cold")),
        "10": ((*POLICIES, "maximum"), accuracies),
    }
    found = {"4": _gain(by_degree), "5": _less(cold), "7": _best(by_alpha)}
    tables = []
    for number, texts in TEXTS.items():
        (columns, numbers), here = made[number], texts["found"].format(found.get(number))
        tables.append(Figure(number=number, columns=columns, rows=numbers, **{**texts, "found": here}))
    return tables


def _gain(by_degree: Rows) -> str:
    none, iws = by_degree[str(DEGREES[-1])][:2]
    return f"{iws.mean / none.mean - 1:+.0%}" if none and iws and none.mean else "no runs"


def _less(cold: Rows) -> str:
    """By how much iWS-BFE is below others over all deviations."""
    totals = {
        policy: sum(one.mean for found in cold.values() if (one := found[at])) for at, policy in enumerate(POLICIES)
    }
    others = [policy for policy in ("lfe", "bfe", "ws-bfe") if totals[policy]]
    return ", ".join(f"{1 - totals['iws-bfe'] / totals[policy]:.0%} less than {policy}" for policy in others)


def _best(by_alpha: Rows) -> str:
    """The α with the least sum of cold and error of iWS-BFE."""
    first = 2 * EVICTING.index("iws-bfe")
    return min(by_alpha, key=lambda alpha: sum(one.mean for one in by_alpha[alpha][first : first + 2] if one))


PAPER = Paper(
    EXPERIMENTS,
    statements,
    "The paper names no memory: the mean over all, and the one whose cold starts are nearest to its.",
    figures,
)
