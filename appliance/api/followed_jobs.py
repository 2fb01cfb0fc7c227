"""Jobs that callers follow. However many follow a job, it is read once after each event."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass, field

from appliance.api.http.sse import beating
from appliance.domain.states import JobState
from appliance.runtime.telemetry import Telemetry
from appliance.wire.jobs import JobShape

ENDED = (JobState.DONE, JobState.FAILED, JobState.CANCELLED)
READ_S = 1.0
"""Seconds without an event after which a job is read all the same."""

Read = Callable[[], Awaitable[JobShape]]


@dataclass(slots=True, eq=False)
class _FollowedJob:
    """A job with followers."""

    shown: JobShape
    """The job as it was read last."""
    followers: int = 0
    change: "asyncio.Future[None]" = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    """Done when `shown` is another one."""
    reading: "asyncio.Task[None]" = field(init=False)
    """Reads the job until it has ended or the box stops; fails where a read fails."""

    def show(self, shown: JobShape) -> None:
        """Wake the followers where the job has changed."""
        if shown != self.shown:
            self.shown = shown
            self.change.set_result(None)
            self.change = asyncio.get_running_loop().create_future()


class FollowedJobs:
    """The jobs that are followed now. Event-loop thread only."""

    def __init__(self, telemetry: Telemetry) -> None:
        self._telemetry = telemetry
        self._jobs: dict[str, _FollowedJob] = {}

    async def follow(self, shown: JobShape, read: Read) -> AsyncGenerator[JobShape | None, None]:
        """Yield a job as it is now and after each change, until it has ended; None after a second without a change.

        `shown` is the job as the follower found it. `read` reads it again, for all of its followers. Raises: what
        `read` raises.
        """
        if shown.state in ENDED:
            yield shown
            return
        job = self._jobs.get(shown.id)
        if job is None:
            job = self._jobs[shown.id] = _FollowedJob(shown)
            job.reading = asyncio.create_task(self._read(job, read), name="job")
        job.followers += 1
        try:
            known: JobShape | None = None
            while known is None or known.state not in ENDED:
                if job.shown != known:
                    known = job.shown
                    yield known
                elif job.reading.done():
                    job.reading.result()  # raises where a read has failed
                    return
                else:
                    waited_for = {job.change, job.reading}
                    done, _ = await asyncio.wait(waited_for, timeout=READ_S, return_when=asyncio.FIRST_COMPLETED)
                    if not done:
                        yield None
        finally:
            job.followers -= 1
            if not job.followers:
                del self._jobs[shown.id]
                if job.shown.state not in ENDED:  # else it is about to end
                    job.reading.cancel()
                await asyncio.gather(job.reading, return_exceptions=True)

    async def _read(self, job: _FollowedJob, read: Read) -> None:
        async with aclosing(beating(self._telemetry.subscribe(), READ_S)) as beats:
            async for _ in beats:
                job.show(await read())
                if job.shown.state in ENDED:
                    return
