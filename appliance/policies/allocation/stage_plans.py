"""Ways to serve one stage, as arrays: a multiset of full instances each, and the configuration of the partial one, which takes the rate that is left."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from appliance.policies.allocation.base import TOLERANCE
from appliance.policies.allocation.configurations import Configuration, Stage, StagePlan
from appliance.policies.allocation.fronts import Bools, Floats, Ints, pareto

Dear = Callable[[Floats, Floats], Bools]
"""Whether latency and cost are too much, for many ways at once."""
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
    """1000·batch: W* = exec_ms + batch_ms/rate."""
    full_ms: Floats


@dataclass(frozen=True, slots=True)
class StagePlans:
    """Ways to serve a stage, as rows. `partial` is a configuration's index, -1 for none; `is_complete`: none that matters was left out."""

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

    def usage(self, worker: str) -> Floats:
        """Workers of one type that each way takes, shares included."""
        configurations = self.table.stage.configurations
        of_type = np.array([c.worker == worker for c in configurations])
        partial = np.where(self.partial >= 0, of_type[self.partial], False)
        share = self.rate / self.table.throughput[self.partial]
        whole: Floats = self.counts.astype(np.float64) @ of_type.astype(np.float64)
        return whole + np.where(partial, share, 0.0)


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
    """The configurations that are fast enough for `cap_ms` at full rate; no slower one is of use, full or partial."""
    fast = tuple(c for c in stage.configurations if c.full_latency_ms <= cap_ms * (1.0 + TOLERANCE))
    columns: Sequence[Callable[[Configuration], float]] = (
        lambda c: c.throughput_rps,
        lambda c: c.cost,
        lambda c: c.unit_cost,
        lambda c: c.latency_ms,
        lambda c: 1000.0 * c.batch,
        lambda c: c.full_latency_ms,
    )
    return Table(
        Stage(stage.name, stage.rate_rps, fast),
        *(np.array([column(c) for c in fast], dtype=np.float64) for column in columns),
    )


def floor_of(table: Table) -> tuple[Floats, Floats]:
    """Latency against a cost that no way of serving the stage within it goes below: rate × the least unit cost of what is fast enough."""
    kept = pareto(table.full_ms, table.unit)
    return table.full_ms[kept], table.unit[kept] * table.stage.rate_rps


def simple_plans(table: Table, cap_ms: float) -> StagePlans:
    """One full configuration, as many as fit or one less, and any partial one: a quick start."""
    rate, count = table.stage.rate_rps, len(table.cost)
    most = np.floor(rate / table.throughput * (1.0 + TOLERANCE))
    states = np.concatenate((np.zeros((1, count)), np.diag(most), np.diag(np.maximum(most - 1.0, 0.0))))
    left = rate - states @ table.throughput
    worst = np.where(states > 0.0, table.full_ms, 0.0).max(axis=1)
    left[left <= TOLERANCE * rate] = 0.0
    return with_partials(table, (states.astype(np.int64), left, states @ table.cost, worst), cap_ms, None, True, True)


def with_partials(
    table: Table, states: Sequence[NDArray[Any]], cap_ms: float, dear: Dear | None, prune: bool, is_complete: bool
) -> StagePlans:
    """Every state (counts, left rate, cost, slowest full instance) with every partial configuration that can take what is left."""
    counts, left, cost, worst = states
    found = [_whole(left, cost, worst)]
    open_states = np.flatnonzero(left > 0.0)
    partials = _unbeaten(table)
    size = max(1, CHUNK // max(1, len(partials)))
    for start in range(0, len(open_states), size):
        found.append(_pairs(table, open_states[start : start + size], partials, left, cost, worst, cap_ms, dear))
        if prune:
            found = [_pruned(np.concatenate(found))]
    rows = _pruned(np.concatenate(found)) if prune else np.concatenate(found)
    state = rows["state"]
    return StagePlans(
        table,
        rows["latency"],
        rows["cost"],
        counts[state],
        rows["partial"],
        np.where(rows["partial"] >= 0, left[state], 0.0),
        is_complete,
    )


_ROW = np.dtype([("latency", "f8"), ("cost", "f8"), ("state", "i8"), ("partial", "i8")])


def _rows(latency: Floats, cost: Floats, state: Ints, partial: Ints) -> NDArray[Any]:
    rows = np.empty(len(latency), dtype=_ROW)
    rows["latency"], rows["cost"], rows["state"], rows["partial"] = latency, cost, state, partial
    return rows


def _pruned(rows: NDArray[Any]) -> NDArray[Any]:
    return rows[pareto(rows["latency"], rows["cost"])]


def _whole(left: Floats, cost: Floats, worst: Floats) -> NDArray[Any]:
    """States without rate left: no partial instance."""
    state = np.flatnonzero(left == 0.0)
    return _rows(worst[state], cost[state], state, np.full(len(state), -1, dtype=np.int64))


def _pairs(
    table: Table,
    states: Ints,
    partials: Ints,
    left: Floats,
    cost: Floats,
    worst: Floats,
    cap_ms: float,
    dear: Dear | None,
) -> NDArray[Any]:
    rate = left[states][:, None]
    latency = np.maximum(worst[states][:, None], table.exec_ms[partials] + table.batch_ms[partials] / rate)
    fits = (rate <= table.throughput[partials] * (1.0 + TOLERANCE)) & (latency <= cap_ms * (1.0 + TOLERANCE))
    row, column = np.nonzero(fits)
    total = cost[states[row]] + left[states[row]] * table.unit[partials[column]]
    found = _rows(latency[row, column], total, states[row], partials[column])
    return found if dear is None else found[~dear(found["latency"], found["cost"])]


def _unbeaten(table: Table) -> Ints:
    """Configurations that no other one of the same worker type beats as a partial instance, at whatever rate."""
    columns = (table.unit, table.exec_ms, table.batch_ms, -table.throughput)
    worker = np.array([c.worker for c in table.stage.configurations])
    no_worse = worker[:, None] == worker[None, :]
    better = np.zeros_like(no_worse)
    for column in columns:
        no_worse &= column[:, None] <= column[None, :]
        better |= column[:, None] < column[None, :]
    return np.flatnonzero(~(no_worse & better).any(axis=0))
