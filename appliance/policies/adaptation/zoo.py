"""The zoo and its profiles, made fit for planning (Jellyfish §III-B, §IV-A, §VI-A): order by size, filter, monotone P99
latencies.

The paper's zoo has one network a size, and takes a larger one to be slower and more accurate. Here a size may have
several precisions, of which nothing is known beforehand: int8 may be quicker than fp32 or slower, and as accurate. So
sizes are compared with sizes, and networks by what was measured.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from itertools import groupby

from appliance.policies.adaptation.base import Network


def by_size(networks: Iterable[Network]) -> tuple[Network, ...]:
    """Ascending input size; equal sizes (precisions of one network) by accuracy, then name."""
    return tuple(sorted(networks, key=lambda n: (n.input_bytes, n.accuracy, n.name)))


def filtered(networks: Iterable[Network], kept: Collection[str] = ()) -> tuple[Network, ...]:
    """By size, without those that another one makes needless: no larger, at least as accurate, and at no batch slower
    (by the monotone profile).

    For one network a size this is JF-02 (640 leaves, against 608). A network that is larger and less accurate but
    quicker, as int8 may be beside the fp32 of a smaller size, stays. Of equals the first by name stays.
    Those of `kept`, by name, stay whatever the others take: whether a change pays is not decided here (`going_on`).
    """
    ordered = by_size(networks)
    measured = monotone(ordered)
    return tuple(
        network
        for network, own in zip(ordered, measured, strict=True)
        if network.name in kept or not any(_makes_needless(other, own) for other in measured)
    )


def monotone(networks: Iterable[Network]) -> tuple[Network, ...]:
    """By size, with each latency at least that of the next smaller batch, and of the quickest network of each smaller
    size (JF-04).

    A measured P99 has noise, and the paper's algorithm needs a non-decreasing one. Raising is the safe side: nothing is
    promised that was not measured. Precisions of one size do not raise one another.
    """
    floors: dict[int, float] = {}
    raised: list[Network] = []
    for _, size in groupby(by_size(networks), key=lambda network: network.input_bytes):
        alike = [replace(network, latency_ms=_raised(network.latency_ms, floors)) for network in size]
        raised += alike
        for batch in {batch for network in alike for batch in network.latency_ms}:
            floors[batch] = min(network.latency_ms[batch] for network in alike if batch in network.latency_ms)
    return tuple(raised)


def _raised(latency_ms: Mapping[int, float], floors: Mapping[int, float]) -> dict[int, float]:
    raised: dict[int, float] = {}
    floor = 0.0
    for batch in sorted(latency_ms):
        floor = max(floor, latency_ms[batch], floors.get(batch, 0.0))
        raised[batch] = floor
    return raised


def _makes_needless(better: Network, worse: Network) -> bool:
    """Whether whoever runs `worse` may as well run `better`."""
    if better.input_bytes > worse.input_bytes or better.accuracy < worse.accuracy:
        return False
    both = better.latency_ms.keys() & worse.latency_ms.keys()
    if any(better.latency_ms[batch] > worse.latency_ms[batch] for batch in both):
        return False
    if better.input_bytes < worse.input_bytes:
        return better.accuracy > worse.accuracy
    is_equal = better.accuracy == worse.accuracy and better.latency_ms == worse.latency_ms
    return both == worse.latency_ms.keys() and (not is_equal or better.name < worse.name)
