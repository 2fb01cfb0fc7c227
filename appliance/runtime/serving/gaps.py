"""Which waiting request runs next where there is one group of processors and starts are reserved: those whose turn it
is, as far as they end before.

While no start is reserved the queue hands out by itself, and this costs nothing.
"""

from collections.abc import Mapping

from appliance.clock import NS_PER_MS, Clock
from appliance.runtime.serving.handing_out import HandingOut
from appliance.runtime.serving.job import Job
from appliance.runtime.serving.queue import Queue
from appliance.runtime.serving.reservations import Reservations

LOOKED_AT = 32
"""Of a tenant's waiting requests so many are weighed, the most urgent of each application."""
LOOKS_AGAIN_NS = 10 * NS_PER_MS
"""Who was weighed in vain is not weighed again for so long where nothing but newcomers is new: gaps only shrink, and
whose they are changes slowly."""


class Gaps:
    """Event-loop thread only."""

    def __init__(self, clock: Clock, queue: Queue, reservations: Reservations) -> None:
        self._clock = clock
        self._queue = queue
        self._reservations = reservations
        self._handing_out = HandingOut()
        self._looked_ns: int | None = None
        """When all that waits was weighed in vain; None: something is new since ..."""
        self._changes = 0
        """... and what was reserved then."""
        self._ends_ns: dict[str, int | None] = {}
        """Tenant → when the gap ends that its runs have, as it was then; None: there is no end."""
        reservations.on_change = self._changed

    def assign(self, newcomer: Job | None = None) -> None:
        """Give idle workers what may run. `newcomer`: nothing else is new since this was asked last."""
        if newcomer is None:
            self._looked_ns = None
        if newcomer is not None and self._is_in_vain(newcomer):
            return
        self._handing_out.all(self._next, self._give)

    def _changed(self) -> None:
        self._looked_ns = None
        self._queue.assign = self.assign if self._reservations else None
        self._queue.hand_out()

    def _give(self, job: Job) -> None:
        self._looked_ns = None
        self._queue.give(job, 0)
        self._reservations.begun(job)

    def _is_in_vain(self, newcomer: Job) -> bool:
        """Whether none may begin: those that wait were weighed in vain a moment ago, and this one may not."""
        now_ns = self._clock.now_ns()
        if self._looked_ns is None or now_ns - self._looked_ns >= LOOKS_AGAIN_NS:
            return False
        if self._changes != self._reservations.changes:
            return False
        return not self._queue.may_begin(newcomer) or self._is_held(newcomer, now_ns, self._free_ns(now_ns))

    def _next(self) -> Job | None:
        """The first in line that may begin. Of one that may not the next ones of its tenant may be shorter."""
        if not self._queue.idle()[0] or not len(self._queue):
            return None
        now_ns = self._clock.now_ns()
        free_ns = self._free_ns(now_ns)
        self._ends_ns.clear()
        for jobs in self._queue.turns(LOOKED_AT):
            for job in jobs:
                if not self._is_held(job, now_ns, free_ns):
                    return job
        self._looked_ns, self._changes = now_ns, self._reservations.changes
        return None

    def _is_held(self, job: Job, now_ns: int, free_ns: Mapping[int, list[int]]) -> bool:
        tenant = job.request.tenant
        if tenant not in self._ends_ns:
            gap_ns = self._reservations.gap_ns(tenant, 0, free_ns)
            self._ends_ns[tenant] = None if gap_ns is None else now_ns + gap_ns
        end_ns = self._ends_ns[tenant]
        return self._reservations.is_held(job, job.likely_ns, None if end_ns is None else max(0, end_ns - now_ns))

    def _free_ns(self, now_ns: int) -> dict[int, list[int]]:
        """When each worker is free, from now."""
        busy_ns = [job.frees_in_ns(now_ns) for job in self._queue.under_way]
        return {0: [0] * self._queue.idle()[0] + busy_ns}
