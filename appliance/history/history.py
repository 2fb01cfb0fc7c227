"""The history: a sample every ten seconds, a write every minute, and what is asked of it.

What the file does not hold yet is kept here, for an hour at most where it cannot be written.
"""

import asyncio
import sqlite3
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from appliance.clock import NS_PER_S, Clock, others_first
from appliance.domain.events import EventSink
from appliance.domain.spans import Span
from appliance.history.file import Damaged, HistoryFile, ReasonRow, StayRow, WindowRow, set_aside, unwritten_points
from appliance.history.folding import STAYS_MAX, WINDOWS_MAX
from appliance.history.pieces import COARSE_S, DAY_S, MINUTE_S, STEP_S, is_rate
from appliance.history.residence import Residence
from appliance.history.sampler import Sample, Sampler, Sources
from appliance.history.series import UP, is_of_tenant, tenant_of
from appliance.history.tallies import Counters, Sums, Tally, add, read_tallies, tenant_of_tally
from appliance.history.thinning import Points, thinned, total
from appliance.log import get as get_log
from appliance.runtime.ports import Background

T = TypeVar("T")
D = TypeVar("D")
PENDING_MAX = 360
"""Samples that wait to be written: an hour of them, while the disk is full."""
FINE_S = DAY_S + 600
"""So far back there are samples of ten seconds; a little more than a day, for whoever asks for a day takes time to."""
_EARLY_S = 2.0
log = get_log("history")


@dataclass(frozen=True, slots=True)
class Stretch:
    """Series between two times, in seconds since 1970: a point each `step_s`."""

    start: int
    step_s: int
    count: int
    series: Mapping[str, Points]
    totals: Mapping[str, float]
    """Events of each rate in all of the time, however many points show it."""


@dataclass(frozen=True, slots=True)
class Residency:
    """Who was in memory between two times, oldest first. `is_whole`: nothing was left out for being too much."""

    stays: Sequence[StayRow]
    reasons: Mapping[int, ReasonRow]
    windows: Sequence[WindowRow]
    is_whole: bool


class History:
    """Event-loop thread only; what blocks runs in a thread."""

    def __init__(
        self,
        clock: Clock,
        path: Path,
        sources: Sources,
        events: EventSink,
        variants_of: Callable[[str, str], Sequence[str]],
        tenants: Collection[str],
        *,
        days: int,
        series_max: int,
        background: Background = asyncio.to_thread,
    ) -> None:
        """`variants_of` as in `Residence`. `tenants`: those that there are now; the file forgets all others. `days` 0:
        nothing is kept. `background` runs what blocks.
        """
        self._clock = clock
        self._path = path
        self._background = background
        self._events = events
        self.days = days
        self._series_max = series_max
        self.residence = Residence(clock, variants_of)
        self._sampler = Sampler(sources, clock.now_ns())
        self.pending: dict[int, dict[str, float]] = {}
        """Beginning of ten seconds → samples that are not in the file yet."""
        self._tallies: dict[int, Tally] = {}
        """Beginning of ten seconds → tallies that are not in the file yet."""
        self._adding = asyncio.Lock()
        """Held while tallies are written and while they are read, so that each count is read once."""
        self._tenants: frozenset[str] | None = frozenset(tenants)
        """Until the file has been opened."""
        self._gone: set[str] = set()
        """Tenants that the file has not forgotten yet."""
        self._unsampled: set[str] = set()
        """Tenants that went since the last sample, which the next one counts once more."""
        self._file: HistoryFile | None = None
        self._saving: asyncio.Task[None] | None = None
        self._is_failing = False
        self._tasks: set[asyncio.Task[None]] = set()

    # -- in the background ---------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Sample and write until cancelled; a write under way is finished by `close`."""
        if not self.days:
            return
        await self._have_file()
        while True:
            await self._clock.sleep_until_ns(self._next_ns())
            try:
                await self._sample_in_steps()
                if self._over():
                    self._saving = asyncio.create_task(self._save(self._over()))
                    await asyncio.shield(self._saving)
            except Exception:  # what is sampled is the machine's: a disk that is gone for a while, a sensor
                log.exception("a sample was not taken, or not written")

    async def close(self) -> None:
        """Write what is left, once `run` has been cancelled."""
        await asyncio.gather(*self._tasks, *filter(None, (self._saving,)), return_exceptions=True)
        if not self.days:
            return
        self.residence.end_all()
        await self._save(list(self.pending))
        if self._file is not None:
            await self._background(self._file.close)
            self._file = None

    def count(self, counters: Counters) -> None:
        """Add these counters to the tallies from now on."""
        self._sampler.count(counters)

    def sample(self) -> None:
        """Read the registries of the box."""
        self._keep(self._slot(), self._sampler.take(self._clock.now_ns()))

    async def _sample_in_steps(self) -> None:
        slot, steps = self._slot(), self._sampler.steps(self._clock.now_ns())
        while True:
            try:
                next(steps)
            except StopIteration as end:
                self._keep(slot, end.value)
                return
            await others_first()

    def _slot(self) -> int:
        return int(self._wall_s()) // STEP_S * STEP_S

    def _keep(self, slot: int, sample: Sample) -> None:
        kept = {name: value for name, value in sample.values.items() if tenant_of(name) not in self._unsampled}
        counts = {name: one for name, one in sample.tally.items() if tenant_of_tally(name) not in self._unsampled}
        self._unsampled.clear()
        self.pending.setdefault(slot, {}).update(kept)
        add(self._tallies.setdefault(slot, {}), counts)
        for waiting in (self.pending, self._tallies):
            while len(waiting) > PENDING_MAX:
                del waiting[next(iter(waiting))]

    def forget_tenant(self, tenant: str) -> None:
        """A tenant is gone, and what was its; from the file a moment later, or as soon as that can be written."""
        self.residence.forget_tenant(tenant)
        for values in self.pending.values():
            for name in [name for name in values if is_of_tenant(name, tenant)]:
                del values[name]
        for tally in self._tallies.values():
            for name in [name for name in tally if tenant_of_tally(name) == tenant]:
                del tally[name]
        if not self.days:
            return
        self._gone.add(tenant)
        self._unsampled.add(tenant)
        task = asyncio.create_task(self._forget_gone(self._saving), name="forget a tenant")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # -- what is asked -------------------------------------------------------------------------------------------------

    def names(self) -> Iterator[str]:
        """Yield the name of each series that there is."""
        seen: set[str] = set()
        for names in (set() if self._file is None else self._file.names(), *self.pending.values()):
            for name in tuple(names):
                if name not in seen:
                    seen.add(name)
                    yield name

    def has(self, name: str) -> bool:
        """Return whether there is such a series."""
        is_pending = any(name in values for values in self.pending.values())
        return is_pending or (self._file is not None and name in self._file.names())

    async def read(self, names: Collection[str], start_s: float, end_s: float, points: int) -> Stretch:
        """Series between two times, with at most so many points together. What is too long ago is left out."""
        now_s = self._wall_s()
        start_s, end_s = max(start_s, now_s - self.days * DAY_S), min(end_s, now_s)
        is_fine = start_s >= now_s - FINE_S
        step = STEP_S if is_fine else COARSE_S
        start = int(start_s // step) * step
        end = max(start + step, int(-(-end_s // step)) * step)
        if is_fine and end - STEP_S == self._slot() != start and self._slot() not in self.pending:
            end = self._slot()  # the ten seconds under way, of which there is no sample yet
        count = (end - start) // step
        group = -(-count // max(1, points // max(1, len(names))))
        wanted = {*names, UP}
        more = {
            slot: {name: values[name] for name in wanted if name in values} for slot, values in self.pending.items()
        }

        def work(file: HistoryFile) -> dict[str, Points]:
            return file.read(wanted, start, end, is_fine=is_fine, more=more)

        found = await self._asked(work, None)
        if found is None:
            found = unwritten_points(wanted, start, end, is_fine=is_fine, more=more)
        series = {name: thinned(found[name], group) for name in names}
        totals = {name: total(found[name], found[UP]) * step for name in names if is_rate(name)}
        return Stretch(start, step * group, -(-count // group), series, totals)

    async def sums(self, spans: Iterable[Span], wanted: Callable[[str], bool]) -> dict[Span, Sums]:
        """Return the tallies of spans that end now, of names that are `wanted`."""
        now = int(self._wall_s())
        async with self._adding:
            more = {slot: dict(tally) for slot, tally in self._tallies.items()}

            def work(file: HistoryFile) -> dict[Span, Sums]:
                return {span: file.sums(span, more, wanted, now) for span in spans}

            found = await self._asked(work, None)
        return found or {span: read_tallies(None, span, more, wanted, now) for span in spans}

    async def residency(self, start_s: float, end_s: float, *, reasons: bool = True) -> Residency:
        """Who was in memory between two times, in which variant, and, where that is wanted, why."""
        fresh = self.residence.unwritten()
        told = {row.decision: row for row in fresh.reasons} if reasons else {}

        def work(file: HistoryFile) -> Residency:
            stays = {row.id: row for row in file.stays(start_s, end_s, STAYS_MAX + 1)}
            stays |= {row.id: row for row in fresh.stays if _is_within(row.since, row.until, start_s, end_s)}
            rows = sorted(stays.values(), key=lambda row: (row.since, row.id))
            numbers = [number for row in rows for number in (row.came, row.went) if number is not None]
            why = file.reasons(min(numbers, default=0), max(numbers, default=-1)) if reasons else {}
            why |= told
            windows = file.windows(start_s, end_s, WINDOWS_MAX)
            windows += [row for row in fresh.windows if _is_within(row.since, row.until, start_s, end_s)]
            is_whole = len(rows) <= STAYS_MAX and len(windows) <= WINDOWS_MAX
            return Residency(rows[-STAYS_MAX:], why, windows[-WINDOWS_MAX:], is_whole)

        return await self._asked(work, Residency(fresh.stays, told, fresh.windows, True))

    # -- inside --------------------------------------------------------------------------------------------------------

    def _wall_s(self) -> float:
        return self._clock.wall_now().timestamp()

    def _next_ns(self) -> int:
        """The middle of the next ten seconds, so that none is passed over for a moment."""
        wait_s = STEP_S - (self._wall_s() - STEP_S / 2) % STEP_S
        if wait_s < _EARLY_S:
            wait_s += STEP_S
        return self._clock.now_ns() + int(wait_s * NS_PER_S)

    def _over(self) -> list[int]:
        """Samples of minutes other than the present one."""
        minute = int(self._wall_s()) // MINUTE_S
        return [slot for slot in self.pending if slot // MINUTE_S != minute]

    async def _have_file(self) -> HistoryFile | None:
        """Open it, or begin anew where it is damaged; None where the disk does not let us, which is tried again."""
        if self._file is None:
            try:
                self._file, last_id, is_new = await self._background(self._open)
            except (OSError, sqlite3.Error, Damaged) as error:
                self._failed(error)
                return None
            self._tenants = None
            self.residence.begin_at(last_id)
            if is_new:
                self._events.emit("history damaged", file=self._path.name)
        return self._file

    def _open(self) -> tuple[HistoryFile, int, bool]:
        """The file, the id of its last stay, and whether it had to be begun anew."""
        try:
            file, is_new = self._made(), False
        except Damaged as error:
            log.warning("the history is damaged; a new one begins", reason=str(error), kept=str(set_aside(self._path)))
            file, is_new = self._made(), True
        return file, file.last_stay(), is_new

    def _made(self) -> HistoryFile:
        file = HistoryFile(self._path, days=self.days, series_max=self._series_max)
        file.end_open_stays()
        if self._tenants is not None:  # somebody went, and the box was killed before the file forgot them
            for tenant in file.tenants() - self._tenants:
                file.drop_tenant(tenant)
        return file

    async def _forget_gone(self, writing: asyncio.Task[None] | None = None) -> None:
        """After a write that has begun. Who cannot be forgotten now is tried again with the next minute."""
        if writing is not None:
            await asyncio.wait({writing})
        gone = frozenset(self._gone)

        def work(file: HistoryFile) -> frozenset[str]:
            for tenant in gone:
                file.drop_tenant(tenant)
            return gone

        if gone:
            self._gone -= await self._asked(work, frozenset[str]())

    async def _save(self, slots: Sequence[int]) -> None:
        """Write these samples, and what became of memory; what cannot be written is kept for the next time."""
        await self._have_file()
        await self._forget_gone()
        file = self._file
        if file is None:
            return
        taken = self.residence.taken()
        samples = {slot: dict(self.pending[slot]) for slot in slots if slot in self.pending}
        now_s = self._wall_s()
        try:
            async with self._adding:
                tallies = {slot: dict(self._tallies[slot]) for slot in slots if slot in self._tallies}
                await self._background(lambda: file.write(samples, *taken, tallies))
                for slot in tallies:
                    self._tallies.pop(slot, None)
            await self._background(lambda: file.fold(now_s))
        except Damaged as error:
            self.residence.put_back()
            await self._renew(error)
        except (OSError, sqlite3.Error) as error:
            self.residence.put_back()
            self._failed(error)
        else:
            self.residence.written()
            self._is_failing = False
            for slot in samples:
                self.pending.pop(slot, None)

    async def _renew(self, error: Exception) -> None:
        """The file is damaged: it is opened once more, and moved aside where that finds so, too."""
        log.warning("the history is damaged", reason=str(error))
        file, self._file = self._file, None
        if file is not None:
            with suppress(sqlite3.Error):
                await self._background(file.close)
        with suppress(OSError):
            await self._background(lambda: set_aside(self._path))
        self.residence.tell_all()
        if await self._have_file() is not None:
            self._events.emit("history damaged", file=self._path.name)

    async def _asked(self, work: Callable[[HistoryFile], T], otherwise: D) -> T | D:
        """What a file says, `otherwise` where there is none, or it is damaged."""
        file = self._file
        if file is None:
            return otherwise
        try:
            return await self._background(lambda: work(file))
        except Damaged as error:
            if file is self._file:
                await self._renew(error)
        except (OSError, sqlite3.Error) as error:
            self._failed(error)
        return otherwise

    def _failed(self, error: Exception) -> None:
        """Told once, until it works again."""
        if not self._is_failing:
            self._is_failing = True
            log.warning("the history cannot be kept", reason=repr(error))


def _is_within(since: float, until: float | None, start: float, end: float) -> bool:
    return since < end and (until is None or until >= start)
