"""How far our policy goes from iWS-BFE to a planner that knows every arrival."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from appliance.lab.clairvoyant.reference import Reference
from reproduce.claims import Numbers
from reproduce.edge_multiai.experiments import DEVIATIONS, MEMORIES_MB, OURS, name_of
from reproduce.edge_multiai.sweep import Cell, bound_cell

YARDSTICK = "iws-bfe"
Allowed = Sequence[tuple[Cell, float]]
"""Runs of ours with the same requests and memory, each with the share of requests that may be cold."""


@dataclass(frozen=True, slots=True)
class Gap:
    """Sums of utility and of cold share over `runs`."""

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

    def document(self) -> dict[str, Any]:
        """For `--json`: means over the runs, and the shares of the way that ours goes."""
        return {
            "runs": self.runs,
            "utility_gap": self.utility_open / self.runs,
            "utility_gap_to_plan": self.utility_reached / self.runs,
            "utility_share_closed": self.utility_share,
            "cold_gap": self.cold_open / self.runs,
            "cold_share_closed": self.cold_share,
        }

    def text(self) -> str:
        """A paragraph of Markdown."""
        return (
            "## Our policy between iws-bfe and the clairvoyant\n\n"
            f"Over {self.runs} runs iws-bfe's utility is {self.utility_open / self.runs:.2f} below the bound "
            f"and {self.utility_reached / self.runs:.2f} below the plan of a clairvoyant; expected-utility closes "
            f"{self.utility_share or 0.0:.0%} of the way to the bound. "
            f"Of {100 * self.cold_open / self.runs:.2f} points of avoidable cold starts it closes "
            f"{self.cold_share or 0.0:.0%}."
        )


def gap_jobs(repetitions: Sequence[Numbers]) -> list[Allowed]:
    """What `bound_one` has to do: for each run of ours, the reference that may be as cold as the colder of the two
    policies.
    """
    jobs: dict[tuple[int, float], list[tuple[Cell, float]]] = defaultdict(list)
    for (number, one), deviation, memory_mb in product(enumerate(repetitions, 1), DEVIATIONS, MEMORIES_MB):
        colder = max(one[f"{name_of(policy, memory_mb, deviation)}/cold"] for policy in (OURS, YARDSTICK))
        jobs[number, memory_mb].append((Cell(OURS, memory_mb, deviation, number), colder / 100))
    return list(jobs.values())


def bound_one(job: Allowed) -> list[tuple[Cell, Reference]]:
    """Return the references of a job, in a process of a pool."""
    cells = [cell for cell, _ in job]
    return list(zip(cells, bound_cell(cells[0], [cold for _, cold in job]), strict=True))


def gap(repetitions: Sequence[Numbers], references: Iterable[tuple[Cell, Reference]]) -> Gap:
    """Pool all given runs."""
    rows = []
    for cell, reference in references:
        one = repetitions[cell.repetition - 1]
        ours, theirs = (name_of(policy, cell.memory_mb, cell.deviation) for policy in (OURS, YARDSTICK))
        utility, cold = one[f"{theirs}/utility"], one[f"{theirs}/cold"] / 100
        gained, saved = one[f"{ours}/utility"] - utility, cold - one[f"{ours}/cold"] / 100
        ahead = reference.utility_most - utility, reference.utility_reached - utility
        rows.append((gained, *ahead, saved, cold - reference.cold_least))
    return Gap(len(rows), *(sum(column) for column in zip(*rows, strict=True)))
