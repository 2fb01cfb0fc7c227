"""Ways to serve one stage, as arrays: a multiset of full instances each, and the configuration of the partial one,
which takes the rate that is left.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from appliance.policies.allocation.base import TOLERANCE
from appliance.policies.allocation.configurations import Stage, StagePlan
from appliance.policies.allocation.fronts import Bools, Floats, Ints, pareto

Dear = Callable[[Floats, Floats], Bools]
"""Whether latency and cost are too much, for many ways at once."""
LAYERS = 3
"""Fronts of configurations that the quick start tries as full instances."""
CHUNK = 400_000
"""Pairs of multiset and partial configuration looked at in one go."""


@dataclass(frozen=True, slots=True)
class Table:
    """A stage's configurations as columns, by unit cost."""

    stage: Stage
    throughput: Floats
    cost: Floats
    unit: Floats
    exec_ms: Floats
    batch_ms: Floats
    """1000·items that a batch waits for: W* = exec_ms + batch_ms/rate."""
    full_ms: Floats
    """W, at the stage's own rate where that is less than the throughput: no instance of the stage is faster."""


@dataclass(frozen=True, slots=True)
class StagePlans:
    """Ways to serve a stage, as rows.

    `partial` is a configuration's index, -1 for none; `is_complete`: none that matters was left out.
    """

    table: Table
    latency_ms: Floats
    cost: Floats
    counts: Ints
    partial: Ints
    rate: Floats
    is_complete: bool

    def plan(self, row: int) -> StagePlan:
        configurations = self.table.stage.configurations
        fulls = tuple((configurations[c], int(n)) for c, n in enumerate(self.counts[row]) if n)
        p = int(self.partial[row])
        return StagePlan(fulls, (configurations[p], float(self.rate[row])) if p >= 0 else None)

    def rows(self, kept: Ints) -> "StagePlans":
        return StagePlans(
            self.table,
            self.latency_ms[kept],
            self.cost[kept],
            self.counts[kept],
            self.partial[kept],
            self.rate[kept],
            self.is_complete,
        )

    def at_cost(self, cost: Floats) -> "StagePlans":
        return replace(self, cost=cost)

    def usage(self, pool: str) -> Floats:
        """Workers of one pool that each way takes, shares included."""
        configurations = self.table.stage.configurations
        taken = np.array([c.taken_of(pool) for c in configurations])
        share = self.rate / self.table.throughput[self.partial]
        whole: Floats = self.counts.astype(np.float64) @ taken
        return whole + np.where(self.partial >= 0, share * taken[self.partial], 0.0)


def joined(first: StagePlans, second: StagePlans) -> StagePlans:
    return StagePlans(
        first.table,
        np.concatenate((first.latency_ms, second.latency_ms)),
        np.concatenate((first.cost, second.cost)),
        np.concatenate((first.counts, second.counts)),
        np.concatenate((first.partial, second.partial)),
        np.concatenate((first.rate, second.rate)),
        second.is_complete,
    )


def table_of(stage: Stage, cap_ms: float) -> Table:
    """The configurations that can be fast enough for `cap_ms`; no slower one is of use, full or partial."""
    throughput, cost, unit, exec_ms, batch_ms = np.array(
        [(c.throughput_rps, c.cost, c.unit_cost, c.latency_ms, 1000.0 * c.awaited) for c in stage.configurations]
    ).T
    full_ms = exec_ms + batch_ms / np.minimum(throughput, stage.rate_rps)
    fast = np.flatnonzero(full_ms <= cap_ms * (1.0 + TOLERANCE))
    kept = Stage(stage.name, stage.rate_rps, tuple(stage.configurations[c] for c in fast))
    return Table(kept, throughput[fast], cost[fast], unit[fast], exec_ms[fast], batch_ms[fast], full_ms[fast])


def floor_of(table: Table) -> tuple[Floats, Floats]:
    """Latency against a cost that no way of serving the stage within it goes below: rate × the least unit cost of
    what is fast enough.
    """
    kept = pareto(table.full_ms, table.unit)
    return table.full_ms[kept], table.unit[kept] * table.stage.rate_rps


def simple_plans(table: Table, cap_ms: float) -> StagePlans:
    """One of the better full configurations, as many as fit or one less, and any partial one: a quick start."""
    rate = table.stage.rate_rps
    good = _good(table)
    most = np.floor(rate / table.throughput[good] * (1.0 + TOLERANCE))
    numbers = np.concatenate((np.zeros(1), most, np.maximum(most - 1.0, 0.0)))
    of = np.concatenate((good[:1], good, good))
    left = np.maximum(rate - numbers * table.throughput[of], 0.0)
    left[left <= TOLERANCE * rate] = 0.0
    worst = np.where(numbers > 0.0, table.full_ms[of], 0.0)

    def counts(states: Ints) -> Ints:
        rows = np.zeros((len(states), len(table.cost)), dtype=np.int64)
        rows[np.arange(len(states)), of[states]] = numbers[states]
        return rows

    return with_partials(table, States(left, numbers * table.cost[of], worst, counts), cap_ms)


@dataclass(frozen=True, slots=True)
class States:
    """Multisets of full instances: the rate that is left, what they cost, the slowest, and for some of them the
    numbers by configuration.
    """

    left: Floats
    cost: Floats
    worst_ms: Floats
    counts: Callable[[Ints], Ints]


def with_partials(
    table: Table,
    states: States,
    cap_ms: float,
    dear: Dear | None = None,
    keep_all: bool = False,
    is_complete: bool = True,
) -> StagePlans:
    """Every state with every partial configuration that can take what is left."""
    found = [_whole(states)]
    unfinished = np.flatnonzero(states.left > 0.0)
    partials = _unbeaten(table, by_pool=keep_all)
    size = max(1, CHUNK // max(1, len(partials)))
    for start in range(0, len(unfinished), size):
        found.append(_pairs(table, unfinished[start : start + size], partials, states, cap_ms, dear))
        if not keep_all:
            found = [_pruned(np.concatenate(found))]
    rows = np.concatenate(found) if keep_all else _pruned(np.concatenate(found))
    state, partial = rows["state"], rows["partial"]
    rate = np.where(partial >= 0, states.left[state], 0.0)
    return StagePlans(table, rows["latency"], rows["cost"], states.counts(state), partial, rate, is_complete)


_ROW = np.dtype([("latency", "f8"), ("cost", "f8"), ("state", "i8"), ("partial", "i8")])


def _rows(latency: Floats, cost: Floats, state: Ints, partial: Ints) -> NDArray[Any]:
    rows = np.empty(len(latency), dtype=_ROW)
    rows["latency"], rows["cost"], rows["state"], rows["partial"] = latency, cost, state, partial
    return rows


def _pruned(rows: NDArray[Any]) -> NDArray[Any]:
    return rows[pareto(rows["latency"], rows["cost"])]


def _whole(states: States) -> NDArray[Any]:
    """States without rate left: no partial instance."""
    state = np.flatnonzero(states.left == 0.0)
    return _rows(states.worst_ms[state], states.cost[state], state, np.full(len(state), -1, dtype=np.int64))


def _pairs(
    table: Table, members: Ints, partials: Ints, states: States, cap_ms: float, dear: Dear | None
) -> NDArray[Any]:
    rate = states.left[members][:, None]
    latency = np.maximum(states.worst_ms[members][:, None], table.exec_ms[partials] + table.batch_ms[partials] / rate)
    fits = (rate <= table.throughput[partials] * (1.0 + TOLERANCE)) & (latency <= cap_ms * (1.0 + TOLERANCE))
    row, column = np.nonzero(fits)
    total = states.cost[members[row]] + states.left[members[row]] * table.unit[partials[column]]
    found = _rows(latency[row, column], total, members[row], partials[column])
    return found if dear is None else found[~dear(found["latency"], found["cost"])]


def _good(table: Table) -> Ints:
    """Configurations on the first `LAYERS` fronts of W against unit cost."""
    waiting = np.arange(len(table.cost))
    layers: list[Ints] = []
    for _ in range(LAYERS):
        front = pareto(table.full_ms[waiting], table.unit[waiting])
        layers.append(waiting[front])
        waiting = np.delete(waiting, front)
    return np.concatenate(layers)


def _unbeaten(table: Table, by_pool: bool) -> Ints:
    """Configurations that no other one beats as a partial instance, at whatever rate; `by_pool`: that takes no more of
    any pool and costs no more without the prices on scarce workers, by which a dearer one that takes less may be first.
    """
    columns = np.column_stack((table.exec_ms, table.batch_ms, -table.throughput))
    if by_pool:
        configurations = table.stage.configurations
        pools = sorted({pool for c in configurations for pool in c.pools})
        taken = np.array([[c.taken_of(pool) / c.throughput_rps for pool in pools] for c in configurations])
        unpriced = np.array([(c.cost - c.of_prices) / c.throughput_rps for c in configurations])
        columns = np.column_stack((columns, taken.reshape(len(columns), len(pools)), unpriced))
    kept: list[int] = []
    for c in range(len(columns)):  # by unit cost: only an earlier one can beat a later one, but for equal unit costs
        no_worse = (columns[kept] <= columns[c]).all(axis=1)
        if not no_worse.any():
            kept.append(c)
    return np.array(kept, dtype=np.int64)
