"""What the pools may run now: each looked at anew after a moment, without the variants that memory has refused until
they are in memory again.

A variant that memory has refused is brought once more after a rest, before anybody is planned with it: a session that
was let in to find out would be removed again, for ever. Each time that this is in vain, or that memory refuses it again
soon after, the rest is twice as long.
"""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Protocol

from appliance.clock import NS_PER_MS, NS_PER_S
from appliance.domain.errors import ApplianceError
from appliance.runtime.catalogue import Entry
from appliance.runtime.servable import Servable
from appliance.runtime.sessions.environment import SessionEnvironment
from appliance.runtime.sessions.pools import PoolKey
from appliance.runtime.sessions.zoo import Zoo, zoo_of

REFUSED_NS, REFUSED_NS_MAX = 10 * NS_PER_S, 300 * NS_PER_S
"""So long a variant that memory has refused, or taken away, is neither planned with nor brought: at first, and at most;
..."""
REFUSED_NS_MIN = 2 * NS_PER_S
"""... or so long, where it is in memory all the same then."""
STEADY_NS = 60 * NS_PER_S
"""One that has been planned with again for so long is as any other."""
FORGOTTEN_NS = 2 * REFUSED_NS_MAX
"""After so long without a trial nobody wants it any more."""
SNAPSHOT_NS = 50 * NS_PER_MS
"""So long is gone by what variants take before that is looked at again."""


@dataclass(slots=True)
class _Refused:
    """A variant that memory has refused, or had refused a while ago."""

    at_ns: int
    rest_ns: int = REFUSED_NS
    back_ns: int | None = None
    """Since when it is planned with again; None: it is not."""
    trial: asyncio.Task[None] | None = None
    """Brings it."""

    def again(self, now_ns: int) -> None:
        """Memory refuses it now; it rests longer where it was planned with again."""
        if self.back_ns is not None:
            self.rest_longer(now_ns)
        self.at_ns, self.back_ns = now_ns, None

    def rest_longer(self, now_ns: int) -> None:
        """From now on, for it was brought in vain."""
        self.at_ns, self.rest_ns = now_ns, min(REFUSED_NS_MAX, 2 * self.rest_ns)


class MemoryLimit(Protocol):
    """What the promises of other pools leave of memory."""

    def fits(self, key: PoolKey, servable: Servable, without: str = "") -> bool:
        """Return whether a pool may use a variant. `without`: id of a session that counts as gone."""
        ...

    def told(self, key: PoolKey, servables: Iterable[Servable], without: str = "") -> str:
        """Return a text on why none of these variants may be used, to follow what finds no room."""
        ...


class Zoos:
    """Of all pools. Event-loop thread only."""

    def __init__(self, environment: SessionEnvironment) -> None:
        self._environment = environment
        self._limit: MemoryLimit | None = None
        self._limited: dict[tuple[PoolKey, str], tuple[Zoo, Zoo]] = {}
        """By pool and session that counts as gone: a zoo, and what is left of it beside other promises."""
        self._zoos: dict[tuple[str, float], Zoo] = {}
        """By application and floor; for a moment, for anybody may ask with whatever floor."""
        self._refused: dict[tuple[str, str], _Refused] = {}
        """By application and variant."""

    def limit(self, limit: MemoryLimit) -> None:
        """Offer nothing for which other promises leave no memory."""
        self._limit = limit

    def look_again(self) -> None:
        """Promises have changed."""
        self._limited.clear()

    def of(self, key: PoolKey, without: str = "") -> Zoo:
        """What a pool may use now, beside what the promises of others need; nothing where the application is not in
        service. `without`: id of a session that counts as gone.
        """
        zoo = self.alone(key)
        if self._limit is None or not zoo.rungs:
            return zoo
        before = self._limited.get((key, without))
        if before is not None and before[0] is zoo:
            return before[1]
        able = {rung.name for rung in zoo.rungs if self._limit.fits(key, rung.servable, without)}
        found = zoo
        if len(able) < len(zoo.rungs):
            crowded = [rung.servable for rung in zoo.rungs if rung.name not in able]
            found = zoo.only(lambda servable: servable.name in able)
            found = replace(found, held_beside=f"{zoo.held_beside}{self._limit.told(key, crowded, without)}")
        self._limited = {of: one for of, one in self._limited.items() if one[0].until_ns > zoo.until_ns - SNAPSHOT_NS}
        self._limited[key, without] = zoo, found
        return found

    def alone(self, key: PoolKey) -> Zoo:
        """Return the variants of a pool without recent refusals for memory, ignoring the promises of other pools."""
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
        zoo = Zoo(
            rungs,
            is_short,
            entry=entry,
            without=without,
            refused=tuple(refused),
            held_beside=self._environment.held_beside() if is_short else "",
            until_ns=now_ns + SNAPSHOT_NS,
        )
        self._zoos = {one: known for one, known in self._zoos.items() if known.until_ns > now_ns}
        self._zoos[key.application_id, key.floor] = zoo
        return zoo

    def refuse(self, application_id: str, variant: str) -> None:
        """Memory has refused a variant: it is not planned with until it is in memory again."""
        now_ns = self._environment.clock.now_ns()
        old_ns = now_ns - FORGOTTEN_NS
        self._refused = {of: one for of, one in self._refused.items() if one.trial is not None or one.at_ns > old_ns}
        self._refused.setdefault((application_id, variant), _Refused(now_ns)).again(now_ns)

    async def tried(self, key: PoolKey) -> None:
        """Return when what has rested long enough of a pool's variants has been brought, or could not be."""
        self.alone(key)
        trials = [one.trial for (id, _), one in self._refused.items() if id == key.application_id and one.trial]
        if trials:
            await asyncio.wait(trials)

    def close(self) -> None:
        """Bring nothing more."""
        for one in self._refused.values():
            if one.trial is not None:
                one.trial.cancel()

    def _without(self, entry: Entry, now_ns: int) -> frozenset[str]:
        """What is not planned with now."""
        own = [(name, one) for (application, name), one in self._refused.items() if application == entry.application.id]
        for name, one in own:
            servable = entry.servables.get(name)
            if servable is None or (one.back_ns is not None and now_ns - one.back_ns >= STEADY_NS):
                del self._refused[entry.application.id, name]
            elif one.back_ns is None and now_ns - one.at_ns >= REFUSED_NS_MIN:
                self._look_again(one, servable, now_ns)
        return frozenset(name for name, one in own if one.back_ns is None and name in entry.servables)

    def _look_again(self, one: _Refused, servable: Servable, now_ns: int) -> None:
        """Plan with it where it is in memory; else bring it, once it has rested."""
        if self._environment.is_resident(servable):
            one.back_ns = now_ns
        elif one.trial is None and now_ns - one.at_ns >= one.rest_ns:
            one.trial = asyncio.create_task(self._try(one, servable), name=f"try {servable.build_id}")

    async def _try(self, one: _Refused, servable: Servable) -> None:
        try:
            await self._environment.bring(servable)
        finally:
            one.trial = None
        if not self._environment.is_resident(servable):
            one.rest_longer(self._environment.clock.now_ns())

    def forget(self, key: PoolKey) -> None:
        """Nobody of a pool is left."""
        self._zoos.pop((key.application_id, key.floor), None)
