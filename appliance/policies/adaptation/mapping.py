"""Which clients to which of the networks given: the paper's Algorithm 1 (§IV-B), one dynamic program over all batch sizes of a network at once."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from appliance.policies.adaptation.base import TOLERANCE, Client, Network
from appliance.policies.adaptation.budgets import batch_for, capacity_rps, fits_latency, latency_budget_ms

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
        return math.ceil(Fraction(_units(client.rate_rps), RATE_DENOMINATOR) / self.step_rps)

    def columns(self, capacity: float) -> int:
        """Whole steps within a capacity (Alg. 1 line 15)."""
        return math.floor(capacity * (1.0 + TOLERANCE) / float(self.step_rps))


def map_clients(clients: Sequence[Client], networks: Sequence[Network], scale: RateScale) -> tuple[Mapped, ...]:
    """Networks in descending accuracy each take the subset of the clients left with the largest total rate (Alg. 1, MapClients).

    O(networks · clients) operations on bit sets of t_max/h columns. Instances that get no clients are not in the answer.
    """
    left = list(clients)
    mapped: list[Mapped] = []
    for network in sorted(networks, key=lambda n: (-n.accuracy, n.input_bytes, n.name)):
        chosen = find_clients(left, network, scale)
        batch = batch_for(network, chosen)
        if not chosen or batch is None:
            continue
        mapped.append(Mapped(network, batch, chosen))
        taken = {client.name for client in chosen}
        left = [client for client in left if client.name not in taken]
    return tuple(mapped)


def find_clients(clients: Sequence[Client], network: Network, scale: RateScale) -> tuple[Client, ...]:
    """The subset with the largest total rate that one instance serves in time (Alg. 1, FindOptimalClients): optimal over all batch sizes.

    Rows are clients by descending budget; bit k of a row says that k steps can be reached, which is all the paper's matrix of largest sums holds.
    A row reaches only as far as the largest capacity its client tolerates, so its new sums are right for every member. Ties: the earliest row.
    """
    rows = _rows(clients, network, scale)
    reached = [1]
    best_row, best_column = 0, 0
    for weight, columns, _ in rows:
        before = reached[-1]
        now = (before | before << weight) & ((1 << columns + 1) - 1)
        reached.append(now)
        if now.bit_length() - 1 > best_column:
            best_row, best_column = len(reached) - 1, now.bit_length() - 1
    return _back_trace(rows, reached, best_row, best_column)


def _rows(clients: Sequence[Client], network: Network, scale: RateScale) -> list[tuple[int, int, Client]]:
    """(weight, columns reached, client) by descending budget; those who tolerate no batch are left out (the paper breaks there)."""
    budgets = {client.name: latency_budget_ms(client, network) for client in clients}
    capacities = {batch: scale.columns(capacity_rps(network, batch)) for batch in network.latency_ms}
    rows: list[tuple[int, int, Client]] = []
    for client in sorted(clients, key=lambda c: (-budgets[c.name], c.name)):
        tolerated = (capacities[b] for b, ms in network.latency_ms.items() if fits_latency(ms, budgets[client.name]))
        columns = max(tolerated, default=0)
        if columns > 0:
            rows.append((scale.weight(client), columns, client))
    return rows


def _back_trace(
    rows: Sequence[tuple[int, int, Client]], reached: Sequence[int], row: int, column: int
) -> tuple[Client, ...]:
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
