"""Count the memory that the promises of all sessions need together, for what may be promised or planned beside them.

A pool needs the variant that takes least of those by which all its promises can be kept, or what its plan has where no
single variant keeps all. Pools of one application share a variant where that takes less.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from appliance.clock import NS_PER_MS
from appliance.domain.session import AccuracyPromise, LatencyPromise, Reference
from appliance.policies.adaptation.going_on import networks_of
from appliance.runtime.servable import Servable
from appliance.runtime.sessions import adapting, offloading
from appliance.runtime.sessions.environment import SessionEnvironment
from appliance.runtime.sessions.live import LiveSession
from appliance.runtime.sessions.pools import PoolKey, Pools
from appliance.runtime.sessions.shares import Shares, order
from appliance.runtime.sessions.zoo import Rung, Zoo
from appliance.runtime.sessions.zoos import Zoos

SNAPSHOT_NS = 50 * NS_PER_MS
"""So long the budget is taken to be as it was, while no promise changes."""
AGE_MARGIN = 2.0
"""A variant keeps a promise of accuracy if results could be so many times as old as on a box for the session alone."""

Builds = Mapping[str, Servable]
"""By build."""


@dataclass(frozen=True, slots=True)
class _Need:
    """Sets of builds, each of which keeps all promises of one pool."""

    key: PoolKey
    rank: tuple[object, ...]
    """The first by this keeps its memory where there is too little for all."""
    choices: tuple[Builds, ...]
    """Any of these is enough; at least one, the one that takes least first."""

    def is_met(self, there: Builds) -> bool:
        """Return whether builds in memory are enough."""
        return any(choice.keys() <= there.keys() for choice in self.choices)


class PromisedMemory:
    """Memory that admitted promises need. Event-loop thread only."""

    def __init__(
        self,
        environment: SessionEnvironment,
        pools: Pools,
        zoos: Zoos,
        shares: Shares,
        overhead: Callable[[PoolKey], adapting.FrameOverhead],
    ) -> None:
        """`overhead`: what a frame of a pool takes beside its transfer and its run."""
        self._environment = environment
        self._pools = pools
        self._zoos = zoos
        self._shares = shares
        self._overhead = overhead
        self._needs: dict[PoolKey, _Need | None] = {}
        """Of pools that have not changed since; None: it needs nothing."""
        self._kept: tuple[int, Sequence[_Need]] | None = None
        """Until when they hold, and the needs that there is memory for."""
        zoos.limit(self)

    def changed(self, key: PoolKey) -> None:
        """Count a pool anew: its sessions or its plan have changed."""
        self._needs.pop(key, None)
        self._kept = None
        self._zoos.look_again()

    def fits(self, key: PoolKey, servable: Servable, without: str = "") -> bool:
        """Return whether a pool may use a variant beside what the promises of all other pools need.

        `without`: id of a session that counts as gone.
        """
        return self._environment.fits_beside((servable,), self._others(key, servable, without).values())

    def told(self, key: PoolKey, servables: Iterable[Servable], without: str = "") -> str:
        """Return a text on why none of these variants may be used, to follow what finds no room."""
        least = min(servables, key=lambda one: (one.need_bytes, one.name))
        return self._environment.told_beside(least, self._others(key, least, without).values())

    def builds(self) -> list[Servable]:
        """Return what promises need together."""
        return list(_together(self._all(), {}, "").values())

    def needed(self) -> dict[str, set[str]]:
        """Return the variants that promises need, by application."""
        found: dict[str, set[str]] = {}
        for application_id, needs in _by_application(self._all()).items():
            found[application_id] = {one.name for one in _cheapest(needs, {}).values()}
        return found

    # -- inside --------------------------------------------------------------------------------------------------------

    def _others(self, key: PoolKey, servable: Servable, without: str) -> Builds:
        """Return what the other pools need if a pool uses a variant, with that where they share it."""
        others = [need for need in self._all() if need.key != key]
        if without:
            own = [need for need in others if any(live.id == without for live in self._pools.members.of(need.key))]
            others = [need for need in others if need not in own]
            others += [left for need in own if (left := self._need_of(need.key, without)) is not None]
        return _together(others, {servable.build_id: servable}, key.application_id)

    def _all(self) -> Sequence[_Need]:
        """Return the needs that there is memory for together; the first ones by rank, where there is too little."""
        now_ns = self._environment.clock.now_ns()
        if self._kept is not None and now_ns < self._kept[0]:
            return self._kept[1]
        keys = set(self._pools.members.keys())
        self._needs = {key: self._needs[key] if key in self._needs else self._need_of(key) for key in keys}
        found = sorted((need for need in self._needs.values() if need is not None), key=lambda need: need.rank)
        kept = found
        if not self._fit(found):
            kept = []
            for need in found:
                if self._fit([*kept, need]):
                    kept.append(need)
        self._kept = now_ns + SNAPSHOT_NS, kept
        return kept

    def _fit(self, needs: Sequence[_Need]) -> bool:
        return self._environment.fits_beside(_together(needs, {}, "").values(), ())

    def _need_of(self, key: PoolKey, without: str = "") -> _Need | None:
        members = [live for live in self._pools.held(key) if live.id != without]
        if not members:
            return None
        zoo = self._zoos.alone(key)
        enough = [rung.servable for rung in (*zoo.rungs, *zoo.refused) if self._keeps_all(key, members, rung, zoo)]
        enough.sort(key=lambda one: (one.resident_bytes, -one.accuracy, one.name))
        choices = tuple({one.build_id: one} for one in enough) or (self._in_use(key, members, zoo),)
        return _Need(key, min(order(live) for live in members), choices) if choices[0] else None

    def _in_use(self, key: PoolKey, members: Sequence[LiveSession], zoo: Zoo) -> Builds:
        """Return the variants of a pool's plan."""
        pool = self._pools.get(key)
        names = {live.variant for live in members}
        if pool is not None and pool.plan is not None:
            names |= set(networks_of(pool.plan).values())
        rungs = (*zoo.rungs, *zoo.refused)
        return {rung.servable.build_id: rung.servable for rung in rungs if rung.name in names}

    def _keeps_all(self, key: PoolKey, members: Sequence[LiveSession], rung: Rung, zoo: Zoo) -> bool:
        """Return whether one variant would keep all promises of a pool, with the processors' time that it may have."""
        overhead, workers = self._overhead(key), self._environment.workers
        load = 0.0
        for live in members:
            if isinstance(live.promise, LatencyPromise):
                if not adapting.keeps(live, rung, overhead):
                    return False
                load += adapting.least_load(live, [rung], workers, overhead)
            else:
                if not self._is_accurate(live, rung, zoo, overhead.decode_ms):
                    return False
                now = zoo.by_name.get(live.variant, rung)
                load += live.load * min(rung.usual_ms.values()) / min(now.usual_ms.values())
        return load <= self._shares.for_admission(key)

    @staticmethod
    def _is_accurate(live: LiveSession, rung: Rung, zoo: Zoo, decode_ms: float) -> bool:
        promise, fps = live.promise, live.session.fps
        assert isinstance(promise, AccuracyPromise)
        drop = live.drop_of(AGE_MARGIN * offloading.dedicated_stride(live, rung, fps, decode_ms), rung.name)
        if promise.reference is Reference.DEDICATED:
            drop -= live.drop_of(offloading.dedicated_stride(live, zoo.best, fps, decode_ms), zoo.best.name)
        return drop <= promise.drop_max


def _by_application(needs: Iterable[_Need]) -> dict[str, list[_Need]]:
    found: dict[str, list[_Need]] = {}
    for need in needs:
        found.setdefault(need.key.application_id, []).append(need)
    return found


def _together(needs: Iterable[_Need], given: Builds, given_of: str) -> Builds:
    """Return the builds that meet all needs, beside a build that an application has in any case."""
    found = dict(given)
    for application_id, own in _by_application(needs).items():
        found |= _cheapest(own, given if application_id == given_of else {})
    return found


def _cheapest(needs: Sequence[_Need], given: Builds) -> Builds:
    """Return the builds of one application that meet its pools' needs beside those that it has in any case: of the
    least that each takes by itself, and the same with one choice that several share, what takes least.
    """
    left = [need for need in needs if not need.is_met(given)]
    first: dict[str, Servable] = {}
    for need in left:
        first |= need.choices[0]
    found = [first]
    for shared in (choice for need in left for choice in need.choices) if len(left) > 1 else ():
        several = dict(shared)
        for need in left:
            if not need.is_met(several):
                several |= need.choices[0]
        found.append(several)
    return min(found, key=lambda builds: sum(one.resident_bytes for one in builds.values()))
