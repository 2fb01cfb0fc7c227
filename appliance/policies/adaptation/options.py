"""What a worker may run, reduced: (network, batch) pairs with their capacity and the clients that tolerate them.

An option that another one dominates (at least as accurate, carries as much, tolerated by all who tolerate it) is never
needed. That is where most of a zoo goes: of 204 pairs of a YOLO-like zoo with 12 batches, about a third is left. Unlike
the paper's filter this loses no optimum, whatever the profile.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from appliance.policies.adaptation.base import TOLERANCE, AdaptationInput, Client, Network

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Options:
    """The options by descending accuracy, then capacity; clients in the order of their names.

    accuracy: float64[O]; capacity: float64[O], in requests per second, with the tolerance of the constraint; rates:
    float64[N]; tolerated: bool[N, O], eq. 5.
    """

    clients: tuple[Client, ...]
    networks: tuple[Network, ...]
    batches: tuple[int, ...]
    accuracy: Floats
    capacity: Floats
    rates: Floats
    tolerated: Bools


def options_of(problem: AdaptationInput) -> Options:
    """All options of the problem that no other one dominates.

    O(O²·N) in numpy: about 1 ms for 204 pairs and 160 clients.
    """
    clients = tuple(sorted(problem.clients, key=lambda c: c.name))
    pairs = sorted(
        ((n, b) for n in problem.networks for b in n.latency_ms),
        key=lambda p: (-p[0].accuracy, -p[1] / p[0].latency_ms[p[1]], p[0].input_bytes, p[1], p[0].name),
    )
    accuracy = np.array([n.accuracy for n, _ in pairs])
    latency = np.array([n.latency_ms[b] for n, b in pairs])
    capacity = np.array([1000.0 * b for _, b in pairs]) / latency * (1.0 + TOLERANCE)
    rates = np.array([c.rate_rps for c in clients])
    tolerated = _tolerated(clients, [n for n, _ in pairs], latency) & (rates[:, None] <= capacity[None, :])
    kept = _undominated(accuracy, np.minimum(capacity, rates @ tolerated), tolerated)
    return Options(
        clients,
        tuple(pairs[o][0] for o in kept),
        tuple(pairs[o][1] for o in kept),
        accuracy[kept],
        capacity[kept],
        rates,
        tolerated[:, kept],
    )


def distinct(values: Floats) -> Floats:
    """The values that there are, ascending. `np.unique` would import masked arrays when it is asked first, which takes
    20 ms of an event loop."""
    return np.array(sorted(set(values.tolist())), dtype=np.float64)


def _tolerated(clients: Sequence[Client], networks: Sequence[Network], latency: Floats) -> Bools:
    """Eq. 5 of each client and option, and whether its link keeps up; the same arithmetic as `budgets`."""
    slo = np.array([c.slo_ms for c in clients])
    bandwidth = np.array([c.bandwidth_bps for c in clients])
    frames = np.array([8000.0 * n.input_bytes for n in networks])
    transfer = frames[None, :] / bandwidth[:, None]
    budget = slo[:, None] - transfer
    fits: Bools = 2.0 * latency[None, :] <= budget + TOLERANCE * np.abs(budget)
    most = np.array([c.transfer_ms_max for c in clients])
    keeps_up: Bools = transfer <= most[:, None] * (1.0 + TOLERANCE)
    return fits & keeps_up


def _undominated(accuracy: Floats, carried: Floats, tolerated: Bools) -> list[int]:
    """Indices of the options that no other dominates; the first of equals. Options that nobody tolerates go too."""
    # Bits and no matrix product: its threads cost more than they save at this size.
    bits = np.packbits(tolerated.T, axis=1)
    covers = np.ones((len(accuracy), len(accuracy)), dtype=np.bool_)  # [o, p]: all who tolerate p tolerate o
    for byte in bits.T:
        covers &= (byte[None, :] & ~byte[:, None]) == 0
    better = covers & (accuracy[:, None] >= accuracy[None, :]) & (carried[:, None] >= carried[None, :])
    mutual = better & better.T
    beaten = (better & ~mutual).any(axis=0) | np.triu(mutual, 1).any(axis=0)
    return [int(o) for o in np.flatnonzero(~beaten & bits.any(axis=1))]
