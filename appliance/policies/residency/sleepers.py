"""Which builds that sleep go for good first, where all of them take more than they may: those of the tenant that has
most by its weight, and of these the one asked longest ago.

As the longest queue gives way in a shared buffer (Suter, Lakshman, Stiliadis and Choudhury, "Buffer management schemes
for supporting TCP in gigabit routers with per-flow queueing", IEEE JSAC 17(6), 1999): one alone may take all of it, and
who has no more than their part loses nothing to who has more.
"""

import heapq
from collections.abc import Callable, Iterable
from typing import NamedTuple


class Sleeper(NamedTuple):
    """A build that sleeps, and what it keeps."""

    build_id: str
    tenant: str
    bytes: int
    last_used_ns: int


def order_of_leaving(sleepers: Iterable[Sleeper], weight_of: Callable[[str], float]) -> list[str]:
    """All of them, by id: whoever is first goes first. Weights are above 0."""
    newest_first = sorted(sleepers, key=lambda s: (-s.last_used_ns, s.build_id))
    own: dict[str, list[Sleeper]] = {}
    held: dict[str, int] = {}
    for sleeper in newest_first:
        own.setdefault(sleeper.tenant, []).append(sleeper)
        held[sleeper.tenant] = held.get(sleeper.tenant, 0) + sleeper.bytes

    def entry(tenant: str) -> tuple[float, int, str]:
        return -held[tenant] / weight_of(tenant), own[tenant][-1].last_used_ns, tenant

    waiting = [entry(tenant) for tenant in own]
    heapq.heapify(waiting)
    leaving: list[str] = []
    while waiting:
        *_, tenant = heapq.heappop(waiting)
        sleeper = own[tenant].pop()
        leaving.append(sleeper.build_id)
        held[tenant] -= sleeper.bytes
        if own[tenant]:
            heapq.heappush(waiting, entry(tenant))
    return leaving
