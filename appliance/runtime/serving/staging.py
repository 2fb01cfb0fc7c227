"""The run that is staged behind those under way, so that the thread which ends one goes on with it at once.

A turn of the event loop lies between two runs otherwise, and it may be busy with receiving a request. The job that is
staged stays in line: it is taken back when another's turn comes first, and when it leaves. Event-loop thread only.
"""

import asyncio
from typing import Any

from appliance.runtime.ports import StagedRun, Staging
from appliance.runtime.profiles.times import RunTimes
from appliance.runtime.serving.job import LONG_NS, Job

_PAYS, _PAYS_NOT = 0.9, 1.0
"""A shared run that takes less than the first of what its requests take one by one is worth waiting for, until it takes
more than the second: what the import measured once, and a few runs, are noisy, and who is near a single bound would be
staged at one time and not at another.
"""


class StagedJob:
    """Who is staged, if anybody is."""

    def __init__(self, stage: Staging) -> None:
        self._stage = stage
        self.job: Job | None = None
        """It waits in line."""
        self._run: StagedRun | None = None
        self.begun: Job | None = None
        """It has left the line, and the worker whose run has ended before it has not heard of that yet."""

    def put(self, job: Job) -> None:
        """Stage who is next in line, where that does not keep it from a shared run, and others from a short wait."""
        if not _is_fit(job):
            return
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
        return is_revoked

    @property
    def begun_ns(self) -> int:
        """When the job began that has."""
        assert self._run is not None
        return self._run.begun_ns

    def has_followed(self, ended: asyncio.Future[Any]) -> bool:
        """Whether a staged job has begun on the thread that ended this run."""
        return self._run is not None and self._run.after is ended

    def take(self) -> tuple[Job, asyncio.Future[Any]]:
        """The job that has begun, and its run, for its worker."""
        assert self.begun is not None and self._run is not None
        found = self.begun, self._run.run
        self.begun = self._run = None
        return found


def _is_fit(job: Job) -> bool:
    """A short run of a whole network, that need be neither counted nor padded, nor put together with others."""
    servable, request, times = job.servable, job.request, job.times
    return (
        times is not None
        and job.rest is None
        and not request.batch
        and not job.run_bytes
        and not servable.goes_in_steps
        and job.build.handle is not None
        and job.likely_ns <= LONG_NS
        and not _pays(job, times)
    )


def _pays(job: Job, times: RunTimes) -> bool:
    """Whether requests like it take less time together."""
    most = job.servable.together_max // job.items
    if most < 2:
        return False
    share = min(_share(times, job.items, requests) for requests in {2, most})
    if not _PAYS <= share <= _PAYS_NOT:
        job.build.pays_shared = share < _PAYS
    return job.build.pays_shared


def _share(times: RunTimes, items: int, requests: int) -> float:
    """What so many of its requests take together, of what they take one by one."""
    alone_ns, together_ns = (times.hoped_ns(n * items, 1, 0) for n in (1, requests))
    return together_ns / max(1, requests * alone_ns)
