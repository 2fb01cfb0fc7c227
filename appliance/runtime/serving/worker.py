"""A worker drives one slot of a processor: takes the most urgent job, runs it, answers.

Never more than one run at a time.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

from appliance.clock import Clock
from appliance.domain.errors import NoRoomToRun, ShuttingDown
from appliance.domain.states import RequestState
from appliance.runtime.memory.build import LoadedBuild
from appliance.runtime.memory.runs import RunMemory
from appliance.runtime.ports import Processor
from appliance.runtime.serving.job import BuildGone, Job
from appliance.runtime.serving.queue import Queue


class Worker:
    """One of a processor's `workers`."""

    def __init__(
        self,
        clock: Clock,
        processor: Processor,
        queue: Queue,
        release: Callable[[LoadedBuild], None],
        memory: RunMemory,
    ) -> None:
        """`release` unpins the build of a run whose caller went away; `memory` counts what runs take."""
        self._clock = clock
        self._processor = processor
        self._queue = queue
        self._release = release
        self._memory = memory
        self._run: asyncio.Future[dict[str, Any]] | None = None
        self._is_stopped = False
        self.busy_ns = 0
        self.runs = 0

    async def work(self) -> None:
        """Serve the queue until cancelled."""
        self._queue.offer(self._begin)
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            self._is_stopped = True
            self._queue.withdraw(self._begin)
            if self._run is not None:
                self._run.cancel()

    def _begin(self, job: Job) -> None:
        """Hand a job to the processor.

        No task of the worker's own wakes in between: that would cost every request two turns of the loop.
        """
        if not self._is_there(job) or (job.run_bytes and not self._has_room(job)):
            self._queue.ended(job)  # it took nothing
            self._queue.offer(self._begin)
            return
        job.to(RequestState.RUNNING)
        job.started_ns = job.request.started_ns = self._clock.now_ns()
        request = job.request
        run = self._processor.run(job.build.handle, request.inputs, request.outputs, deadline_ns=request.drop_ns)
        self._run = asyncio.ensure_future(run)
        self._run.add_done_callback(partial(self._end, job))

    def _is_there(self, job: Job) -> bool:
        """Whether the build is still in memory; else the job is to be placed anew."""
        if job.build.handle is not None:
            return True
        job.to(RequestState.FAILED)
        job.answer.set_exception(BuildGone())
        return False

    def _has_room(self, job: Job) -> bool:
        """Whether the memory of the run is there and counted from now on; else the job is answered."""
        servable = job.servable
        try:
            self._memory.check(servable.build_id, servable.name, job.run_bytes)
        except NoRoomToRun as error:  # others have begun to run since it was let in
            job.to(RequestState.FAILED)
            job.answer.set_exception(error)
            return False
        self._memory.begin(job.run_bytes)
        return True

    def _end(self, job: Job, run: asyncio.Future[dict[str, Any]]) -> None:
        """Settle a job's answer and take the next; the job's failure is not the worker's."""
        self._run = None
        self._memory.end(job.run_bytes)
        job.finished_ns = self._clock.now_ns()
        self.busy_ns += job.finished_ns - job.started_ns
        self.runs += 1
        self._queue.ended(job)
        error = ShuttingDown() if run.cancelled() else run.exception()
        job.to(RequestState.FAILED if error else RequestState.DONE)
        if job.is_abandoned:
            self._release(job.build)
        elif job.answer.done():  # cancelled this very moment: the caller, about to wake, unpins
            pass
        elif error is not None:
            job.answer.set_exception(error)
        else:
            job.answer.set_result(run.result())
        if not self._is_stopped:
            self._queue.offer(self._begin)
