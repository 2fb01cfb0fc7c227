"""What a paper, or what is asked of us, says in numbers, beside what our runs give."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from reproduce.edge_multiai.experiments import Estimate

Numbers = Mapping[str, float]
"""Of one repetition, by name."""
UNSAID = "–"


@dataclass(frozen=True, slots=True)
class Claim:
    """`least`, `most`: what is asked of ours; both None where nothing is."""

    section: str
    what: str
    paper: str
    ours: Estimate
    least: float | None = None
    most: float | None = None

    @property
    def asked(self) -> str:
        """For people."""
        bounds = ((">=", self.least), ("<=", self.most))
        return ", ".join(f"{sign} {bound:g}" for sign, bound in bounds if bound is not None)

    @property
    def holds(self) -> bool | None:
        """Of the mean over repetitions."""
        if self.least is None and self.most is None:
            return None
        is_enough = self.least is None or self.ours.mean >= self.least
        return is_enough and (self.most is None or self.ours.mean <= self.most)

    def document(self) -> dict[str, Any]:
        """For `--json`: the estimate as [mean, half of the 95 % interval]."""
        ours = [round(self.ours.mean, 4), round(self.ours.half, 4)]
        facts = {"section": self.section, "what": self.what, "paper": self.paper, "ours": ours}
        return {**facts, "least": self.least, "most": self.most, "holds": self.holds}


class Claims:
    """Collects claims over the same repetitions; ratios are taken within a repetition."""

    def __init__(self, repetitions: Sequence[Numbers]) -> None:
        self._repetitions = repetitions
        self.found: list[Claim] = []

    def say(
        self,
        section: str,
        what: str,
        paper: str,
        number: Callable[[Numbers], float] | str,
        *,
        least: float | None = None,
        most: float | None = None,
    ) -> None:
        """One more; `number`: a name, or how it follows from them."""
        values = [one[number] if isinstance(number, str) else number(one) for one in self._repetitions]
        self.found.append(Claim(section, what, paper, Estimate.of(values), least, most))


@dataclass(frozen=True, slots=True)
class Job:
    """An experiment of a repetition, counted from 1."""

    experiment: str
    repetition: int


def jobs_of(experiments: Sequence[str], repetitions: int) -> list[Job]:
    """All of them, repetition after repetition."""
    return [Job(name, repetition) for repetition in range(1, repetitions + 1) for name in experiments]


def by_repetition(results: Sequence[tuple[Job, Numbers]]) -> list[Numbers]:
    """All numbers of each repetition."""
    found: dict[int, dict[str, float]] = {}
    for job, numbers in results:
        found.setdefault(job.repetition, {}).update(numbers)
    return [found[repetition] for repetition in sorted(found)]
