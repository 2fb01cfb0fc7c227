"""Runs of the Table II box over deviation, memory, policy, α and rate: one `Cell` in, one small `Tally` out, so that
other processes can do the work.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from appliance.domain.robustness import Served, robustness
from appliance.lab.clairvoyant.reference import Reference, references
from appliance.lab.outcome import Answer
from appliance.lab.scenario import parse_scenario
from appliance.lab.simulation import simulate
from appliance.policies.residency import DEFAULT
from reproduce.edge_multiai.deviation import Traces, draw_traces
from reproduce.edge_multiai.table2 import TABLE_II, Windows, accuracy_range, document

ALPHA = 1.02
"""The paper's best."""
GAP_S = 10.0
"""Mean time between two requests of an application in the sweep: some ten times the longest load."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One run.

    `repetition` seeds the traces: the same requests for every policy, memory, deviation and α. `deviation` in nats.
    """

    policy: str
    memory_mb: float
    deviation: float
    repetition: int
    alpha: float = ALPHA
    gap_s: float = GAP_S
    count: int = 40
    """Requests of each application."""


@dataclass(frozen=True, slots=True)
class Share:
    """What one application got.

    Accuracies are sums over its answered requests; `normalised` between its least and its most accurate variant.
    """

    requests: int
    warm: int
    answered: int
    accuracy: float
    normalised: float

    @property
    def cold(self) -> int:
        """As the paper's cold starts: everything that was not warm, failures included."""
        return self.requests - self.warm

    @property
    def served(self) -> Served:
        return Served(self.requests, self.warm, self.answered - self.warm, self.answered, self.accuracy)


@dataclass(frozen=True, slots=True)
class Tally:
    """What came of a cell, by application."""

    shares: Mapping[str, Share]
    deviation_reached: float

    def _sum(self, name: str) -> float:
        return float(sum(getattr(share, name) for share in self.shares.values()))

    @property
    def cold(self) -> float:
        """(cold + failed + dropped) / requests."""
        return self._sum("cold") / self._sum("requests")

    @property
    def utility(self) -> float:
        """Accuracy of the answered over all requests."""
        return self._sum("accuracy") / self._sum("requests")

    @property
    def error(self) -> float:
        """100 - mean accuracy of the answered; 100 without answers."""
        answered = self._sum("answered")
        return 100 - self._sum("accuracy") / answered if answered else 100.0

    @property
    def normalised(self) -> float | None:
        """Mean over the answered; None without answers."""
        answered = self._sum("answered")
        return self._sum("normalised") / answered if answered else None

    @property
    def robustness(self) -> float:
        """Eq. 4, accuracies / 100."""
        return robustness(share.served for share in self.shares.values()) or 0.0


def run_cell(cell: Cell) -> Tally:
    """Simulate it."""
    traces = traces_of(cell)
    by_application: dict[str, list[Answer]] = {name: [] for name in traces.actual}
    for answer in simulate(parse_scenario(cell_document(cell))).outcome.answers:
        by_application[answer.application].append(answer)
    shares = {name: share(answers, *accuracy_range(name)) for name, answers in by_application.items()}
    return Tally(shares, traces.deviation)


def bound_cell(cell: Cell, colds: Sequence[float]) -> list[Reference]:
    """The reference for each cold share that is allowed.

    The cell's policy, deviation and α do not matter: the requests are the same.
    """
    return references(parse_scenario(cell_document(replace(cell, policy="none"))), colds)


def cell_document(cell: Cell) -> dict[str, Any]:
    """The scenario, by the paper's rules for the paper's policies and by the box's for our own."""
    rules: Windows = "box" if cell.policy == DEFAULT else "paper"
    return document(traces_of(cell), cell.memory_mb, cell.policy, cell.alpha, rules)


def traces_of(cell: Cell) -> Traces:
    """The cell's requests and their predictions."""
    return _drawn(cell.count, cell.gap_s, cell.deviation, cell.repetition)


@lru_cache(maxsize=64)
def _drawn(count: int, gap_s: float, deviation: float, repetition: int) -> Traces:
    return draw_traces(tuple(TABLE_II), count, gap_s, deviation, repetition)


def share(answers: Sequence[Answer], least: float, most: float) -> Share:
    """Of one application's answers; `least` and `most` are the accuracies of its variants' ends."""
    accuracies = [a.accuracy for a in answers if a.accuracy is not None]
    normalised = (sum(accuracies) - least * len(accuracies)) / (most - least)
    warm = sum(a.kind == "warm" for a in answers)
    return Share(len(answers), warm, len(accuracies), sum(accuracies), normalised)
