"""What happened, as data: a ring of events for people and tests, counters and histograms for `/metrics` and the
statistics extension.

Recording is list arithmetic (about a microsecond); the Prometheus text is made when it is asked for.
"""

import asyncio
from bisect import bisect_left
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import add
from typing import Any

from appliance.clock import Clock
from appliance.domain.promised import PromiseCounts, PromiseEnd
from appliance.domain.request import RanPart
from appliance.runtime.notable import NotableRequests

BUCKETS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_BUCKETS_NS = tuple(int(b * 1e9) for b in BUCKETS_S)
PARTS = ("queue", "load", "compute", "total")
SAMPLE_EVERY = 256
"""Of the requests of one application × variant × tenant, one in so many is a sample."""
RECENT_RUNS = 256
"""Run times that are kept of one application × variant × tenant, for scenarios of the lab."""


@dataclass(frozen=True, slots=True)
class Event:
    """Something that changed. `tenant` None = of interest to the operator only."""

    id: int
    at: str
    event: str
    tenant: str | None
    facts: Mapping[str, Any]


@dataclass(slots=True)
class Histogram:
    """Counts by bucket of BUCKETS_S (the last is +Inf), and the sum."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(_BUCKETS_NS) + 1))
    sum_ns: int = 0

    @property
    def count(self) -> int:
        return sum(self.counts)


@dataclass(slots=True)
class Statistics:
    """One application × variant × calling tenant."""

    outcomes: dict[str, int] = field(default_factory=dict)
    histograms: dict[str, Histogram] = field(default_factory=lambda: {part: Histogram() for part in PARTS})
    warm: int = 0
    cold: int = 0
    inferences: int = 0
    runs: dict[int, list[int]] = field(default_factory=dict)
    """Items of a run → how many runs had so many, and the nanoseconds of all of them. A run that requests shared is
    with the first of them that was answered.
    """
    late: int = 0
    """Answered after their deadline, as their application wants it."""
    failed_ns: int = 0
    """Time that requests took until they got an error."""
    promised: PromiseCounts = field(default_factory=PromiseCounts)
    """Requests of the application while it had an SLO, but for those that the caller got wrong or had no quota for."""
    promised_before: tuple[int, ...] = (0, 0, 0, 0)
    """Totals of `promised` when the application got its present SLO."""
    unanswered: int = 0
    """Requests that got an error because of the box."""
    last_ns: int = 0
    parts: dict[tuple[int, str, str], list[int]] = field(default_factory=dict)
    """Part of a network, group of processors and kind → its runs there, and the nanoseconds of all of them."""
    runs_ns: deque[int] = field(default_factory=lambda: deque(maxlen=RECENT_RUNS))
    """Compute times of the latest warm requests of one item, oldest first."""

    @property
    def slo_requests(self) -> int:
        """Return the number of requests that count for the present SLO."""
        return self.promised.counted - sum(self.promised_before)

    @property
    def slo_kept(self) -> int:
        """Return how many of `slo_requests` were answered within the SLO."""
        return self.promised.kept - self.promised_before[0]


@dataclass(slots=True)
class WindowCounts:
    """Windows of one application around predicted requests. Missed ones closed without a request."""

    opened: int = 0
    closed: int = 0
    missed: int = 0


class Telemetry:
    """Implements `EventSink` and `WindowSink`; bounded everywhere."""

    def __init__(
        self, clock: Clock, ring_len: int = 2000, subscriber_len: int = 500, notable: NotableRequests | None = None
    ) -> None:
        """`notable` keeps requests worth a look; None: nobody wants to know."""
        self._clock = clock
        self.notable = notable
        self._ring_len = ring_len
        self._rings: dict[str | None, deque[Event]] = {}
        """Tenant, None: nobody's → its latest events; `ring_len` in all."""
        self._kept = 0
        self._subscriber_len = subscriber_len
        self._subscribers: set[asyncio.Queue[Event | None]] = set()
        self._closed = False
        self._next_id = 1
        self._logger: Any = None
        self.on_event: Callable[[str, Mapping[str, Any]], None] = _nothing
        """Told of every event, at once."""
        self.on_window: Callable[[str, bool], None] = _nothing
        """Told of every window: of which application, and whether it opens."""
        self.statistics: dict[tuple[str, str, str], Statistics] = {}
        """(application id, variant name, calling tenant) → figures."""
        self._keys: dict[str, list[tuple[str, str, str]]] = {}
        """Application id → its keys of `statistics`."""
        self.windows: dict[str, WindowCounts] = {}
        """Application id → its windows; of applications that share their variants, the first."""

    def log_to(self, logger: Any) -> None:
        """Also write every event to a structlog logger."""
        self._logger = logger

    # -- events --------------------------------------------------------------------------------------------------------

    def emit(self, event: str, **facts: object) -> None:
        """Record an event. A fact named `tenant` decides which tenant may see it."""
        tenant = facts.get("tenant")
        record = Event(
            self._next_id, self._clock.wall_now().isoformat(), event, tenant if isinstance(tenant, str) else None, facts
        )
        self._next_id += 1
        self._remember(record)
        for subscriber in self._subscribers:
            if subscriber.full():  # a slow reader loses the oldest; ids show the gap
                subscriber.get_nowait()
            subscriber.put_nowait(record)
        self.on_event(event, facts)
        if self._logger is not None:
            self._logger.info(event, **facts)

    def _remember(self, event: Event) -> None:
        """In the place of the oldest of a tenant that has more than its part: none pushes those of others out."""
        own = self._rings.setdefault(event.tenant, deque())
        own.append(event)
        self._kept += 1
        if self._kept > self._ring_len:
            is_beyond = len(own) > 1 and len(own) * len(self._rings) > self._ring_len
            gone = (own if is_beyond else max(self._rings.values(), key=len)).popleft()
            self._kept -= 1
            if not self._rings[gone.tenant]:
                del self._rings[gone.tenant]

    def close(self) -> None:
        """End every subscription, present or future: the box stops."""
        self._closed = True
        for subscriber in self._subscribers:
            if subscriber.full():
                subscriber.get_nowait()
            subscriber.put_nowait(None)

    def recent(self, after_id: int = 0) -> list[Event]:
        """Events that are remembered, with an id above `after_id`."""
        found = (event for ring in self._rings.values() for event in ring if event.id > after_id)
        return sorted(found, key=lambda event: event.id)

    async def subscribe(self, after_id: int | None = None) -> AsyncGenerator[Event, None]:
        """Recent events after `after_id` (None: only new ones), then new ones as they come."""
        queue: asyncio.Queue[Event | None] = asyncio.Queue(self._subscriber_len)
        self._subscribers.add(queue)
        try:
            for event in [] if after_id is None else self.recent(after_id):
                yield event
            while not (self._closed and queue.empty()) and (next_event := await queue.get()) is not None:
                yield next_event
        finally:
            self._subscribers.discard(queue)

    # -- windows -------------------------------------------------------------------------------------------------------

    def window_opened(self, application: str) -> None:
        self.windows.setdefault(application, WindowCounts()).opened += 1
        self.on_window(application, True)

    def window_closed(self, application: str, *, answered: bool) -> None:
        counts = self.windows.setdefault(application, WindowCounts())
        counts.closed += 1
        counts.missed += not answered
        self.on_window(application, False)

    # -- requests ------------------------------------------------------------------------------------------------------

    def done(
        self,
        key: tuple[str, str, str],
        *,
        warm: bool,
        parts_ns: tuple[int, int, int],
        items: int,
        run_items: int,
        at_ns: int,
        slo_kept: bool | None = None,
        run_ns: int | None = None,
    ) -> bool:
        """Count a request of (application, variant, tenant) that was answered at `at_ns`; `parts_ns` are queue, load
        and compute of all its runs; `items`, `run_items` and `run_ns` (None: as in `parts_ns`) are of the last run.

        `slo_kept`: whether that was within the application's SLO; None where it has none, or `promise_ended` tells it.
        Returns whether it is a sample of the requests like it.
        """
        statistics = self._statistics(key)
        statistics.outcomes["done"] = done = statistics.outcomes.get("done", 0) + 1
        for histogram, took_ns in zip(statistics.histograms.values(), (*parts_ns, sum(parts_ns)), strict=True):
            histogram.counts[bisect_left(_BUCKETS_NS, took_ns)] += 1
            histogram.sum_ns += took_ns
        if warm:
            statistics.warm += 1
        else:
            statistics.cold += 1
        compute_ns = parts_ns[-1] if run_ns is None else run_ns
        self.ran(key, warm=warm, compute_ns=compute_ns, items=items, run_items=run_items)
        statistics.last_ns = at_ns
        if slo_kept is not None:
            statistics.promised.count(PromiseEnd.KEPT if slo_kept else PromiseEnd.LATE)
        return done % SAMPLE_EVERY == 0

    def ran(self, key: tuple[str, str, str], *, warm: bool, compute_ns: int, items: int, run_items: int) -> None:
        """Count a run of a request, which may have more runs. `run_items`: of the run, in which other requests may
        have had items, too; 0: that is counted with them.
        """
        statistics = self._statistics(key)
        if warm and run_items == 1:
            statistics.runs_ns.append(compute_ns)
        statistics.inferences += items
        if run_items:
            count = statistics.runs.get(run_items)
            if count is None:
                statistics.runs[run_items] = [1, compute_ns]
            else:
                count[0] += 1
                count[1] += compute_ns

    def ran_parts(self, key: tuple[str, str, str], parts: Iterable[RanPart]) -> None:
        """Count what ran where of one that is `done`."""
        known = self._statistics(key).parts
        for one in parts:
            count = known.setdefault((one.number, one.group, one.kind), [0, 0])
            count[0] += 1
            count[1] += one.took_ns

    def promise_ended(self, key: tuple[str, str, str], end: PromiseEnd) -> None:
        """Count what became of an SLO for one that is `done`, once its answer is written."""
        self._statistics(key).promised.count(end)

    def late(self, key: tuple[str, str, str]) -> None:
        """One that is `done` was so after its deadline."""
        self._statistics(key).late += 1

    def failed(
        self,
        key: tuple[str, str, str],
        outcome: str,
        took_ns: int,
        broken: PromiseEnd | None = None,
        *,
        is_boxes_fault: bool = False,
    ) -> None:
        """Count a request that got an error: expired, rejected or failed; the variant may be unknown ("").

        `broken`: how that broke an SLO; None: it did not. `is_boxes_fault`: the caller could not have asked better.
        """
        statistics = self._statistics(key)
        statistics.outcomes[outcome] = statistics.outcomes.get(outcome, 0) + 1
        statistics.failed_ns += took_ns
        statistics.unanswered += is_boxes_fault
        statistics.last_ns = self._clock.now_ns()
        if broken is not None:
            statistics.promised.count(broken)

    def forget_slo(self, application_id: str) -> None:
        """Count anew: the application's SLO is another one."""
        for _, _, statistics in self.of_callers(application_id):
            statistics.promised_before = statistics.promised.totals

    def applications(self) -> list[str]:
        """Return the ids of applications that there are figures of."""
        return list(self._keys)

    def of_callers(self, application_id: str) -> list[tuple[str, str, Statistics]]:
        """Return variant, calling tenant and figures of all that there are of an application."""
        return [(*key[1:], self.statistics[key]) for key in self._keys.get(application_id, ())]

    def of_application(self, application_id: str) -> dict[str, Statistics]:
        """Return figures of an application by variant, summed over tenants; to be read only."""
        by_variant: dict[str, list[Statistics]] = {}
        for variant, _, statistics in self.of_callers(application_id):
            by_variant.setdefault(variant, []).append(statistics)
        return {variant: each[0] if len(each) == 1 else _sum(each) for variant, each in by_variant.items()}

    def forget_application(self, application_id: str) -> None:
        """Drop the figures of a deleted application, so that names coming and going do not grow the process."""
        for key in self._keys.pop(application_id, ()):
            del self.statistics[key]
        self.windows.pop(application_id, None)
        if self.notable is not None:
            self.notable.forget(application_id)

    def forget_tenant(self, tenant: str) -> None:
        """Drop what is kept of requests of a tenant that is gone: another one may have its name one day."""
        for key in [k for k in self.statistics if k[2] == tenant]:
            del self.statistics[key]
            self._keys[key[0]].remove(key)
            if not self._keys[key[0]]:
                del self._keys[key[0]]
        if self.notable is not None:
            self.notable.forget_tenant(tenant)

    def _statistics(self, key: tuple[str, str, str]) -> Statistics:
        found = self.statistics.get(key)
        if found is None:
            found = self.statistics[key] = Statistics()
            self._keys.setdefault(key[0], []).append(key)
        return found


def _nothing(_: object, __: object) -> None:
    """Nobody listens."""


def _sum(each: Sequence[Statistics]) -> Statistics:
    total = Statistics()
    for one in each:
        merge(total, one)
    return total


def merge(into: Statistics, other: Statistics) -> None:
    """Add `other` to `into`."""
    for outcome, count in other.outcomes.items():
        into.outcomes[outcome] = into.outcomes.get(outcome, 0) + count
    for part in PARTS:
        a, b = into.histograms[part], other.histograms[part]
        a.counts = [x + y for x, y in zip(a.counts, b.counts, strict=True)]
        a.sum_ns += b.sum_ns
    into.warm += other.warm
    into.cold += other.cold
    into.inferences += other.inferences
    for items, (count, took_ns) in other.runs.items():
        before = into.runs.setdefault(items, [0, 0])
        before[0] += count
        before[1] += took_ns
    for ran, (count, took_ns) in other.parts.items():
        known = into.parts.setdefault(ran, [0, 0])
        known[0] += count
        known[1] += took_ns
    into.late += other.late
    into.failed_ns += other.failed_ns
    into.unanswered += other.unanswered
    into.promised = PromiseCounts(*map(add, into.promised.totals, other.promised.totals))
    into.promised_before = tuple(map(add, into.promised_before, other.promised_before))
    into.last_ns = max(into.last_ns, other.last_ns)
    into.runs_ns.extend(other.runs_ns)
