"""The run that is staged behind those under way, so that the thread which ends one goes on with it at once.

A turn of the event loop lies between two runs otherwise, and it may be busy with receiving a request. The job that is
staged stays in line: it is taken back when another's turn comes first, and when it leaves. Event-loop thread only.
"""

import asyncio
from typing import Any

from appliance.domain.slots import NO_SLOT
from appliance.runtime.engine.work import LONG_NS, Run
from appliance.runtime.memory.runs import RunMemory
from appliance.runtime.ports import StagedRun, Staging
from appliance.runtime.serving.job import Job


class StagedJob:
    """Who is staged, if anybody is."""

    def __init__(self, stage: Staging, memory: RunMemory, workers: int, *, may_share: bool = True) -> None:
        """`workers` that take runs; `may_share`: whether any run is shared."""
        self._stage = stage
        self._memory = memory
        self._workers = workers
        self._may_share = may_share
        self.job: Job | None = None
        """It waits in line."""
        self._run: StagedRun | None = None
        self.begun: Job | None = None
        """It has left the line, and the worker whose run has ended before it has not heard of that yet ..."""
        self.following: Run | None = None
        """... and its run, as the scheduler has it."""

    def put(self, job: Job, waiting: int) -> None:
        """Stage who is next in line, where that does not keep it from a shared run, and others from a short wait.
        `waiting`: requests of its tenant for its application, it included.
        """
        if not _is_fit(job) or (self._may_share and _pays(job, waiting, self._workers)):
            return
        if job.run_bytes and job.run_bytes > self._memory.room_bytes:
            return  # what it would follow counts until the event loop hears of its end
        request, drop_ns = job.request, job.request.drop_ns
        begin_by_ns = None if drop_ns is None else drop_ns - (job.expected_ns or 0)
        run = self._stage(
            job.build.handle, request.inputs, request.outputs, deadline_ns=drop_ns, begin_by_ns=begin_by_ns
        )
        if run is not None:
            self.job, self._run = job, run

    def revoke(self) -> bool:
        """Take it back; False: it has begun, and is not waiting any more."""
        assert self._run is not None
        is_revoked = self._run.revoke()
        if is_revoked:
            self.job = self._run = None
        else:
            self.begun, self.job = self.job, None
            if self.begun is not None:  # else another worker could begin with what only fits without it
                self._memory.begin(self.begun.run_bytes)
        return is_revoked

    @property
    def begun_ns(self) -> int:
        """When the job began that has."""
        assert self._run is not None
        return self._run.begun_ns

    def has_followed(self, ended: asyncio.Future[Any]) -> bool:
        """Whether a staged job has begun on the thread that ended this run."""
        return self._run is not None and self._run.after is ended

    def take(self) -> tuple[Run, asyncio.Future[Any]]:
        """Return the run that has begun, and its future, for its worker, which counts its memory from here on."""
        assert self.begun is not None and self.following is not None and self._run is not None
        found = self.following, self._run.run
        self._memory.end(self.begun.run_bytes)
        self.begun = self.following = self._run = None
        return found


def _is_fit(job: Job) -> bool:
    """A short run of a whole network, that need be neither padded nor put together with others by a plan."""
    servable, request = job.servable, job.request
    return (
        job.times is not None
        and job.rest is None
        and request.slot is NO_SLOT
        and not servable.goes_in_steps
        and job.build.handle is not None
        and job.likely_ns <= LONG_NS
    )


def _pays(job: Job, waiting: int, workers: int) -> bool:
    """Whether those in line are done sooner together, as `policies.batching.by_profile` would find.

    Of n for each worker, one by one, the mean one is done after (n + 1) / 2 runs; by runs of s, after (n + s) / 2s of
    these. A run of s is known by what such runs take while every worker has one.
    """
    times = job.times
    if times is None or job.servable.together_max < 2:
        return False
    most = job.servable.together_max // job.items
    if most < 2:
        return False
    alone_ns = times.hoped_ns(job.items, workers, 0)
    line = max(1.0, waiting / workers)
    for size in {2, max(2, min(most, waiting))}:  # a loop: it is asked for nearly every request
        if times.hoped_ns(size * job.items, workers, 0) * (line + size) < size * alone_ns * (line + 1):
            return True
    return False
