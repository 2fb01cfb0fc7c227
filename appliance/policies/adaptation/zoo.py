"""The zoo and its profiles, made fit for planning (Jellyfish §III-B, §IV-A, §VI-A): order by size, filter, monotone P99 latencies."""

from collections.abc import Iterable
from dataclasses import replace

from appliance.policies.adaptation.base import Network


def by_size(networks: Iterable[Network]) -> tuple[Network, ...]:
    """Ascending input size; equal sizes (precisions of one network) by accuracy, then name."""
    return tuple(sorted(networks, key=lambda n: (n.input_bytes, n.accuracy, n.name)))


def filtered(networks: Iterable[Network]) -> tuple[Network, ...]:
    """By size, without those that are larger and yet less accurate than another (JF-02: 640 leaves, against 608)."""
    kept: list[Network] = []
    for network in by_size(networks):
        if not kept or network.accuracy >= kept[-1].accuracy:
            kept.append(network)
    return tuple(kept)


def monotone(networks: Iterable[Network]) -> tuple[Network, ...]:
    """By size, with each latency at least that of the next smaller network and of the next smaller batch (JF-04).

    A measured P99 has noise, and the paper's algorithm needs a non-decreasing one. Raising is the safe side: nothing is promised that was not measured.
    """
    ceiling: dict[int, float] = {}
    raised: list[Network] = []
    for network in by_size(networks):
        latency: dict[int, float] = {}
        floor = 0.0
        for batch in sorted(network.latency_ms):
            floor = max(floor, network.latency_ms[batch], ceiling.get(batch, 0.0))
            latency[batch] = ceiling[batch] = floor
        raised.append(replace(network, latency_ms=latency))
    return tuple(raised)
