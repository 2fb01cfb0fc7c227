"""What runs of one build take, by batch and by how many are under way: as measured at import, corrected by every run.

Event-loop thread only; what a request pays is a look-up before its run and an `Estimate.ran` after it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

from appliance.clock import NS_PER_MS
from appliance.domain.catalogue import Latency
from appliance.domain.profiles import INLINE
from appliance.runtime.profiles.estimate import JUMP_MAX, SETTLING, TRUSTED_NS, Estimate

CELLS_MAX = 64
"""Batch sizes × concurrencies that are told apart, those that ran last; runs of others are expected to take what the
import says of them, times `ballooning`."""
BALLOONING_MIN_NS = NS_PER_MS
"""Shorter runs do not say how much slower the processor has become: what else a request takes is as long."""
DRIFT = 1.5
"""More than so many times slower or quicker than at import is a drift ..."""
BACK = 1.25
"""... which is over when it is less than so many times."""
SAMPLED_NS, STEADY, SKIPS = NS_PER_MS // 4, 0.25, 3
"""Of runs on the event loop shorter than this, that are within so much of what was expected, so many after each are not
looked at: what learning costs is felt there."""
HOPED = 1.2
"""Batches that gain at all on a CPU take a third less an item than one; what is hoped for must be enough to be tried.
"""
_TRIED_APART = 5
"""Times what is expected of a run lie before and between those that are tried although they are expected to be late."""
_LEVELS = 1 << 16
"""More than there are runs at once."""


class Pace:
    """How much slower than its speed says a processor was of late, over all that it ran: what is expected there of what
    has not run there yet.
    """

    __slots__ = ("_alpha", "factor")

    def __init__(self, alpha: float) -> None:
        self._alpha = alpha
        self.factor = 1.0

    def ran(self, factor: float) -> None:
        """A run took so many times what was measured."""
        self.factor += self._alpha * (min(factor, JUMP_MAX * self.factor) - self.factor)


class RunTimes:
    """Runs with inputs of one class of shapes."""

    def __init__(
        self,
        rows: Sequence[Latency],
        alpha: float,
        on_drift: "Callable[[RunTimes], None]",
        *,
        is_measured: bool = True,
        is_plain: bool = False,
        pace: Pace | None = None,
    ) -> None:
        """`rows` as in `Profile.latencies`; not `is_measured`: they are of inputs of another size, and only stand in
        until runs are seen. `alpha`: weight of a run. `on_drift` is told once when runs have become much slower or
        quicker, and once when that is over. `is_plain`: estimates follow Band's formula alone, each by its own runs.
        `pace`: of a processor that the import did not measure on.
        """
        self._alpha = alpha
        self._pace = pace
        self._on_drift = on_drift
        self._is_plain = is_plain
        self._estimates: dict[int, Estimate] = {}
        self._references: dict[int, float] = {}
        """What the import measured, of cases that were asked for."""
        self._least, self._most = 1 / DRIFT, DRIFT
        """Between which `ballooning` is no news."""
        self._latest: Estimate | None = None
        """Of the last run ..."""
        self._one: Estimate | None = None
        """... and of the last one of a single item."""
        self._tried: int | None = None
        """The case of a run that is tried, until one shows that it takes less ..."""
        self._try_at_ns: int | None = None
        """... and when the next one may be; None: none was refused yet."""
        self.skips = 0
        """So many runs on the event loop need not be told."""
        self.ballooning = 1.0
        """Observed / profiled run time, over all batch sizes (Scrooge, footnote 7)."""
        self.is_drifted = False
        self.refer(rows, is_measured=is_measured)

    def refer(self, rows: Sequence[Latency], *, is_measured: bool = True) -> None:
        """Go by other rows from now on."""
        self._is_measured = is_measured
        self._rows = {
            level: [row for row in rows if row.concurrency == level] for level in sorted({r.concurrency for r in rows})
        }
        self._references.clear()
        for key, estimate in self._estimates.items():
            if is_measured:
                estimate.reference_ns = self._reference_ns(*divmod(key, _LEVELS))

    # -- before a run --------------------------------------------------------------------------------------------------

    def expected_ns(self, items: int, running: int, now_ns: int) -> int:
        """Median of a run of so many items, `running` under way with it (or `INLINE`)."""
        key = items * _LEVELS + running
        estimate = self._estimates.get(key)
        if estimate is not None and (self._is_plain or now_ns - estimate.last_ns <= TRUSTED_NS):
            return int(estimate.p50_ns)
        reference_ns = self._references.get(key)
        if reference_ns is None:
            reference_ns = self._reference_ns(items, running)
            if len(self._references) < CELLS_MAX:
                self._references[key] = reference_ns
        if self._is_plain:
            return int(reference_ns)
        if estimate is not None:
            expected_ns, last_ns = estimate.p50_ns, estimate.last_ns
        elif self._pace is not None and self._latest is None:
            return int(reference_ns * self._pace.factor)
        else:
            expected_ns = reference_ns * self.ballooning
            last_ns = 0 if self._latest is None else self._latest.last_ns
        if expected_ns > reference_ns and now_ns - last_ns > TRUSTED_NS:
            return int(reference_ns)
        return int(expected_ns)

    def in_time_ns(self, items: int, running: int, now_ns: int, left_ns: int) -> int:
        """As `expected_ns`, to decide whether a run can end within `left_ns`.

        What a run takes may differ by caller, and runs that are refused would never show that theirs take less. So
        where only what was learnt says that it would be late, it is now and then expected to take what the import says.
        """
        expected_ns = self.expected_ns(items, running, now_ns)
        if expected_ns <= left_ns:
            return expected_ns
        if self._try_at_ns is None:
            self._try_at_ns = now_ns + _TRIED_APART * expected_ns
        if now_ns < self._try_at_ns:
            return expected_ns
        reference_ns = int(self._reference_ns(items, running)) if self._is_measured else 0
        if reference_ns > left_ns:
            return expected_ns
        self._tried = items * _LEVELS + running
        self._try_at_ns = now_ns + _TRIED_APART * expected_ns
        return reference_ns

    def hoped_ns(self, items: int, running: int, now_ns: int) -> int:
        """As `expected_ns`, to decide whether to put so many items together. Of inputs of another size than the import
        measured, what batches gain is not known: each batch size is tried a few times, as if it took `HOPED` times
        what half of it takes, where that has turned out to gain.
        """
        if self._is_measured or items < 2:
            return self.expected_ns(items, running, now_ns)
        estimate = self._estimates.get(items * _LEVELS + running)
        if estimate is not None and estimate.count >= SETTLING:
            return int(estimate.p50_ns)
        if items.bit_count() > 1:  # only doublings are tried
            return self.hoped_ns(1 << items.bit_length(), running, now_ns)
        return int(HOPED * self.hoped_ns(items // 2, running, now_ns))

    def spread(self, items: int, running: int) -> float:
        """P99 over median of such runs, at least 1: as measured of as many at once; where nobody has timed those, of
        the most that were measured below, and so of one alone.
        """
        row = self._row(items, running)
        return max(1.0, row.p99_ms / row.p50_ms) if row.p50_ms > 0 else 1.0

    def likely_ns(self, now_ns: int) -> int:
        """Median of a run of one item, of which nothing else is known: as it was of late."""
        one = self._one
        if one is not None and now_ns - one.last_ns <= TRUSTED_NS:
            return int(one.p50_ns)
        return self.expected_ns(1, 1, now_ns)

    def inline_ns(self, items: int, now_ns: int) -> int:
        """Median of a run on the event loop. What it takes a worker that is alone includes the way there and back; so
        where that has been less of late, runs on the loop have become quicker since there was one.
        """
        inline = self._estimates.get(items * _LEVELS + INLINE)
        if inline is not None and inline is self._latest and now_ns - inline.last_ns <= TRUSTED_NS:
            return int(inline.p50_ns)
        expected_ns = self.expected_ns(items, INLINE, now_ns)
        alone = self._estimates.get(items * _LEVELS + 1)
        if alone is None or (inline is not None and inline.last_ns >= alone.last_ns):
            return expected_ns
        return min(expected_ns, int(alone.p50_ns))

    def ballooning_at(self, now_ns: int) -> float:
        """`ballooning`, as long as there are runs that show that it is more than 1: as with `expected_ns`, else who is
        not asked because of it would never show that it is over.
        """
        latest = self._latest
        if latest is None or now_ns - latest.last_ns <= TRUSTED_NS:
            return self.ballooning
        return min(1.0, self.ballooning)

    # -- after a run ---------------------------------------------------------------------------------------------------

    def ran(self, items: int, running: int, took_ns: int, now_ns: int) -> None:
        """A run of so many items has ended well, `running` under way with it (or `INLINE`)."""
        key = items * _LEVELS + running
        estimate = self._estimates.get(key)
        if estimate is None:
            if len(self._estimates) >= CELLS_MAX:  # else who asks for many sizes once would end the learning of all
                del self._estimates[min(self._estimates, key=lambda known: self._estimates[known].last_ns)]
            if self._pace is not None and self._latest is None:
                self.ballooning = self._pace.factor
            estimate = self._estimates[key] = self._estimate(items, running, took_ns)
        if key == self._tried and took_ns < estimate.p50_ns:
            self._tried = self._try_at_ns = None
            if not self._is_plain:
                estimate.p50_ns = max(float(took_ns), min(estimate.p50_ns, estimate.reference_ns))
        has_changed = estimate.ran(took_ns, now_ns, self._alpha)
        if has_changed and running != INLINE and estimate.reference_ns >= BALLOONING_MIN_NS:
            self._changed(estimate)
        self._latest = estimate
        if items == 1:
            self._one = estimate
        is_sampled = running == INLINE and took_ns < SAMPLED_NS and not self._is_plain
        if is_sampled and abs(took_ns - estimate.p50_ns) < STEADY * estimate.p50_ns:
            self.skips = SKIPS
        reference_ns = estimate.reference_ns
        if reference_ns >= BALLOONING_MIN_NS:
            ballooning = self.ballooning
            factor = took_ns / reference_ns
            if self._pace is not None:
                self._pace.ran(factor)
            most = JUMP_MAX * ballooning
            self.ballooning = ballooning = ballooning + self._alpha * ((factor if factor < most else most) - ballooning)
            if not self._least <= ballooning <= self._most:
                self._drift()

    def _estimate(self, items: int, running: int, took_ns: int) -> Estimate:
        """To begin with."""
        row = self._row(items, running)
        reference_ns = self._reference_ns(items, running)
        if not self._is_measured or not reference_ns:
            return Estimate(took_ns, 1.0, is_plain=self._is_plain)
        tail = max(1.0, row.p99_ms / row.p50_ms)
        if self._is_plain:
            return Estimate(reference_ns, tail, reference_ns, is_plain=True)
        expected_ns = reference_ns * self.ballooning
        inline = self._estimates.get(items * _LEVELS + INLINE)
        if inline is not None:  # a worker is no quicker than the loop
            expected_ns = max(expected_ns, inline.p50_ns)
        return Estimate(expected_ns, tail, reference_ns)

    def _changed(self, changed: Estimate) -> None:
        """The processor has become another one: so it has for batches and company that have not run since. Not for runs
        on the event loop, which is none of its cores.
        """
        for key, estimate in self._estimates.items():
            if estimate is not changed and key % _LEVELS != INLINE:
                estimate.follow(changed)

    def _drift(self) -> None:
        self.is_drifted = not self.is_drifted
        if not self.is_drifted:
            self._least, self._most = 1 / DRIFT, DRIFT
        elif self.ballooning > 1:
            self._least, self._most = BACK, float("inf")
        else:
            self._least, self._most = 0.0, 1 / BACK
        self._on_drift(self)

    # -- what is known -------------------------------------------------------------------------------------------------

    def estimates(self) -> Iterator[tuple[int, int, Estimate]]:
        """(items, concurrency, estimate), in their order."""
        for key in sorted(self._estimates):
            yield *divmod(key, _LEVELS), self._estimates[key]

    def restore(self, items: int, running: int, p50_ns: float, p99_ns: float, count: int, last_ns: int) -> None:
        """What was learnt before a restart."""
        reference_ns = self._reference_ns(items, running) if self._is_measured else 0.0
        tail = max(1.0, p99_ns / p50_ns) if p50_ns else 1.0
        estimate = Estimate(p50_ns, tail, reference_ns, is_plain=self._is_plain)
        estimate.count, estimate.last_ns, estimate.saved_ns = count, last_ns, p50_ns
        self._estimates[items * _LEVELS + running] = estimate
        if self._latest is None or self._latest.last_ns < last_ns:
            self._latest = estimate
        known = [one for one in self._estimates.values() if one.reference_ns >= BALLOONING_MIN_NS]
        runs = sum(one.count for one in known)
        if runs:
            self.ballooning = sum(one.count * one.p50_ns / one.reference_ns for one in known) / runs

    def saved(self, p50_ns: Mapping[tuple[int, int], int]) -> None:
        """These medians, by items and concurrency, are on disk."""
        for (items, running), saved_ns in p50_ns.items():
            estimate = self._estimates.get(items * _LEVELS + running)
            if estimate is not None:  # another one may have taken its place meanwhile
                estimate.saved_ns = saved_ns

    def _row(self, items: int, running: int) -> Latency:
        """Of the nearest batch that is no smaller, else of the largest; of as many runs at once, or of the most that
        were measured below.
        """
        levels = [level for level in self._rows if level <= max(1, running)]
        rows = self._rows[levels[-1] if levels else min(self._rows)]
        for row in rows:
            if row.batch >= items:
                return row
        return rows[-1]

    def _reference_ns(self, items: int, running: int) -> float:
        """As measured at import; beyond the largest batch in proportion."""
        row = self._row(items, running)
        return row.p50_ms * NS_PER_MS * max(1.0, items / row.batch)
