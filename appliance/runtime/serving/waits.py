"""How long a run may wait for company where a plan has reserved that wait. Without a plan nobody waits for a batch to
fill: an idle worker begins with whoever is there.

By build, so that items of all frames, pipelines and plain callers of it share runs; only items wait (the
queue sees to that), for the plan has weighed their deadlines and nobody else's. Event-loop thread only.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from appliance.clock import NS_PER_S, Clock
from appliance.runtime.serving.job import Job

HASTE_NS = 1_000_000
"""A job is not kept waiting for so long before it would be too late."""


@dataclass(frozen=True, slots=True)
class PlannedWait:
    """A run of a build waits until so many items are there, or its first one has waited for so long."""

    items: int
    wait_ns: int
    others_ns: int = 0
    """What runs of others may take that go first when the wait is over."""


class PlannedWaits:
    """Of all builds. `on_over` is called when the wait of a job may be over."""

    def __init__(self, clock: Clock, workers: int = 1) -> None:
        """`workers`: all that there are, which plans count on."""
        self._clock = clock
        self._workers = workers
        self._waits: Mapping[str, PlannedWait] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._at_ns = 0
        self.on_over: Callable[[], None] = _nothing
        self.held = 0
        """Times that a job was kept waiting, since the start."""

    def __bool__(self) -> bool:
        return bool(self._waits)

    def plan(self, waits: Mapping[str, PlannedWait]) -> None:
        """By build, in place of what was planned before; who waits for a wait that is no more begins."""
        self._waits = dict(waits)
        self.on_over()

    def of(self, build_id: str) -> PlannedWait | None:
        """None: its runs wait for nobody."""
        return self._waits.get(build_id)

    def is_held(self, job: Job, mates: Callable[[Job, int], Sequence[Job]]) -> bool:
        """Whether a job waits for others to share its run. `mates` gives those that could share it now, at most so
        many.
        """
        wait = self._waits.get(job.build.build_id)
        if wait is None or wait.items < 2 or job.request.runs_alone or job.request.batch or job.rest is not None:
            return False
        now_ns = self._clock.now_ns()
        if job.company_by_ns is None:
            job.company_by_ns = self._until_ns(job, wait, now_ns)
            self.held += job.company_by_ns > now_ns
        if now_ns >= job.company_by_ns:
            return False
        others = (mate.items for mate in mates(job, wait.items) if mate is not job)
        if job.items + sum(others) >= wait.items:
            return False
        self._look_again(job.company_by_ns, now_ns)
        return True

    def _until_ns(self, job: Job, wait: PlannedWait, now_ns: int) -> int:
        """No longer than planned, and no longer than a run of so many can end in time behind those of others."""
        until_ns = now_ns + wait.wait_ns
        if job.request.drop_ns is None:
            return until_ns
        hoped_ns = job.hoped_ns
        run_ns = (job.expected_ns or 0) if hoped_ns is None else hoped_ns(wait.items, self._workers, now_ns)
        return min(until_ns, job.request.drop_ns - run_ns - wait.others_ns - HASTE_NS)

    def _look_again(self, at_ns: int, now_ns: int) -> None:
        if self._timer is not None and not self._timer.cancelled() and now_ns < self._at_ns <= at_ns:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._at_ns = at_ns
        self._timer = asyncio.get_running_loop().call_later((at_ns - now_ns) / NS_PER_S, self._over)

    def _over(self) -> None:
        self._timer = None
        self.on_over()


def _nothing() -> None:
    """Nobody waits."""
