"""Which waiting request runs next where there is one group of processors and starts are reserved: those whose turn it
is, as far as they end before.

While no start is reserved the queue hands out by itself, and this costs nothing.
"""

from appliance.clock import Clock
from appliance.runtime.serving.job import Job
from appliance.runtime.serving.queue import Queue
from appliance.runtime.serving.reservations import Reservations

LOOKED_AT = 32
"""Of a tenant's waiting requests so many are weighed, the most urgent of each application."""


class Gaps:
    """Event-loop thread only."""

    def __init__(self, clock: Clock, queue: Queue, reservations: Reservations) -> None:
        self._clock = clock
        self._queue = queue
        self._reservations = reservations
        self._is_assigning = False
        reservations.on_change = self._changed

    def assign(self) -> None:
        """Give idle workers what may run; one that cannot begin with it offers itself again meanwhile."""
        if self._is_assigning:
            return
        self._is_assigning = True
        try:
            while (job := self._next()) is not None:
                self._queue.give(job, 0)
                self._reservations.begun(job)
        finally:
            self._is_assigning = False

    def _changed(self) -> None:
        self._queue.assign = self.assign if self._reservations else None
        self._queue.hand_out()

    def _next(self) -> Job | None:
        """The first in line that may begin. Of one that may not the next ones of its tenant may be shorter."""
        idle = self._queue.idle()[0]
        if not idle or not len(self._queue):
            return None
        now_ns = self._clock.now_ns()
        busy_ns = [max(1, abs(job.started_ns + job.holds_ns - now_ns)) for job in self._queue.running()]
        free_ns = {0: [0] * idle + busy_ns}
        gaps_ns: dict[str, int | None] = {}
        for jobs in self._queue.turns(LOOKED_AT):
            for job in jobs:
                tenant = job.request.tenant
                if tenant not in gaps_ns:
                    gaps_ns[tenant] = self._reservations.gap_ns(tenant, 0, free_ns)
                if not self._reservations.is_held(job, job.likely_ns, gaps_ns[tenant]):
                    return job
        return None
