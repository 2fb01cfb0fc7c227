"""Runs of the Table II box over deviation, memory, policy, α and rate: one `Cell` in, one small `Tally` out, so that
other processes can do the work.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from appliance.clock import NS_PER_S
from appliance.domain.robustness import Served, robustness
from appliance.lab.clairvoyant.reference import Reference, references
from appliance.lab.outcome import Answer
from appliance.lab.scenario import parse_scenario
from appliance.lab.simulation import simulate
from appliance.policies.residency import DEFAULT
from reproduce.edge_multiai.deviation import Traces, draw_traces
from reproduce.edge_multiai.table2 import TABLE_II, Forecast, Windows, accuracy_range, document

ALPHA = 1.02
"""The paper's best."""
LATE_S = 1.0
"""An answer that was waited for so long is worth nothing to who waits for it: about what the slowest load of Table
II takes (0.86 s).
"""
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
    windows: Windows | None = None
    """None: the paper's for the paper's policies, the box's for our own."""
    forecast: Forecast = "given"


@dataclass(frozen=True, slots=True)
class Share:
    """What one application got.

    Accuracies are sums over its answered requests; `normalised` between its least and its most accurate variant;
    `prompt` counts a cold answer the less the longer it was waited for (`promptness`).
    """

    requests: int
    warm: int
    answered: int
    accuracy: float
    normalised: float
    prompt: float

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
    def prompt_utility(self) -> float:
        """As `utility`, a cold answer charged by its wait."""
        return sum(s.prompt for s in self.shares.values()) / self.requests

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
        return robustness(share.served for share in self.shares.values()) or 0.0


def run_cell(cell: Cell) -> Tally:
    """Simulate it."""
    traces = traces_of(cell)
    outcome = simulate(parse_scenario(_document(cell))).outcome
    by_application: dict[str, list[Answer]] = {name: [] for name in traces.actual}
    for answer in outcome.answers:
        by_application[answer.application].append(answer)
    return Tally(
        {name: share(answers, *accuracy_range(name)) for name, answers in by_application.items()},
        traces.deviation,
        outcome.loads,
    )


def bound_cell(cell: Cell, colds: Sequence[float]) -> list[Reference]:
    """The reference for each cold share that is allowed.

    The cell's policy, deviation and α do not matter: the requests are the same.
    """
    return references(parse_scenario(_document(replace(cell, policy="none"))), colds)


def _document(cell: Cell) -> dict[str, Any]:
    windows = cell.windows or ("box" if cell.policy == DEFAULT else "paper")
    return document(traces_of(cell), cell.memory_mb, cell.policy, cell.alpha, windows, cell.forecast)


def traces_of(cell: Cell) -> Traces:
    return _drawn(cell.count, cell.gap_s, cell.deviation, cell.repetition)


@lru_cache(maxsize=64)
def _drawn(count: int, gap_s: float, deviation: float, repetition: int) -> Traces:
    return draw_traces(tuple(TABLE_II), count, gap_s, deviation, repetition)


def share(answers: Sequence[Answer], least: float, most: float) -> Share:
    """Of one application's answers; `least` and `most` are the accuracies of its variants' ends."""
    answered = [a for a in answers if a.accuracy is not None]
    accuracy = sum(a.accuracy or 0.0 for a in answered)
    return Share(
        requests=len(answers),
        warm=sum(a.kind == "warm" for a in answers),
        answered=len(answered),
        accuracy=accuracy,
        normalised=(accuracy - least * len(answered)) / (most - least),
        prompt=sum((a.accuracy or 0.0) * promptness(a) for a in answered),
    )


def promptness(answer: Answer) -> float:
    """The part of an answer's accuracy that counts: all of it where it was warm; cold, it falls evenly with the wait,
    to nothing at `LATE_S`.

    The wait is the latency, of which the run itself is a few hundredths: so what a load takes is charged, and the time
    until one may begin.
    """
    return 1.0 if answer.kind == "warm" else max(0.0, 1 - answer.latency_ns / (LATE_S * NS_PER_S))
