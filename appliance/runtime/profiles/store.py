"""The profile store: it alone knows what a run takes, by build × processor × class of shapes × batch × concurrency.

Filled with what imports measure, corrected by every run that ends well, kept over restarts (`changed`, `restore`). A
build is one content on one kind of processor, or that in the guard of one tenant; so what runs take in a guard is that
tenant's own, and others do not go by it. Event-loop thread only.
"""

import datetime
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from appliance.clock import Clock
from appliance.domain.catalogue import Latency, Profile, Shapes
from appliance.domain.events import EventSink
from appliance.domain.names import JOINED, content_of, kind_of, owner_of
from appliance.domain.profiles import SeenLatency, SeenRuns, rung_in, shape_of, size_class
from appliance.domain.runs_at_once import RunsAtOnce
from appliance.runtime.profiles.times import Pace, RunTimes

NOTICEABLE = 0.1
"""A median that has moved less since it was saved is not saved again."""


@dataclass(frozen=True, slots=True)
class Where:
    """A processor that runs are learnt of. `name`: empty where the import measured on it; `speed`: relative to that."""

    name: str = ""
    speed: float = 1.0


MEASURED = Where()


class BuildTimes:
    """A build at one rung of its ladder on a processor: a table for each class of sizes that its inputs may have."""

    def __init__(
        self,
        store: "ProfileStore",
        build_id: str,
        rung: str,
        profile: Profile,
        usual: int | None,
        where: Where = MEASURED,
        *,
        is_measured: bool = True,
    ) -> None:
        """`usual`: the class of the inputs that the import measured; None where inputs differ in number only.
        Not `is_measured`: the profile is an estimate, which only stands in until runs are seen.
        """
        self._store = store
        self._build_id = build_id
        self._rung = rung
        self._usual = usual
        self._where = where
        self._profile = profile
        self.usual = store.table(build_id, rung, profile, is_measured=is_measured, where=where)
        self._others: dict[int, RunTimes] = {}

    def refer(self, profile: Profile, usual: int | None, *, is_measured: bool) -> None:
        """Go by another profile, that of a new measurement or the first that is measured; the rest is as of a new
        build.
        """
        if profile != self._profile:
            self._profile, self._usual = profile, usual
            rows = self._store.rows_of(profile, self._where)
            self.usual.refer(rows, is_measured=is_measured)
            for table in self._others.values():
                table.refer(rows, is_measured=False)

    def of(self, inputs: Mapping[str, Any], items: int) -> RunTimes:
        """The table for these inputs, which hold so many items."""
        size = size_class(sum(tensor.size for tensor in inputs.values()) // (items or 1))
        if size == self._usual:
            return self.usual
        found = self._others.get(size)
        if found is None:
            found = self._store.table(
                self._build_id, self._rung, self._profile, size, is_measured=False, where=self._where
            )
            self._others[size] = found
        return found


class ProfileStore:
    """All builds' tables; what forgets them is `forget`."""

    def __init__(
        self,
        clock: Clock,
        events: EventSink,
        fingerprints: Mapping[str, str],
        alpha: float,
        *,
        is_plain: bool = False,
        at_once: Mapping[str, RunsAtOnce | None] = MappingProxyType({}),
    ) -> None:
        """`fingerprints` of the box's processors, by kind; `at_once`: the runs at once that imports time on these.
        `alpha`: the weight of a run in what is expected of the next (0 = what the import measured stands). `is_plain`
        as of `RunTimes`.
        """
        self._clock = clock
        self._events = events
        self._fingerprints = fingerprints
        self._alpha = alpha
        self._is_plain = is_plain
        self._at_once = at_once
        self._builds: dict[tuple[str, str], BuildTimes] = {}
        """(build, rung and processor)."""
        self._paces: dict[str, Pace] = {}
        """By the name of a processor that no import measured on."""
        self._tables: dict[tuple[str, str], RunTimes] = {}
        """(build, shape) → its runs."""
        self._restored: dict[tuple[str, str], SeenRuns] = {}
        """What was seen before the restart of builds that nobody has asked for yet."""
        self.drifts = 0

    def of(
        self,
        build_id: str,
        rung: str,
        profile: Profile,
        base: Shapes | None,
        batched: str | None,
        where: Where = MEASURED,
        *,
        is_measured: bool = True,
    ) -> BuildTimes:
        """The tables of a build at a rung, on a processor. Not `is_measured`: as of `BuildTimes`.

        `base`: shapes of the inputs that the import measured, where requests may have others; `batched`: that of them
        whose first axis counts the items.
        """
        key = build_id, shape_of(rung, None, where.name)
        found = self._builds.get(key)
        usual = None if base is None else _size_of(base, batched)
        if found is None:
            found = self._builds[key] = BuildTimes(self, build_id, rung, profile, usual, where, is_measured=is_measured)
        found.refer(profile, usual, is_measured=is_measured)
        return found

    def table(
        self,
        build_id: str,
        rung: str,
        profile: Profile,
        size: int | None = None,
        *,
        is_measured: bool,
        where: Where = MEASURED,
    ) -> RunTimes:
        """A new table, with what was seen before the restart."""
        shape = shape_of(rung, size, where.name)
        pace = self._paces.setdefault(where.name, Pace(self._alpha)) if where.name else None

        def on_drift(table: RunTimes) -> None:
            self._drifted(build_id, shape, table)

        rows = self.rows_of(profile, where)
        table = RunTimes(rows, self._alpha, on_drift, is_measured=is_measured, is_plain=self._is_plain, pace=pace)
        seen = self._restored.pop((build_id, shape), None)
        if seen is not None:
            now_ns, wall_now = self._clock.now_ns(), self._clock.wall_now()
            for row in seen.latencies:
                age_ns = max(0, int((wall_now - row.at).total_seconds() * 1e9))
                table.restore(row.batch, row.concurrency, row.p50_ns, row.p99_ns, row.count, now_ns - age_ns)
        self._tables[build_id, shape] = table
        return table

    def rows_of(self, profile: Profile, where: Where) -> Sequence[Latency]:
        """Return what runs are expected to take on a processor before any was seen there."""
        at_once = self._at_once.get(profile.kind)
        if at_once is not None and not where.name:
            return at_once.filled(profile.latencies)
        return _at_speed(profile.latencies, where.speed)

    # -- for others ----------------------------------------------------------------------------------------------------

    def seen(self, build_id: str, rung: str) -> list[SeenRuns]:
        """What runs of a build at a rung were seen to take, by class of sizes."""
        return [
            self._seen(key, table)
            for key, table in self._tables.items()
            if key[0] == build_id and rung_in(key[1]) == rung and any(table.estimates())
        ]

    def ballooned(self) -> Iterator[tuple[str, str, float]]:
        """(build, shape, observed / profiled run time) of what has run."""
        for (build_id, shape), table in sorted(self._tables.items()):
            if any(table.estimates()):
                yield build_id, shape, table.ballooning

    def forget(self, contents: Collection[str]) -> None:
        """These contents (digests) have gone."""
        gone = {content_of(one) for one in contents}
        for known in (self._builds, self._tables, self._restored):
            for key in [key for key in known if content_of(key[0]) in gone]:
                del known[key]

    # -- over restarts -------------------------------------------------------------------------------------------------

    def restore(self, runs: Iterable[SeenRuns]) -> None:
        """Take over what was seen before a restart, on processors that are the same now. Before anything is asked."""
        for one in runs:
            if one.fingerprint == self._fingerprint_of(one.build_id):
                self._restored[one.build_id, one.shape] = one

    def changed(self, *, at_all: bool = False) -> list[SeenRuns]:
        """Tables that have changed noticeably, or at all, since they were `saved`."""
        least = 0.0 if at_all else NOTICEABLE
        return [
            self._seen(key, table)
            for key, table in self._tables.items()
            if any(abs(one.p50_ns - one.saved_ns) > least * one.saved_ns for _, _, one in table.estimates())
        ]

    def saved(self, runs: Iterable[SeenRuns]) -> None:
        """These are on disk."""
        for one in runs:
            table = self._tables.get((one.build_id, one.shape))
            if table is not None:
                table.saved({(row.batch, row.concurrency): row.p50_ns for row in one.latencies})

    # -- inside --------------------------------------------------------------------------------------------------------

    def _seen(self, key: tuple[str, str], table: RunTimes) -> SeenRuns:
        now_ns, wall_now = self._clock.now_ns(), self._clock.wall_now()
        rows = tuple(
            SeenLatency(
                items,
                concurrency,
                round(one.p50_ns),
                round(one.p99_ns),
                one.count,
                wall_now - datetime.timedelta(microseconds=(now_ns - one.last_ns) // 1000),
            )
            for items, concurrency, one in table.estimates()
        )
        return SeenRuns(*key, self._fingerprint_of(key[0]) or "", rows)

    def _fingerprint_of(self, build_id: str) -> str | None:
        """Of the processors that a build runs on; None where the box has not all of them."""
        found = [self._fingerprints.get(kind) for kind in kind_of(build_id).split(JOINED)]
        return None if None in found else JOINED.join(one or "" for one in found)

    def _drifted(self, build_id: str, shape: str, table: RunTimes) -> None:
        self.drifts += table.is_drifted
        event = "run times drifted" if table.is_drifted else "run times as profiled"
        _, tenant = owner_of(build_id)
        facts = {} if tenant is None else {"tenant": tenant}
        self._events.emit(event, build=build_id, shape=shape, factor=round(table.ballooning, 3), **facts)


def _at_speed(rows: Sequence[Latency], speed: float) -> Sequence[Latency]:
    """What the import measured, as if on another processor."""
    if speed == 1.0:
        return rows
    return tuple(replace(row, p50_ms=row.p50_ms / speed, p99_ms=row.p99_ms / speed) for row in rows)


def _size_of(shapes: Shapes, batched: str | None) -> int:
    items = shapes.get(batched or "", (1,))[0]
    return size_class(sum(math.prod(shape) for shape in shapes.values()) // (items or 1))
