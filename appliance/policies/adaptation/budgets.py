"""What the network leaves of an SLO, and what a worker can carry (Jellyfish §IV-A eq. 5 and 6, §V)."""

from collections.abc import Iterable

from appliance.policies.adaptation.base import TOLERANCE, Client, Network


def latency_budget_ms(client: Client, network: Network) -> float:
    """L_ij: the SLO less the time on the link of a frame in this network's size (JF-07).

    Negative when the link alone takes longer.
    """
    return client.slo_ms - 8000.0 * network.input_bytes / client.bandwidth_bps


def link_keeps_up(client: Client, network: Network) -> bool:
    """Whether the link has carried a frame before it has to carry the one after the next."""
    return 8000.0 * network.input_bytes / client.bandwidth_bps <= client.transfer_ms_max * (1.0 + TOLERANCE)


def latency_max_ms(budget_ms: float) -> float:
    """Eq. 5: one execution of waiting and one of its own within the budget (JF-08)."""
    return (budget_ms + TOLERANCE * abs(budget_ms)) / 2.0


def fits_latency(latency_ms: float, budget_ms: float) -> bool:
    """Eq. 5."""
    return latency_ms <= latency_max_ms(budget_ms)


def fits_rate(rate_rps: float, capacity_rps: float) -> bool:
    """Eq. 6 (JF-09)."""
    return rate_rps <= capacity_rps * (1.0 + TOLERANCE)


def capacity_rps(network: Network, batch: int) -> float:
    """Throughput of full batches, one after the other."""
    return 1000.0 * batch / network.latency_ms[batch]


def batch_for(network: Network, clients: Iterable[Client]) -> int | None:
    """The batch with the least latency that serves these clients together, the smaller one of equals; None when none
    does (JF-14).
    """
    members = tuple(clients)
    rate = sum(client.rate_rps for client in members)
    budget = min((latency_budget_ms(client, network) for client in members), default=float("inf"))
    for batch in sorted(network.latency_ms, key=lambda b: (network.latency_ms[b], b)):
        if fits_latency(network.latency_ms[batch], budget) and fits_rate(rate, capacity_rps(network, batch)):
            return batch
    return None
