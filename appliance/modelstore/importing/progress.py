"""How far a job is: into its row and out as events, without writing to the disk for every percent."""

import asyncio
from collections.abc import Callable

from appliance.domain.events import EventSink
from appliance.domain.jobs import JobRecord
from appliance.domain.states import JobState
from appliance.modelstore.store.store import Store

STEP_PERCENT = 2.0
"""Smallest advance within a stage that is told."""


class Progress:
    """Maps the share of a stage to the percentage of the job."""

    def __init__(self, store: Store, events: EventSink, job: JobRecord) -> None:
        self.job = job
        self._store = store
        self._events = events
        self._from = self._to = self._told = job.percent
        self._writes: set[asyncio.Task[None]] = set()

    async def stage(self, name: str, start: float, end: float) -> None:
        """A stage begins; it takes the job from `start` to `end` percent."""
        self._from, self._to = start, end
        await self._tell(stage=name, percent=start, message="")

    def within(self, share: float, message: str) -> None:
        """The stage is at `share` (0..1); called by the child's reader."""
        percent = self._from + share * (self._to - self._from)
        if percent >= self._told + STEP_PERCENT:
            self._told = percent
            task = asyncio.ensure_future(self._tell(percent=percent, message=message))
            self._writes.add(task)
            task.add_done_callback(self._written)

    def part(self, start: float, end: float) -> Callable[[float, str], None]:
        """A `within` for a part of the stage, from share `start` to share `end`."""
        return lambda share, message: self.within(start + share * (end - start), message)

    async def settle(self) -> None:
        """Wait for what is still being written; before the job's last state."""
        while self._writes:
            await asyncio.wait(self._writes)

    def announce(self, job: JobRecord) -> None:
        """Tell the rest of the box."""
        self.job = job
        self._events.emit(
            "job progressed",
            job_id=job.id,
            tenant=job.tenant,
            model_id=job.model_id,
            state=job.state.value,
            stage=job.stage,
            percent=round(job.percent, 1),
            message=job.message,
            error=job.error,
        )

    async def _tell(self, *, percent: float, message: str, stage: str | None = None) -> None:
        self._told = max(self._told, percent)
        self.announce(
            await self._store.jobs.update(
                self.job.id, state=JobState.RUNNING, stage=stage, percent=percent, message=message
            )
        )

    def _written(self, task: "asyncio.Task[None]") -> None:
        self._writes.discard(task)
        if not task.cancelled():
            task.exception()  # a full disk shows itself to the stage too; progress alone is not worth failing for
