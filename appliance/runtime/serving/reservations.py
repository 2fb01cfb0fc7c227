"""Starts that planners have reserved for batches: a worker is free for each when it comes. Until then it begins only
with what ends before.

A batch begins before its start where all its frames are in, and nobody waits for one longer than its grace. Whoever is
planned is not kept waiting: planners know of one another. Nor are others where the tenant of the start is ahead of them
by more than it will have made up by then (`fairness`): reserved runs are charged like all others, and what a tenant
starts beyond its share comes when its turn does. Nothing is kept waiting for longer than `PATIENCE_NS`: there may never
be a gap that is long enough.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile

from appliance.clock import NS_PER_S, NS_PER_US, Clock
from appliance.policies.dispatch.reserved import ReservedStart, gap_ns
from appliance.runtime.serving.job import LONG_NS, Job
from appliance.runtime.serving.queue import Queue

PATIENCE_NS = 5 * NS_PER_S
_AFTER_NS = NS_PER_US
"""A timer is set for so long after: floats are not exact, and one that comes before its time would be set again."""
_AHEAD_NS = NS_PER_S
"""Starts that are farther away keep nobody waiting: their plans will have changed."""


@dataclass(slots=True, eq=False)
class Reservation:
    """One planned batch's start."""

    tenant: str
    start_ns: int
    until_ns: int
    """When it lapses where its run has not begun."""
    run_ns: int
    takes_ns: Mapping[int, int]
    """Of several groups of processors those that run it, by index, and what it takes there; empty where there is one
    group, and where that is not known.
    """
    begins: Callable[[int], None]
    """Told once when its run begins, or that it lapsed where it was ready."""
    lapses: Callable[[], None]
    """Told that it lapsed where it was not."""
    is_ready: bool = False
    """Its requests are in the queue, or about to be."""


class Reservations:
    """The starts that are reserved now, by the number of their batch. Event-loop thread only."""

    def __init__(self, clock: Clock, queue: Queue, groups: int) -> None:
        """`groups` of processors."""
        self._clock = clock
        self._queue = queue
        self._groups = groups
        self._kept: dict[int, Reservation] = {}
        self._order: list[Reservation] | None = None
        """The same by their starts; None: to be put in order."""
        self.changes = 0
        """Grows with each change of what is reserved."""
        self._timer: asyncio.Handle | None = None
        """Looks at what has lapsed at `_looks_ns`. It cannot be asked: at once is no time of uvloop's."""
        self._looks_ns = 0
        self.on_change: Callable[[], None] = lambda: None
        """Some have come where there were none, or some have gone."""

    def __bool__(self) -> bool:
        return bool(self._kept)

    def put(self, number: int, reservation: Reservation) -> None:
        """Reserve a start."""
        is_first = not self._kept
        self._kept[number] = reservation
        self._moved()
        self._lapse_at(reservation.until_ns)
        if is_first:
            self.on_change()

    def ready(self, number: int) -> None:
        """All its frames are in, or nobody waits for the others: it starts as soon as a worker is free, which is kept
        for it for as long as its run takes.
        """
        found = self._kept.get(number)
        if found is not None:
            now_ns = self._clock.now_ns()
            found.is_ready = True
            found.start_ns = min(found.start_ns, now_ns)
            self._moved()
            found.until_ns = now_ns + found.run_ns
            self._lapse_at(found.until_ns)

    def drop(self, numbers: Iterable[int]) -> None:
        """Their batches will not come."""
        if [number for number in numbers if self._kept.pop(number, None) is not None]:
            self._moved()
            self.on_change()

    def begun(self, job: Job) -> None:
        """A job begins: the start of its batch, if it has one, is kept."""
        found = self._kept.pop(job.request.batch, None)
        if found is not None:
            self._moved()
            found.begins(self._clock.now_ns())
            self.on_change()

    def gap_ns(self, tenant: str, group: int, free_ns: Mapping[int, Sequence[int]]) -> int | None:
        """How long a tenant's run may take that nobody planned and that begins now on an idle worker of a group; None:
        as long as it likes. `free_ns`: group → when each of its workers is free, from now.
        """
        now_ns = self._clock.now_ns()
        if self._order is None:
            self._order = sorted(self._kept.values(), key=lambda one: one.start_ns)
        ahead = takewhile(lambda one: one.start_ns - now_ns < _AHEAD_NS, self._order)
        starts = (
            ReservedStart(max(0, one.start_ns - now_ns), one.takes_ns or dict.fromkeys(range(self._groups), one.run_ns))
            for one in ahead
            if self._is_kept(one, tenant, now_ns)
        )
        return gap_ns(starts, free_ns, group)

    def is_due(self, within_ns: int) -> bool:
        """Whether a start comes so soon, or waits for its worker already."""
        end_ns = self._clock.now_ns() + within_ns
        return any(one.start_ns < end_ns for one in self._kept.values())

    def is_held(self, job: Job, takes_ns: int, gap_ns: int | None) -> bool:
        """Whether a job whose run takes so long has to wait, given its tenant's gap."""
        job.gap_ns = None
        if gap_ns is None or job.request.batch or job.request.is_planned:
            return False
        now_ns = self._clock.now_ns()
        if job.held_ns is not None and now_ns - job.held_ns >= PATIENCE_NS:
            return False
        job.gap_ns = gap_ns
        if takes_ns <= gap_ns:
            return False
        if job.held_ns is None:
            job.held_ns = now_ns
        return True

    # -- inside --------------------------------------------------------------------------------------------------------

    def _moved(self) -> None:
        self._order = None
        self.changes += 1

    def _is_kept(self, one: Reservation, tenant: str, now_ns: int) -> bool:
        """Whether a tenant's jobs wait for it."""
        if one.tenant == tenant:
            return True
        return self._queue.flows.lead_ns(one.tenant, tenant) - max(0, one.start_ns - now_ns) <= LONG_NS

    def _lapse_at(self, until_ns: int) -> None:
        """Look then at the latest whether some have lapsed."""
        if self._timer is not None:
            if self._looks_ns <= until_ns:
                return
            self._timer.cancel()
        self._looks_ns = until_ns
        self._timer = asyncio.get_running_loop().call_at((until_ns + _AFTER_NS) / NS_PER_S, self._lapse)

    def _lapse(self) -> None:
        self._timer = None
        now_ns = self._clock.now_ns()
        gone = {number: one for number, one in self._kept.items() if one.until_ns <= now_ns}
        for number in gone:
            del self._kept[number]
        self._moved()
        for one in gone.values():
            if one.is_ready:
                one.begins(now_ns)
            else:
                one.lapses()
        if self._kept:
            self._lapse_at(min(one.until_ns for one in self._kept.values()))
        if gone:
            self.on_change()
