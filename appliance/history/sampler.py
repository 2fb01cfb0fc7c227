"""Reads the registries of the running box by difference: what was counted since the sample before.

Nothing is counted for it on the way of a request. What nobody has asked since the last sample costs one comparison.
"""

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from operator import add, sub
from typing import NamedTuple

from appliance.clock import NS_PER_MS, NS_PER_S
from appliance.domain.hardware import ProcessorStatus
from appliance.domain.sensors import Quantity, Reading
from appliance.history import tallies
from appliance.history.series import UP, series_name
from appliance.history.tallies import Counters, Differences, PromiseKind, Tally, Use, tally_name
from appliance.runtime.telemetry import BUCKETS_S, Statistics

SENSORS_MAX = 64
"""Sensors that are kept; servers have hundreds."""
_STEP = 50
"""Registries that are looked at in one step, where they have changed."""
_SENSED = {
    Quantity.CELSIUS: "celsius",
    Quantity.WATTS: "watts",
    Quantity.RPM: "rpm",
    Quantity.PERCENT: "percent",
}
_OUTCOMES = ("done", "expired", "rejected", "failed", "cancelled")
_BOUNDS_MS = (0.0, *(1000 * bound for bound in BUCKETS_S))


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """What is read of the box; each is asked once a sample, on the event loop."""

    statistics: Mapping[tuple[str, str, str], Statistics]
    """(application id, variant name, calling tenant) → figures since the start."""
    memory_bytes: Callable[[], tuple[int, int]]
    """Taken, and the budget."""
    held_bytes: Callable[[], Mapping[str, int]]
    """Tenant → what its models take."""
    processors: Callable[[], Sequence[ProcessorStatus]]
    sensors: Callable[[], Sequence[Reading]]
    available_bytes: Callable[[], int]
    """Of the machine's memory."""
    disk_free_bytes: Callable[[], int]
    """Where the state folder is."""


@dataclass(slots=True)
class _Seen:
    """What a registry had counted when it was last looked at."""

    of: Statistics
    last_ns: int = -1
    outcomes: dict[str, int] = field(default_factory=dict)
    warm: int = 0
    cold: int = 0
    promised: tuple[int, ...] = (0, 0, 0, 0)
    buckets: list[int] = field(default_factory=lambda: [0] * (len(BUCKETS_S) + 1))


@dataclass(slots=True)
class _Counts:
    """What was counted since the last sample."""

    outcomes: dict[str, int] = field(default_factory=dict)
    warm: int = 0
    cold: int = 0
    promised: tuple[int, ...] = (0, 0, 0, 0)
    """Differences of `PromiseCounts.totals`."""
    buckets: list[int] = field(default_factory=lambda: [0] * (len(BUCKETS_S) + 1))

    def add(self, other: "_Counts") -> None:
        for outcome, count in other.outcomes.items():
            self.outcomes[outcome] = self.outcomes.get(outcome, 0) + count
        self.warm += other.warm
        self.cold += other.cold
        self.promised = tuple(map(add, self.promised, other.promised))
        self.buckets = [a + b for a, b in zip(self.buckets, other.buckets, strict=True)]


class Sample(NamedTuple):
    """Figures of the time since the previous sample."""

    values: dict[str, float]
    """Series → its value."""
    tally: Tally
    """Counts that are added up."""


class Sampler:
    """Event-loop thread only. The first sample counts from when this was made."""

    def __init__(self, sources: Sources, now_ns: int) -> None:
        self._sources = sources
        self._last_ns = now_ns
        self._seen: dict[tuple[str, str, str], _Seen] = {}
        self._busy_ms: dict[str, float] = {}
        self._counted_by: list[tuple[Counters, Differences]] = []

    def count(self, counters: Counters) -> None:
        """Add these counters to the tallies from now on."""
        self._counted_by.append((counters, Differences()))

    def take(self, now_ns: int) -> Sample:
        """Take a sample."""
        steps = self.steps(now_ns)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                sample: Sample = end.value
                return sample

    def steps(self, now_ns: int) -> Generator[None, None, Sample]:
        """Take a sample in steps of a millisecond or two, between which the event loop may serve requests."""
        seconds = max(1e-3, (now_ns - self._last_ns) / NS_PER_S)
        self._last_ns = now_ns
        values = {UP: 1.0}
        tally: Tally = {tallies.UP: [1]}
        counted = yield from self._counted()
        for place, (subject, counts) in enumerate(counted.items(), 1):
            _put(values, subject, counts, seconds)
            _tally(tally, subject, counts)
            if not place % _STEP:
                yield
        for counters, differences in self._counted_by:
            tallies.add(tally, differences.look(counters()))
            yield
        values["memory"], values["budget"] = map(float, self._sources.memory_bytes())
        for tenant, held in self._sources.held_bytes().items():
            if held:
                values[series_name("memory", tenant)] = float(held)
                tallies.add(tally, {tally_name(Use.HELD, tenant): [held]})
        values["available"] = float(self._sources.available_bytes())
        values["disk"] = float(self._sources.disk_free_bytes())
        values |= self._loads(seconds)
        values |= _sensed(self._sources.sensors())
        return Sample(values, tally)

    def _counted(self) -> Generator[None, None, dict[str, _Counts]]:
        """Return the counts of the box (empty name), of tenants as callers, and of applications."""
        subjects: dict[str, _Counts] = {}
        statistics = self._sources.statistics
        changed = 0
        for key, figures in list(statistics.items()):
            seen = self._seen.get(key)
            if seen is not None and seen.of is figures and seen.last_ns == figures.last_ns:
                continue
            if seen is None or seen.of is not figures:
                seen = self._seen[key] = _Seen(figures)
            counts = _since(seen)
            application, _, caller = key
            for subject in ("", caller, application):
                subjects.setdefault(subject, _Counts()).add(counts)
            changed += 1
            if not changed % _STEP:
                yield
        if len(self._seen) > len(statistics):
            self._seen = {key: seen for key, seen in self._seen.items() if key in statistics}
        return subjects

    def _loads(self, seconds: float) -> dict[str, float]:
        loads: dict[str, float] = {}
        for status in self._sources.processors():
            name = status.description.name
            before, self._busy_ms[name] = self._busy_ms.get(name, 0.0), status.busy_ms
            busy_s = max(0.0, status.busy_ms - before) * NS_PER_MS / NS_PER_S
            loads[series_name("load", name)] = min(1.0, busy_s / (seconds * max(1, status.description.workers)))
        return loads


def _since(seen: _Seen) -> _Counts:
    """What came since; the registry is remembered as it is now."""
    now = seen.of
    counts = _Counts(
        {outcome: max(0, count - seen.outcomes.get(outcome, 0)) for outcome, count in now.outcomes.items()},
        now.warm - seen.warm,
        now.cold - seen.cold,
        tuple(map(sub, now.promised.totals, seen.promised)),
        [a - b for a, b in zip(now.histograms["total"].counts, seen.buckets, strict=True)],
    )
    seen.last_ns, seen.outcomes = now.last_ns, dict(now.outcomes)
    seen.warm, seen.cold = now.warm, now.cold
    seen.promised = now.promised.totals
    seen.buckets = list(now.histograms["total"].counts)
    return counts


def _put(values: dict[str, float], subject: str, counts: _Counts, seconds: float) -> None:
    requests = sum(counts.outcomes.values())
    if not requests:
        return
    rates = {"requests": requests, "cold": counts.cold}
    rates |= {outcome: counts.outcomes.get(outcome, 0) for outcome in _OUTCOMES}
    for measure, count in rates.items():
        if count:
            values[series_name(measure, subject)] = count / seconds
    if started := counts.warm + counts.cold:
        values[series_name("warm", subject)] = counts.warm / started
    if promised := sum(counts.promised):
        values[series_name("kept", subject)] = counts.promised[0] / promised
    if any(counts.buckets):
        values[series_name("p50", subject)] = quantile_ms(counts.buckets, 0.5)
        values[series_name("p99", subject)] = quantile_ms(counts.buckets, 0.99)


def _tally(into: Tally, subject: str, counts: _Counts) -> None:
    if "/" not in subject:
        if subject:
            tallies.add(into, {tally_name(Use.ASKED, subject): [sum(counts.outcomes.values())]})
    elif any(counts.promised):
        tallies.add(into, {tally_name(PromiseKind.REQUESTS, subject): counts.promised})


def quantile_ms(buckets: Sequence[int], share: float) -> float:
    """Linear within a bucket of BUCKETS_S; of the last one, which has no end, its beginning."""
    wanted = share * sum(buckets)
    below = 0
    for place, count in enumerate(buckets):
        if count and below + count >= wanted:
            low = _BOUNDS_MS[place]
            high = _BOUNDS_MS[place + 1] if place + 1 < len(_BOUNDS_MS) else low
            return low + (wanted - below) / count * (high - low)
        below += count
    return 0.0


def _sensed(readings: Iterable[Reading]) -> dict[str, float]:
    known = (one for one in readings if one.value is not None and one.quantity in _SENSED)
    values: dict[str, float] = {}
    for one in islice(known, SENSORS_MAX):
        assert one.value is not None
        subject = "/".join(filter(None, (one.source, one.device, one.name)))
        values[series_name(_SENSED[one.quantity], subject)] = one.value
        if one.quantity is Quantity.CELSIUS:
            values["celsius"] = max(values.get("celsius", -1000.0), one.value)
    return values
