"""What the pools may run now: each looked at anew after a moment, without the variants that memory has refused of
late.
"""

from appliance.clock import NS_PER_MS, NS_PER_S
from appliance.domain.errors import ApplianceError
from appliance.runtime.catalogue import Entry
from appliance.runtime.sessions.environment import SessionEnvironment
from appliance.runtime.sessions.pools import PoolKey
from appliance.runtime.sessions.zoo import Zoo, zoo_of

REFUSED_NS = 10 * NS_PER_S
"""So long a variant that memory has refused, or taken away, is not planned with ..."""
REFUSED_NS_MIN = 2 * NS_PER_S
"""... or so long, where it is in memory all the same then."""
SNAPSHOT_NS = 50 * NS_PER_MS
"""So long is gone by what variants take before that is looked at again."""


class Zoos:
    """Of all pools. Event-loop thread only."""

    def __init__(self, environment: SessionEnvironment) -> None:
        self._environment = environment
        self._zoos: dict[tuple[str, float], Zoo] = {}
        """By application and floor; for a moment, for anybody may ask with whatever floor."""
        self._refused: dict[tuple[str, str], int] = {}
        """(application, variant) that memory has refused → when."""

    def of(self, key: PoolKey) -> Zoo:
        """What there is now; nothing where the application is not in service."""
        now_ns = self._environment.clock.now_ns()
        try:
            entry = self._environment.catalogue.entry(key.application_id)
        except ApplianceError:
            return Zoo([], False)
        without = self._without(entry, now_ns)
        known = self._zoos.get((key.application_id, key.floor))
        if known is not None and now_ns < known.until_ns and known.entry is entry and known.without == without:
            return known
        rungs, is_short, refused = zoo_of(
            entry, key.floor, self._environment.workers, now_ns, self._environment.fits_memory, without
        )
        until_ns = now_ns + SNAPSHOT_NS
        zoo = Zoo(rungs, is_short, entry=entry, without=without, refused=tuple(refused), until_ns=until_ns)
        self._zoos = {one: known for one, known in self._zoos.items() if known.until_ns > now_ns}
        self._zoos[key.application_id, key.floor] = zoo
        return zoo

    def refuse(self, application_id: str, variant: str) -> None:
        """Memory has refused a variant: it is not planned with for a while."""
        self._refused[application_id, variant] = self._environment.clock.now_ns()

    def _without(self, entry: Entry, now_ns: int) -> frozenset[str]:
        """What is not planned with now."""
        self._refused = {one: at_ns for one, at_ns in self._refused.items() if now_ns - at_ns < REFUSED_NS}
        id, is_resident = entry.application.id, self._environment.is_resident
        return frozenset(
            variant
            for (application, variant), at_ns in self._refused.items()
            if application == id
            and not (
                now_ns - at_ns >= REFUSED_NS_MIN
                and variant in entry.servables
                and is_resident(entry.servables[variant])
            )
        )

    def forget(self, key: PoolKey) -> None:
        """Nobody of a pool is left."""
        self._zoos.pop((key.application_id, key.floor), None)
