"""Figures 4 to 10 of Edge-MultiAI as tables, from its experiments, each beside what the paper states."""

import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from reproduce.claims import Estimate, Figure, Number, Numbers, estimate
from reproduce.edge_multiai.experiments import (
    ALPHAS,
    DEGREES,
    DEVIATIONS,
    EVICTING,
    MEMORIES_MB,
    OURS,
    POLICIES,
    mean,
    name_of,
)
from reproduce.edge_multiai.table2 import TABLE_II

TEXTS: Mapping[str, Mapping[str, str]] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
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
    figures = []
    for number, (columns, numbers) in made.items():
        texts = TEXTS[number]
        here = texts["found"].format(found.get(number))
        digits = 2 if number == "8" else 1
        figures.append(Figure(number, texts["title"], texts["paper"], here, texts["left"], columns, numbers, digits))
    return figures


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
