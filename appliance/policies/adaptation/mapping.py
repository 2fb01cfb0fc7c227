"""Which clients to which of the networks given: the paper's Algorithm 1 (§IV-B), one dynamic program over all batch
sizes of a network at once.
"""

import itertools
import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from appliance.policies.adaptation.base import TOLERANCE, Client, Network
from appliance.policies.adaptation.budgets import (
    batch_for,
    capacity_rps,
    latency_budget_ms,
    latency_max_ms,
    link_keeps_up,
)

RATE_DENOMINATOR = 1000
"""Rates count in thousandths (29.97); finer ones are rounded up, which is the safe side."""
COLUMNS_MAX = 1 << 16
"""Bound on the columns of the program; beyond it the step is made coarser, again rounding rates up."""


@dataclass(frozen=True, slots=True)
class Mapped:
    """One network instance with the batch and the clients it serves."""

    network: Network
    batch: int
    clients: tuple[Client, ...]


@dataclass(frozen=True, slots=True)
class RateScale:
    """Rates as whole multiples of `step_rps`, the GCD h of all of them (Alg. 1 line 12)."""

    step_rps: Fraction

    @classmethod
    def over(cls, clients: Sequence[Client], capacity_max_rps: float) -> "RateScale":
        """The step for these clients, coarse enough that `capacity_max_rps` is at most COLUMNS_MAX steps."""
        units = math.gcd(*(_units(client.rate_rps) for client in clients)) or 1
        coarser = math.ceil(capacity_max_rps * RATE_DENOMINATOR / units / COLUMNS_MAX)
        return cls(Fraction(units * max(1, coarser), RATE_DENOMINATOR))

    def weight(self, client: Client) -> int:
        """The client's rate in steps, rounded up."""
        return -(-_units(client.rate_rps) * self.step_rps.denominator // (RATE_DENOMINATOR * self.step_rps.numerator))

    def columns(self, capacity: float) -> int:
        """Whole steps within a capacity (Alg. 1 line 15)."""
        return math.floor(capacity * (1.0 + TOLERANCE) / float(self.step_rps))


class Mapper:
    """Algorithm 1 (MapClients): networks in descending accuracy each take the subset of the clients left with the
    largest total rate.

    What does not depend on the selection, each network's rows, is computed once, and selections that begin with the
    same networks share that work.
    """

    def __init__(self, clients: Sequence[Client], networks: Sequence[Network], scale: RateScale) -> None:
        self._networks = networks
        order = sorted(
            range(len(networks)), key=lambda i: (-networks[i].accuracy, networks[i].input_bytes, networks[i].name)
        )
        self._rank = {network: rank for rank, network in enumerate(order)}
        weights = [scale.weight(client) for client in clients]
        self._rows = [_rows(clients, weights, network, scale) for network in networks]
        everybody = frozenset(client.name for client in clients)
        self._found: dict[tuple[int, ...], tuple[tuple[Mapped, ...], frozenset[str]]] = {(): ((), everybody)}

    def mapping(self, selection: Iterable[int]) -> tuple[Mapped, ...]:
        """The instances that get clients, by descending accuracy; `selection` holds indices into the networks, one for
        each worker.

        O(networks · clients) operations on bit sets of t_max/h columns.
        """
        return self._after(tuple(sorted(selection, key=self._rank.__getitem__)))[0]

    def _after(self, selection: tuple[int, ...]) -> tuple[tuple[Mapped, ...], frozenset[str]]:
        """What the networks of a sorted selection take, and who is left."""
        known = self._found.get(selection)
        if known is None:
            mapped, left = self._after(selection[:-1])
            network = self._networks[selection[-1]]
            chosen = _largest_subset([row for row in self._rows[selection[-1]] if row[2].name in left])
            batch = batch_for(network, chosen) if chosen else None
            if batch is not None:
                mapped, left = (*mapped, Mapped(network, batch, chosen)), left.difference(c.name for c in chosen)
            known = self._found[selection] = mapped, left
        return known


Row = tuple[int, int, Client]
"""Weight in steps, columns reached, client."""


def _largest_subset(rows: Sequence[Row]) -> tuple[Client, ...]:
    """The subset with the largest total rate that one instance serves in time (Alg.

    1, FindOptimalClients): optimal over all batch sizes.

    Rows are clients by descending budget; bit k of a row says that k steps can be reached, which is all the paper's
    matrix of largest sums holds. A row reaches only as far as the largest capacity its client tolerates, so its new
    sums are right for every member. Ties: the earliest row.
    """
    reached = [1]
    best_row, best_column = 0, 0
    for weight, columns, _ in rows:
        before = reached[-1]
        now = (before | before << weight) & ((1 << columns + 1) - 1)
        reached.append(now)
        if now.bit_length() - 1 > best_column:
            best_row, best_column = len(reached) - 1, now.bit_length() - 1
    return _back_trace(rows, reached, best_row, best_column)


def _rows(clients: Sequence[Client], weights: Sequence[int], network: Network, scale: RateScale) -> list[Row]:
    """By descending budget; those who tolerate no batch are left out (the paper breaks there)."""
    steps = sorted((ms, scale.columns(capacity_rps(network, batch))) for batch, ms in network.latency_ms.items())
    latencies = [ms for ms, _ in steps]
    reach = list(itertools.accumulate((columns for _, columns in steps), max, initial=0))
    rows: list[tuple[float, Row]] = []
    for client, weight in zip(clients, weights, strict=True):
        budget = latency_budget_ms(client, network)
        columns = reach[bisect_right(latencies, latency_max_ms(budget))]
        if columns > 0 and link_keeps_up(client, network):
            rows.append((budget, (weight, columns, client)))
    rows.sort(key=lambda row: (-row[0], row[1][2].name))
    return [row for _, row in rows]


def _back_trace(rows: Sequence[Row], reached: Sequence[int], row: int, column: int) -> tuple[Client, ...]:
    chosen: list[Client] = []
    while column > 0:
        weight, _, client = rows[row - 1]
        if not reached[row - 1] >> column & 1:
            chosen.append(client)
            column -= weight
        row -= 1
    return tuple(reversed(chosen))


def _units(rate_rps: float) -> int:
    return max(1, math.ceil(rate_rps * RATE_DENOMINATOR * (1.0 - TOLERANCE)))
