"""What keeps a client from a network: its link, the time of a run, its own rate, or that the workers are taken."""

from collections.abc import Iterable, Sequence
from enum import StrEnum

from appliance.policies.adaptation.base import Client, Network
from appliance.policies.adaptation.budgets import (
    capacity_rps,
    fits_latency,
    fits_rate,
    latency_budget_ms,
    link_keeps_up,
)


class Binding(StrEnum):
    """The first constraint that fails for a client alone on a worker, in the order of eq.

    5 and 6; `WORKERS` when none does.
    """

    COMPUTE = "compute budget"
    """Two runs take longer than the SLO, whatever the link."""
    NETWORK = "network share"
    """Two runs would fit the SLO, but not beside the frame's time on the link."""
    RATE = "rate"
    """No batch that is in time carries the client's rate, even alone."""
    WORKERS = "worker capacity"
    """The client could be served; others have the workers."""


def binding(client: Client, networks: Iterable[Network]) -> Binding:
    """What keeps the client from all of these networks: of several, the constraint that comes last, so the one that
    is nearest to being met.
    """
    return max((_of(client, network) for network in networks), key=_ORDER.index)


def next_better(network: Network, networks: Sequence[Network]) -> list[Network]:
    """The networks of the next level of accuracy above."""
    above = [other.accuracy for other in networks if other.accuracy > network.accuracy]
    return [other for other in networks if above and other.accuracy == min(above)]


_ORDER = tuple(Binding)


def _of(client: Client, network: Network) -> Binding:
    quick = [batch for batch, ms in network.latency_ms.items() if fits_latency(ms, client.slo_ms)]
    if not quick:
        return Binding.COMPUTE
    budget_ms = latency_budget_ms(client, network)
    in_time = [batch for batch in quick if fits_latency(network.latency_ms[batch], budget_ms)]
    if not in_time or not link_keeps_up(client, network):
        return Binding.NETWORK
    carries = any(fits_rate(client.rate_rps, capacity_rps(network, batch)) for batch in in_time)
    return Binding.WORKERS if carries else Binding.RATE
