"""Runs of the Table II box over deviation, memory, policy, α and rate: one `Cell` in, one small `Tally` out, so that other processes can do the work."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from appliance.lab.papers.deviation import Traces, draw_traces
from appliance.lab.papers.reference import Reference, references
from appliance.lab.papers.table2 import TABLE_II, accuracy_range, document
from appliance.lab.scenario import parse_scenario
from appliance.lab.simulation import simulate

ALPHA = 1.02
"""The paper's best."""
GAP_S = 10.0
"""Mean time between two requests of an application in the sweep: some ten times the longest load."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One run. `repetition` seeds the traces: the same requests for every policy, memory, deviation and α. `deviation` in nats."""

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
    """What one application got. Accuracies are sums over its answered requests; `normalised` between its least and its most accurate variant."""

    requests: int
    warm: int
    answered: int
    accuracy: float
    normalised: float

    @property
    def cold(self) -> int:
        """As the paper's cold starts: everything that was not warm, failures included."""
        return self.requests - self.warm


@dataclass(frozen=True, slots=True)
class Tally:
    """What came of a cell, by application."""

    shares: Mapping[str, Share]
    deviation_reached: float
    loads: int

    @property
    def requests(self) -> int:
        return sum(s.requests for s in self.shares.values())

    @property
    def cold(self) -> float:
        """(cold + failed + dropped) / requests."""
        return sum(s.cold for s in self.shares.values()) / self.requests

    @property
    def warm(self) -> float:
        return 1 - self.cold

    @property
    def utility(self) -> float:
        """Accuracy of the answered over all requests."""
        return sum(s.accuracy for s in self.shares.values()) / self.requests

    @property
    def error(self) -> float:
        """100 - mean accuracy of the answered; 100 where nobody was."""
        answered = sum(s.answered for s in self.shares.values())
        return 100 - sum(s.accuracy for s in self.shares.values()) / answered if answered else 100.0

    @property
    def normalised(self) -> float | None:
        """Mean over the answered; None where nobody was."""
        answered = sum(s.answered for s in self.shares.values())
        return sum(s.normalised for s in self.shares.values()) / answered if answered else None

    @property
    def robustness(self) -> float:
        """Eq. 4, accuracies / 100."""
        return sum(
            s.warm / s.requests * (s.accuracy / s.answered / 100 if s.answered else 0.0) for s in self.shares.values()
        ) / len(self.shares)


def run_cell(cell: Cell) -> Tally:
    """Simulate it."""
    traces = traces_of(cell)
    figures = simulate(parse_scenario(document(traces, cell.memory_mb, cell.policy, cell.alpha))).outcome.document()
    applications: Any = figures["applications"]
    loads: Any = figures["loads"]
    return Tally({name: _share(name, row) for name, row in applications.items()}, traces.deviation, loads)


def bound_cell(cell: Cell, colds: Sequence[float]) -> list[Reference]:
    """The reference for each cold share that is allowed. The cell's policy, deviation and α do not matter: the requests are the same."""
    return references(parse_scenario(document(traces_of(cell), cell.memory_mb, "none", cell.alpha)), colds)


def traces_of(cell: Cell) -> Traces:
    return _drawn(cell.count, cell.gap_s, cell.deviation, cell.repetition)


@lru_cache(maxsize=64)
def _drawn(count: int, gap_s: float, deviation: float, repetition: int) -> Traces:
    return draw_traces(tuple(TABLE_II), count, gap_s, deviation, repetition)


def _share(application: str, row: Mapping[str, Any]) -> Share:
    answered = row["warm"] + row["cold"]
    accuracy = (row["accuracy_mean"] or 0.0) * answered
    least, most = accuracy_range(application)
    return Share(row["requests"], row["warm"], answered, accuracy, (accuracy - least * answered) / (most - least))
