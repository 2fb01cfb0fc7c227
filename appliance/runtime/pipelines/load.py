"""What single calls take of the processors beside pipelines, of late, as far as it is theirs to take.

A tenant whose calls fill the box has what the others leave: once these want their part it is the queue that gives it to
them, by weight. So a plan need not make room for more of a tenant's calls than its part.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from appliance.clock import NS_PER_S

SMOOTHING_NS = 2 * NS_PER_S
LEAST = 0.02
"""A share below this is none: plans need not see it."""
_GONE = 1e-6
"""Workers; of a tenant that takes fewer nothing is kept."""

BusySeconds = Mapping[str, Mapping[int, float]]
"""Tenant → group of processors → seconds since the start."""


@dataclass(slots=True)
class SingleCallLoad:
    """Shares by group of processors. All instants are the caller's."""

    _seen: tuple[int, BusySeconds] | None = None
    _workers: dict[str, dict[int, float]] = field(default_factory=dict)
    """Tenant → group → workers that are busy with its single calls."""

    def observe(self, now_ns: int, busy_s: BusySeconds) -> None:
        """Seconds that single calls have taken of each group since the start."""
        if self._seen is not None and now_ns <= self._seen[0]:
            return
        before, self._seen = self._seen, (now_ns, {tenant: dict(own) for tenant, own in busy_s.items()})
        if before is None:
            return
        took_s = (now_ns - before[0]) / NS_PER_S
        weight = min(1.0, (now_ns - before[0]) / SMOOTHING_NS)
        for tenant, own in busy_s.items():
            then = before[1].get(tenant, {})
            known = self._workers.setdefault(tenant, {})
            for group, seconds in own.items():
                workers = max(0.0, seconds - then.get(group, 0.0)) / took_s
                known[group] = known.get(group, 0.0) + weight * (workers - known.get(group, 0.0))
        for tenant in [one for one, known in self._workers.items() if max(known.values(), default=0.0) < _GONE]:
            del self._workers[tenant]

    @property
    def tenants(self) -> Collection[str]:
        """Whose calls take anything."""
        return self._workers.keys()

    def share(self, group: int, workers: int, parts: Mapping[str, float]) -> float:
        """Of a group's workers; of each tenant its part at most, a share of 1, where it has one."""
        found = 0.0
        for tenant, known in self._workers.items():
            found += min(parts.get(tenant, 1.0), known.get(group, 0.0) / max(1, workers))
        return min(1.0, found) if found >= LEAST else 0.0


def parts_of(weights: Mapping[str, float]) -> Mapping[str, float]:
    """Of all processors the part of each tenant, where all of them want as much as they can get."""
    together = sum(weights.values())
    return {tenant: weight / together for tenant, weight in weights.items()} if together > 0.0 else {}
