"""All ways to serve one stage that could be part of a better pipeline than the best one known: branch and bound over
instances, in arrays.

States are multisets of full instances; configurations are added in the order of unit cost. A state is dropped when what
it has cost, the least that its left rate can cost within some latency L, and the least that all other stages cost when
this one takes L, together reach the cutoff.
"""

from collections.abc import Callable, Sequence

import numpy as np

from appliance.policies.allocation.base import TOLERANCE
from appliance.policies.allocation.fronts import Bools, Floats, Ints
from appliance.policies.allocation.stage_plans import StagePlans, States, Table, with_partials

STATES_MAX = 6_000
"""Multisets kept at a time; beyond it the search keeps the most promising and is no longer exact."""
Rest = Callable[[Floats], Floats]
"""The least that all other stages cost when this one takes a latency; rises with it."""


class StageSearch:
    """The ways of one stage whose cost, with the rest at their latency, stays below `cutoff`.

    `keep_all`: also those that another way of this stage
    beats in latency and cost (it may take more of a scarce worker).

    States as columns: `left` rate, `cost` so far, `slowest` index into the sorted latencies (-1: no instance yet)."""

    def __init__(self, table: Table, rest: Rest, cutoff: float, cap_ms: float, keep_all: bool) -> None:
        self._table, self._cutoff, self._cap_ms, self._keep_all = table, cutoff, cap_ms, keep_all
        self._rest = rest
        self._grid, self._slot = np.unique(table.full_ms, return_inverse=True)
        unit = np.full(len(self._grid), np.inf)
        np.minimum.at(unit, self._slot, table.unit)
        self._grid_unit = np.minimum.accumulate(unit)
        self._grid_rest = rest(self._grid)
        self._steps = np.flatnonzero(np.diff(self._grid_unit, prepend=np.inf) < 0.0)
        self._complete = True
        self._useful = self._worth_trying()

    @property
    def breadth(self) -> int:
        """Configurations to try as full instances."""
        return len(self._useful)

    def run(self) -> StagePlans:
        table = self._table
        rate = table.stage.rate_rps
        left, cost = np.array([rate]), np.zeros(1)
        slowest = np.full(1, -1, dtype=np.int64)
        trace: list[tuple[int, Ints, Ints]] = []
        useful = self._useful
        for position, c in enumerate(useful):
            following = float(table.unit[useful[position + 1]]) if position + 1 < len(useful) else np.inf
            parents, taken = self._counts(int(c), following, left, cost)
            left = np.maximum(left[parents] - taken * table.throughput[c], 0.0)
            left[left <= TOLERANCE * rate] = 0.0
            cost = cost[parents] + taken * table.cost[c]
            slowest = np.where(taken > 0, np.maximum(slowest[parents], self._slot[c]), slowest[parents])
            value = cost + self._least(left, slowest, following)
            kept = np.flatnonzero(value < self._cutoff)
            if len(kept) > STATES_MAX:
                self._complete = False
                kept = kept[np.argsort(value[kept], kind="stable")[:STATES_MAX]]
            left, cost, slowest = left[kept], cost[kept], slowest[kept]
            trace.append((int(c), parents[kept], taken[kept]))
        worst = np.where(slowest >= 0, self._grid[np.maximum(slowest, 0)], 0.0)
        states = States(left, cost, worst, lambda rows: _counted(trace, rows, len(table.cost)))
        return with_partials(table, states, self._cap_ms, self._dear, self._keep_all, self._complete)

    def _dear(self, latency_ms: Floats, cost: Floats) -> Bools:
        too_dear: Bools = cost + self._rest(latency_ms) >= self._cutoff
        return too_dear

    def _worth_trying(self) -> Ints:
        """Configurations of which one full instance alone leaves the bound below the cutoff."""
        table, rate = self._table, self._table.stage.rate_rps
        fits = table.throughput <= rate * (1.0 + TOLERANCE)
        value = table.cost + self._least(np.maximum(rate - table.throughput, 0.0), self._slot, None)
        return np.flatnonzero(fits & (value < self._cutoff))

    def _least(self, left: Floats, slowest: Ints, following: float | None) -> Floats:
        """The least that the left rate and all other stages can still cost, over the latencies that this stage may
        take.
        """
        low = np.zeros(len(left)) if following is None else self._later(left, following)
        start = np.maximum(slowest, 0)
        own = np.maximum(left * self._grid_unit[start], low) + self._grid_rest[start]
        steps = self._steps
        costs = np.maximum(left[:, None] * self._grid_unit[steps], low[:, None]) + self._grid_rest[steps]
        costs[steps[None, :] < start[:, None]] = np.inf
        least: Floats = np.minimum(own, costs.min(axis=1))
        return least

    def _later(self, left: Floats, following: float) -> Floats:
        """The left rate at the unit cost of the next configuration, but for the one partial instance, which may be
        of any.
        """
        if following == np.inf:
            return np.where(left <= self._table.throughput.max() * (1.0 + TOLERANCE), 0.0, np.inf)
        saved = max(0.0, float((self._table.throughput * following - self._table.cost).max()))
        return np.maximum(left * following - saved, 0.0)

    def _counts(self, c: int, following: float, left: Floats, cost: Floats) -> tuple[Ints, Ints]:
        """For every state the numbers of instances of `c` to try, as (state, number) pairs."""
        table = self._table
        throughput, price = float(table.throughput[c]), float(table.cost[c])
        most = np.floor(left / throughput * (1.0 + TOLERANCE))
        room = self._cutoff - float(self._grid_rest[0]) - cost
        cheapest = float(self._grid_unit[-1])
        premium = price - throughput * cheapest
        if premium > TOLERANCE * price and np.isfinite(self._cutoff):
            most = np.minimum(most, np.floor((room - left * cheapest) / premium + TOLERANCE))
        least = np.zeros(len(left))
        if following == np.inf:
            least = np.ceil((left - table.throughput.max()) / throughput - TOLERANCE)
        elif throughput * following - price > TOLERANCE * price and np.isfinite(self._cutoff):
            owed = self._later(left, following) - room
            least = np.ceil(owed / (throughput * following - price) - TOLERANCE)
        least = np.maximum(least, 0.0)
        numbers = np.maximum(most - least + 1.0, 0.0)
        share = 20.0 * STATES_MAX / max(1, len(left))
        if (numbers > share).any() and numbers.sum() > 20.0 * STATES_MAX:
            self._complete = False
            least = np.maximum(least, most - np.floor(share))
            numbers = np.maximum(most - least + 1.0, 0.0)
        repeats = numbers.astype(np.int64)
        parents = np.repeat(np.arange(len(left)), repeats)
        offsets = np.arange(len(parents)) - np.repeat(np.cumsum(repeats) - repeats, repeats)
        return parents, most.astype(np.int64)[parents] - offsets


def _counted(trace: Sequence[tuple[int, Ints, Ints]], rows: Ints, configurations: int) -> Ints:
    """Numbers of instances by configuration of the last states `rows`, followed back through the levels."""
    counts = np.zeros((len(rows), configurations), dtype=np.int64)
    for c, parents, taken in reversed(trace):
        counts[:, c] = taken[rows]
        rows = parents[rows]
    return counts
