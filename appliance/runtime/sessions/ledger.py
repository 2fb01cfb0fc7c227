"""Who has how much of the processors' time: what sessions' plans take, by pool, and what other requests have taken of
late. Shares are of all workers together, 0 to 1.

A tenant's promises are sold within its share: its weight among the tenants that have sessions or had work in the last
10 s. What is free beyond that is sold, too, and marked.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass

from appliance.clock import NS_PER_S

ACTIVE_NS = 10 * NS_PER_S
"""A tenant whose last request lies longer back wants nothing now."""
SHARE_MIN = 0.01
"""No pool is planned with less: rates are divided by it."""


@dataclass(frozen=True, slots=True)
class Load:
    """What a pool of sessions takes of the processors."""

    tenant: str
    planned: float
    """By its present plan."""
    least: float
    """With the cheapest variant that keeps each promise."""


class ProcessorLedger:
    """The shares."""

    def __init__(self, workers: Callable[[], int]) -> None:
        """`workers`: how many serve now."""
        self._workers = workers
        self.unplanned = 0.0
        """Of late, by requests that belong to no session."""
        self.unplanned_run_ms = 0.0
        """The longest of their runs of late."""
        self._loads: dict[Hashable, Load] = {}

    def put(self, pool: Hashable, load: Load) -> None:
        """What a pool takes from now on."""
        self._loads[pool] = load

    def sell(self, pool: Hashable, tenant: str, least: float) -> None:
        """A promise was made that its pool's next plan will take up: what it takes is free no more."""
        before = self._loads.get(pool, Load(tenant, 0.0, 0.0))
        self._loads[pool] = Load(tenant, before.planned + least, before.least + least)

    def give_back(self, pool: Hashable, planned: float, least: float) -> None:
        """One of its sessions has gone: what that took is free before the pool's next plan."""
        before = self._loads.get(pool)
        if before is not None:
            left = max(0.0, before.planned - planned), max(0.0, before.least - least)
            self._loads[pool] = Load(before.tenant, *left)

    def remove(self, pool: Hashable) -> None:
        """It has no sessions any more."""
        self._loads.pop(pool, None)

    def observe(self, busy_workers: float, longest_ms: float) -> None:
        """What runs of no session take of late: how many workers they keep busy, and the longest of them."""
        self.unplanned = min(1.0, busy_workers / self._workers())
        self.unplanned_run_ms = longest_ms

    def share_of(self, tenant: str, weights: Mapping[str, float]) -> float:
        """A tenant's share; `weights` of those that want some now."""
        total = sum(weights.values())
        return weights.get(tenant, 0.0) / total if total else 1.0

    def for_admission(self, pool: Hashable, tenant: str, weights: Mapping[str, float]) -> float:
        """The most that a pool can get: what others do not need for their promises."""
        others = [load for key, load in self._loads.items() if key != pool]
        free = 1.0 - self.unplanned - sum(load.least for load in others)
        own = self.share_of(tenant, weights) - _sum(load.least for load in others if load.tenant == tenant)
        promised = 1.0 - _sum(load.least for load in others)
        return max(SHARE_MIN, free, min(own, promised))

    def for_plan(self, pool: Hashable, tenant: str, weights: Mapping[str, float]) -> float:
        """What a pool is planned with: what it needs, and its part of the rest."""
        most = self.for_admission(pool, tenant, weights)
        own = self._loads.get(pool)
        if own is None:
            return most
        rest = max(0.0, most - own.least)
        others = {load.tenant for key, load in self._loads.items() if key != pool}
        pools = 1 + sum(load.tenant == tenant for key, load in self._loads.items() if key != pool)
        wanted = {name: weights.get(name, 1.0) for name in others | {tenant}}
        part = self.share_of(tenant, wanted) / pools
        return min(most, max(SHARE_MIN, own.least + rest * part))

    def planned_of(self, tenant: str) -> float:
        """What all pools of a tenant take at least."""
        return _sum(load.least for load in self._loads.values() if load.tenant == tenant)

    @property
    def planned(self) -> float:
        """What all sessions' plans take."""
        return _sum(load.planned for load in self._loads.values())


def _sum(values: Iterable[float]) -> float:
    return float(sum(values))
