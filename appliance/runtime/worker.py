"""A worker drives one slot of a processor: takes the most urgent job, runs it, answers. Never more than one run at a time."""

import asyncio
from collections.abc import Callable
from typing import Any

from appliance.clock import Clock
from appliance.domain.errors import ShuttingDown
from appliance.domain.states import RequestState
from appliance.runtime.ports import Processor
from appliance.runtime.queues import Job, Queue
from appliance.runtime.residency import Residency


class Worker:
    """One of a processor's `workers`."""

    def __init__(
        self,
        clock: Clock,
        processor: Processor,
        queue: Queue,
        release: Callable[[Residency], None],
    ) -> None:
        """`release` unpins the build of a run whose caller went away."""
        self._clock = clock
        self._processor = processor
        self._queue = queue
        self._release = release
        self.busy_ns = 0
        self.runs = 0

    async def work(self) -> None:
        """Serve the queue until cancelled."""
        while True:
            job = self._queue.take()
            if job is None:
                await self._queue.wait()
            else:
                await self.serve(job)

    async def serve(self, job: Job) -> None:
        """Run one job and settle its answer; never raises for the job's own failure."""
        job.to(RequestState.RUNNING)
        request = job.request
        job.started_ns = self._clock.now_ns()
        outputs: dict[str, Any] | None = None
        error: Exception | None = None
        try:
            outputs = await self._processor.run(job.residency.handle, request.inputs, request.outputs)
        except asyncio.CancelledError:
            self._settle(job, None, ShuttingDown())
            raise
        except Exception as caught:
            error = caught
        self._settle(job, outputs, error)

    def _settle(self, job: Job, outputs: dict[str, Any] | None, error: Exception | None) -> None:
        job.finished_ns = self._clock.now_ns()
        self.busy_ns += job.finished_ns - job.started_ns
        self.runs += 1
        job.to(RequestState.FAILED if error else RequestState.DONE)
        if job.is_abandoned:
            self._release(job.residency)
        elif job.answer.done():  # cancelled this very moment: the caller, about to wake, unpins
            return
        elif error is not None:
            job.answer.set_exception(error)
        else:
            job.answer.set_result(outputs or {})
