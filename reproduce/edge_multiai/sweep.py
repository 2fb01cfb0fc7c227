"""Runs of the Table II box over deviation, memory, policy, α and rate, each one `Cell`."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from appliance.domain.robustness import Served
from appliance.lab.clairvoyant.reference import Reference, references
from appliance.lab.scenario import parse_scenario
from appliance.lab.simulation import simulate
from appliance.policies.residency import DEFAULT
from reproduce.edge_multiai.deviation import Traces, draw_traces
from reproduce.edge_multiai.table2 import TABLE_II, Windows, document

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


def run_cell(cell: Cell) -> Mapping[str, Served]:
    """Simulate it; returns what each application got."""
    found = {}
    answers = simulate(parse_scenario(cell_document(cell))).outcome.answers
    for name, variants in TABLE_II.items():
        own = [answer for answer in answers if answer.application == name]
        kinds = Counter(answer.kind for answer in own)
        given = [answer.accuracy for answer in own if answer.accuracy is not None]
        ends = variants[-1][2], variants[0][2]
        found[name] = Served(len(own), kinds["warm"], kinds["cold"], len(given), sum(given), *ends)
    return found


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
