"""Runs of requests that wait for a worker, each as a job in the queue: whole networks, where nothing runs on the event
loop itself.
"""

import asyncio
from typing import Any

from appliance.clock import Clock
from appliance.domain.request import Request
from appliance.domain.states import RequestState
from appliance.runtime.catalogue import Catalogue, Entry
from appliance.runtime.memory.build import LoadedBuild
from appliance.runtime.memory.manager import MemoryManager
from appliance.runtime.profiles.times import RunTimes
from appliance.runtime.serving.job import Job
from appliance.runtime.serving.outcomes import EndedRun
from appliance.runtime.serving.overflow import Overflow
from appliance.runtime.serving.placement import Placed
from appliance.runtime.serving.queue import Queue


class QueuedRuns:
    """Event-loop thread only."""

    def __init__(
        self,
        clock: Clock,
        catalogue: Catalogue,
        queue: Queue,
        memory: MemoryManager,
        workers: int,
        overflow: Overflow,
    ) -> None:
        self._clock = clock
        self._catalogue = catalogue
        self._queue = queue
        self._memory = memory
        self._workers = workers
        self._overflow = overflow

    async def run(
        self, request: Request, entry: Entry, placed: Placed, times: RunTimes | None, items: int, run_bytes: int
    ) -> tuple[EndedRun, str]:
        """Wait for a worker, and release the build after the run; at the deadline the caller is told, whatever its
        run does. Also gives the build that it ran as: it may be the one for another kind of processor.

        Raises: RunAgain, QueueFull, Overloaded, DeadlineExceeded, RunFailed, NoRoomToRun, ShuttingDown.
        """
        servable, build, *_ = placed
        expected_ns: int | None = None
        at_once_max = None if request.slot.is_planned else servable.at_once_max
        if times is not None:
            expected_ns = self.expected_ns(request, times, items, at_once_max)
        loop = asyncio.get_running_loop()
        weights = self._catalogue.weights(entry.application, request.tenant)
        answer: asyncio.Future[dict[str, Any]] = loop.create_future()
        job = Job(
            request,
            servable,
            build,
            answer,
            times=times,
            expected_ns=expected_ns,
            run_bytes=run_bytes,
            weights=weights,
            rows=items,
        )
        if servable.places:
            job.times_by_group = found = servable.times_by_place(request.inputs, items)
            job.expected_by_group = {
                at: self.expected_ns(request, one, items, at_once_max) for at, one in found.items()
            }
            job.expected_ns = min(job.expected_by_group.values(), default=expected_ns)
        held = [build]
        if servable.overflow:
            held += self._may_overflow(job, items)
            self._overflow.spare(servable, request)
        since_ns, idle = self._clock.now_ns(), self._queue.idle().keys() if servable.overflow else frozenset()
        try:
            self._queue.put(job)
            outputs = await answer
            return (outputs, job.started_ns, job.finished_ns, job.run_items), job.build.build_id
        finally:
            if job.state is RequestState.DONE:  # nearly always: neither runs nor waits any more
                pass
            elif self._queue.is_running(job):  # nobody waits for it: the build stays pinned until the run is over
                job.is_abandoned = True
                held = [one for one in held if one is not job.build]
            else:
                self._queue.leave(job)
            for each in held:
                self._memory.unpin(each)
            if servable.overflow or self._overflow.is_used:
                self._overflow.ended(servable, job, since_ns, idle)
            if not job.is_abandoned:
                job.forget_call()
            # An error holds this frame, and the answer holds the error: a circle that would keep the tensors.
            del answer, job

    def expected_ns(self, request: Request, times: RunTimes, items: int, at_once_max: int | None = None) -> int:
        """What a run by itself that began now would take. `at_once_max`: runs of its build that are under way at once
        at most.
        """
        running = min(len(self._queue.scheduler.runs) + 1, at_once_max or self._workers)
        now_ns, drop_ns = self._clock.now_ns(), request.drop_ns
        if drop_ns is None:
            return times.expected_ns(items, running, now_ns)
        return times.in_time_ns(items, running, now_ns, drop_ns - now_ns)

    def _may_overflow(self, job: Job, items: int) -> list[LoadedBuild]:
        """Let a job run on further kinds of processors, too, as far as its build for them is there; returns those,
        pinned.
        """
        if job.times_by_group is None or job.expected_by_group is None:
            return []
        times, expected, also = dict(job.times_by_group), dict(job.expected_by_group), {}
        others = self._overflow.pinned(job.servable)
        for other, build in others:
            for at, one in other.times_by_place(job.request.inputs, items).items():
                if at not in times:
                    times[at], also[at] = one, (other, build)
                    expected[at] = self.expected_ns(job.request, one, items, other.at_once_max)
        job.times_by_group, job.expected_by_group, job.also_on = times, expected, also
        job.expected_ns = min(expected.values(), default=job.expected_ns)
        return [build for _, build in others]
