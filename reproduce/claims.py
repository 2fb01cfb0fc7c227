"""What a paper says in numbers, and what is asked of us, beside what our runs give; one form for all papers."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, stdev
from typing import Any

Numbers = Mapping[str, float]
"""Figures of one repetition, by name."""
Experiment = Callable[[int], Numbers]
"""Called with the repetition, counted from 1, which is its seed."""
Number = str | Callable[[Numbers], float]
"""A figure by its name, or how it follows from others; NaN: a repetition has none."""

UNSAID = "–"
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
        return cls(fmean(values), t * stdev(values) / math.sqrt(len(values)))

    def pair(self) -> list[float]:
        """Mean and half the interval, for `--json`."""
        return [round(self.mean, 4), round(self.half, 4)]

    def text(self, digits: int = 2) -> str:
        """Mean and half the interval for a table; one repetition has no interval."""
        return f"{self.mean:.{digits}f}" + (f" ± {self.half:.{digits}f}" if self.half else "")


def estimate(repetitions: Sequence[Numbers], number: Number) -> Estimate | None:
    """Estimate a number over the repetitions that have it; None where none does."""
    values = [one[number] if isinstance(number, str) else number(one) for one in repetitions]
    kept = [value for value in values if not math.isnan(value)]
    return Estimate.of(kept) if kept else None


def over(above: Number, below: Number) -> Callable[[Numbers], float]:
    """Divide two numbers of a repetition; NaN for a division by zero."""

    def ratio(one: Numbers) -> float:
        first, second = (one[part] if isinstance(part, str) else part(one) for part in (above, below))
        return first / second if second else math.nan

    return ratio


def named(name: str, numbers: Numbers) -> Numbers:
    """The same numbers as those of one experiment."""
    return {f"{name}/{key}": value for key, value in numbers.items()}


@dataclass(frozen=True, slots=True)
class Claim:
    """`least`, `most`: what is asked of ours; both None where nothing is. `ours`: None where no repetition has it.

    `beside`: further columns, which only this paper's table has.
    """

    section: str
    what: str
    paper: str
    ours: Estimate | None
    least: float | None = None
    most: float | None = None
    beside: Mapping[str, Estimate | str | None] = field(default_factory=dict)

    @property
    def asked(self) -> str:
        """The bounds for people."""
        bounds = ((">=", self.least), ("<=", self.most))
        return ", ".join(f"{sign} {bound:g}" for sign, bound in bounds if bound is not None)

    @property
    def holds(self) -> bool | None:
        """Whether the mean over repetitions is within the bounds; None without bounds."""
        if self.ours is None or not self.asked:
            return None
        is_enough = self.least is None or self.ours.mean >= self.least
        return is_enough and (self.most is None or self.ours.mean <= self.most)

    def document(self) -> dict[str, Any]:
        """For `--json`; estimates as [mean, half of the 95 % interval]."""
        facts = {"section": self.section, "what": self.what, "paper": self.paper, "ours": self.ours, **self.beside}
        pairs = {name: value.pair() if isinstance(value, Estimate) else value for name, value in facts.items()}
        return {**pairs, "least": self.least, "most": self.most, "holds": self.holds}


class Claims:
    """Collects claims over the same repetitions; ratios are taken within a repetition."""

    def __init__(self, repetitions: Sequence[Numbers]) -> None:
        self.repetitions = repetitions
        self.found: list[Claim] = []

    def say(
        self,
        section: str,
        what: str,
        paper: str,
        number: Number,
        *,
        least: float | None = None,
        most: float | None = None,
        **beside: Estimate | str | None,
    ) -> None:
        """Add a claim; its `number` is estimated over the repetitions."""
        self.found.append(Claim(section, what, paper, estimate(self.repetitions, number), least, most, beside))


@dataclass(frozen=True, slots=True)
class Figure:
    """A table of a paper's figure. `rows`: what stands at the left → an estimate for each column."""

    number: str
    title: str
    paper: str
    found: str
    left: str
    columns: Sequence[str]
    rows: Mapping[str, Sequence[Estimate | None]]
    digits: int = 1

    def document(self) -> dict[str, Any]:
        """For `--json`; estimates as in claims."""
        rows = [
            {self.left: name, **{c: e and e.pair() for c, e in zip(self.columns, estimates, strict=True)}}
            for name, estimates in self.rows.items()
        ]
        texts = {"figure": self.number, "title": self.title, "paper": self.paper, "found": self.found}
        return {**texts, "columns": list(self.columns), "rows": rows}


@dataclass(frozen=True, slots=True)
class Paper:
    """A paper to `scripts/reproduce`. `remark`: what is emulated, and how the table is read."""

    experiments: Mapping[str, Experiment]
    statements: Callable[[Sequence[Numbers]], list[Claim]]
    remark: str
    figures: Callable[[Sequence[Numbers]], list[Figure]] = lambda repetitions: []
