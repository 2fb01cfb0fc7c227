"""Affinity: a processor takes the job that it runs best compared with the other processors; for frames and full queues.

Whoever places the longest job where it ends first lets slow processors begin what quick ones would do in a fraction, as
soon as these are busy for a while. Here a processor that is free looks for the job whose time there is the least
compared with its mean (geometric) over all processors; of those about alike the longest. It leaves a job alone that
would keep it busy beyond the time in which all processors together could do all that waits, unless the job ends there
first.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, log

from appliance.policies.dispatch.answer import decided
from appliance.policies.dispatch.base import DispatchInput, DispatchPlan, Job
from appliance.policies.dispatch.outlook import ROUNDING_MS, Expected, Group, Outlook
from appliance.policies.dispatch.search import Idle
from appliance.policies.dispatch.turns import Turn, arrival, in_turn, nobody

ALIKE = 1 / 8
"""Steps of the logarithm in which times compared with their means are told apart: frames of 10 to 40 requests end 1 to
5 % sooner than without; with 1 / 4 those of 40 and more end 7 % later.
"""


@dataclass(frozen=True, slots=True)
class _Row:
    """A group of equal jobs. `ways`: the best that begins on each processor, by index, were all idle."""

    group: Group
    first: Job
    count: int
    ways: dict[int, Idle]
    mean_ms: float

    @property
    def least_ms(self) -> float:
        return min(way.took_ms for way in self.ways.values())

    def affinity(self, way: Idle) -> int:
        """How well the processor of a way runs it; the less, the better."""
        return round(log(max(way.took_ms, ROUNDING_MS) / self.mean_ms) / ALIKE)


class Affinity:
    """Ties: the earlier arrival, then the name."""

    requeues_at_head = True

    def plan(self, problem: DispatchInput) -> DispatchPlan:
        outlook = Outlook(problem)
        turn = in_turn(problem, outlook)
        rows = [_row(group, jobs) for group, jobs in turn.candidates.items()]
        if not rows:
            return nobody(problem, turn)
        free_ms = [free - outlook.now_ms for free in outlook.free_ms]
        all_ms = (sum(free_ms) + sum(row.count * row.least_ms for row in rows)) / len(free_ms)
        for moment_ms in sorted(set(free_ms)):  # whoever is free first chooses first
            chosen = min(
                (
                    (row.affinity(way), -way.took_ms, arrival(row.first), processor, row, way)
                    for row in rows
                    for processor, way in row.ways.items()
                    if free_ms[processor] <= moment_ms and _is_worth(row, processor, free_ms, all_ms)
                ),
                key=lambda one: one[:4],
                default=None,
            )
            if chosen is not None:
                return _plan(problem, outlook, turn, chosen[4], chosen[5])
        raise AssertionError("each job is worth beginning where it ends first")


def _row(group: Group, jobs: Sequence[Job]) -> _Row:
    ways = {way.first.processor: way for way in group.ways() if way.first is not None}
    mean_ms = exp(sum(log(max(way.took_ms, ROUNDING_MS)) for way in ways.values()) / len(ways))
    return _Row(group, min(jobs, key=arrival), len(jobs), ways, mean_ms)


def _is_worth(row: _Row, processor: int, free_ms: Sequence[float], all_ms: float) -> bool:
    soonest_ms = min(free_ms[other] + way.took_ms for other, way in row.ways.items())
    return free_ms[processor] + row.ways[processor].took_ms <= max(all_ms, soonest_ms) + ROUNDING_MS


def _plan(problem: DispatchInput, outlook: Outlook, turn: Turn, row: _Row, way: Idle) -> DispatchPlan:
    assert way.first is not None, "possible, and not done"
    begun = way.way(outlook.now_ms, outlook.free_ms)
    name = outlook.names[way.first.processor]
    expected = Expected(begun.finish_ms, way.first.subgraph, name, begun.start_ms)
    return decided(problem, row.first, expected, turn, f"runs best there of all that wait for {name!r}")
