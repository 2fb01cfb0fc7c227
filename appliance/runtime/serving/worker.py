"""A worker drives one slot of a processor: takes the most urgent job and who may share its run, runs them, answers.

Never more than one run at a time.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from appliance.clock import Clock
from appliance.domain.errors import ApplianceError, ProcessorLost, RunRefused, RunStopped, ShuttingDown
from appliance.domain.names import kind_of
from appliance.domain.request import Tensors
from appliance.domain.states import RequestState
from appliance.runtime.engine.work import Run
from appliance.runtime.memory.build import LoadedBuild
from appliance.runtime.memory.runs import RunMemory
from appliance.runtime.ports import RunGroup
from appliance.runtime.serving.batch import Batch
from appliance.runtime.serving.job import Job, RunAgain
from appliance.runtime.serving.queue import Queue
from appliance.runtime.serving.spending import SpendingByTenant
from appliance.runtime.serving.unplanned import UnplannedRuns
from appliance.tasks.padding import Padded, cropped


class Worker:
    """One of the `workers` of a group of processors."""

    def __init__(
        self,
        clock: Clock,
        group: RunGroup,
        queue: Queue,
        memory: RunMemory,
        release: Callable[[LoadedBuild], None],
        single_calls: SpendingByTenant,
        index: int = 0,
    ) -> None:
        """`release` unpins the build of a run whose caller went away; `single_calls`: who pays for requests that
        have no meter of their own; `index`: of its group among several.
        """
        self._clock = clock
        self._group = group
        self._index = index
        self._processor = group.runs
        self._queue = queue
        self._memory = memory
        self._release = release
        self._single_calls = single_calls
        self._run: asyncio.Future[Any] | None = None
        self.busy_ns = 0
        self.runs = 0
        self.whole: Counter[str] = Counter()
        """Kind of processor → runs of whole networks that have ended well ..."""
        self.rows: Counter[str] = Counter()
        """... and the rows of these."""
        self.unplanned = UnplannedRuns()

    @property
    def group(self) -> str:
        """Name of the group of processors that it hands runs to."""
        return self._group.name

    async def work(self) -> None:
        """Serve the queue until cancelled."""
        self._queue.offer(self._begin, self._index)
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            self._queue.withdraw(self._begin, self._index)
            if self._run is not None:
                self._run.cancel()

    def _begin(self, run: Run) -> None:
        """Hand a run to the processor.

        No task of the worker's own wakes in between: that would cost every request two turns of the loop.
        """
        batch = self._noted(run)
        try:
            self._run = asyncio.ensure_future(self._handed_over(batch))
        except Exception as error:  # its inputs are not what they should be: a run that has failed
            self._run = asyncio.get_running_loop().create_future()
            self._run.set_exception(error.with_traceback(None))
        self._run.add_done_callback(partial(self._end, batch))

    def _go_on(self, run: Run, under_way: asyncio.Future[Any]) -> None:
        """Go on with a run that the processor has begun by itself."""
        self._run = under_way
        under_way.add_done_callback(partial(self._end, self._noted(run)))

    def _noted(self, run: Run) -> Batch:
        """Note that the jobs of a run have begun."""
        batch = Batch.of(run)
        self._memory.begin(batch.run_bytes)
        for job in batch.jobs:
            if job.state is not RequestState.RUNNING:  # else it was staged
                job.to(RequestState.RUNNING)
            job.started_ns = job.request.started_ns = run.began_ns
            job.request.run_rows = batch.rows
        batch.jobs[0].stops_ns = batch.deadline_ns
        return batch

    def _handed_over(self, batch: Batch) -> Awaitable[Any]:
        first = batch.jobs[0]
        request, handle = first.request, first.build.handle
        if first.rest is not None:
            others = [job.rest for job in batch.jobs[1:] if job.rest is not None]
            return first.rest.begin(self._index, first.rest.next, others)
        inputs = [_inputs(job, batch) for job in batch.jobs]
        if len(inputs) == 1:
            return self._processor.run(handle, inputs[0], request.outputs, deadline_ns=batch.deadline_ns)
        counts = [job.items for job in batch.jobs]
        return self._processor.run_rows(handle, inputs, counts, request.outputs, deadline_ns=batch.deadline_ns)

    def _end(self, batch: Batch, run: asyncio.Future[Any]) -> None:
        """Settle the answers and be free for the next run; a run's failure is not the worker's."""
        self._run = None
        self._memory.end(batch.run_bytes)
        following = self._queue.followed(run)
        first, now_ns = batch.jobs[0], self._clock.now_ns() if following is None else following[0].began_ns
        uncounted = batch.rows
        took_ns = now_ns - first.started_ns
        self.busy_ns += took_ns
        if not first.request.slot.is_planned:
            self.unplanned.ran(took_ns, now_ns)
        at_once = max(batch.run.running, len(self._queue.scheduler.runs))
        is_shared = len(batch.jobs) > 1
        error = ShuttingDown() if run.cancelled() else run.exception()
        self.runs += run.result() if first.rest is not None and error is None else 1
        self._count(first, batch.rows if error is None else 0)
        if isinstance(error, ProcessorLost) and (first.build.handle is None or not self._group.is_serving()):
            error = RunAgain()  # the build went with the processor, or others run it: each job is placed anew
        if batch.shapes is not None and _is_about_inputs(error):
            first.note_padded(has_failed=error is not None)
        self._queue.ended(batch.run, now_ns, None if following is None else following[0])
        for place, job in enumerate(batch.jobs):
            job.finished_ns = now_ns
            self._charge(job, at_once)
            job.to(RequestState.FAILED if error else RequestState.DONE)
            if job.rest is None:
                job.build.ran(job.took_ns, now_ns, fades=not job.servable.is_guarded)
            came = error or (run.result()[place] if is_shared and job.rest is None else run.result())
            if self._settle(job, batch, came):
                job.run_items, uncounted = uncounted, 0
        if error is None or isinstance(error, RunStopped):
            first.learn(batch.rows, at_once, batch.run, is_whole=error is None)
        for job in batch.jobs:
            if job.is_abandoned or job.rest is not None:  # else its caller does, who has yet to wake
                job.forget_call()
        if following is not None:
            self._go_on(*following)
        self._queue.go_on()

    def _settle(self, job: Job, batch: Batch, came: Any) -> bool:
        """Tell the caller of a job what came of its run: outputs, or an error; return whether it has outputs."""
        if job.is_abandoned:
            self._release(job.build)
        elif job.answer.done():  # in parts; or cancelled this very moment: the caller, about to wake, unpins
            pass
        elif not isinstance(came, BaseException):
            self._answer(job, batch, came)
            return True
        elif (len(batch.jobs) > 1 or batch.shapes is not None) and not isinstance(came, (ShuttingDown, RunAgain)):
            job.request.runs_alone = True  # one of them, or the padding, may have spoilt it for all
            job.answer.set_exception(RunAgain())
        else:
            job.answer.set_exception(came)
        return False

    def _charge(self, job: Job, at_once: int) -> None:
        """What it had of its run, to who pays for it: of parts to each kind that they run on, by what they take.
        `at_once`: the most runs that were under way when it began and when it ended.
        """
        meter, left_ns = job.request.meter or self._single_calls.of(job.request.tenant), job.took_ns
        if job.rest is None:
            meter.ran(kind_of(job.build.build_id), left_ns, at_once)
            return
        held_ns = job.rest.kinds_ns(self._index)
        total_ns = max(1, sum(held_ns.values()))
        *others, last = held_ns
        for kind in others:
            part_ns = job.took_ns * held_ns[kind] // total_ns
            meter.ran(kind, part_ns)
            left_ns -= part_ns
        meter.ran(last, left_ns)

    def _count(self, job: Job, items: int) -> None:
        """A run has ended well that began with a job; 0 items: it has not."""
        if items and job.rest is None:
            kind = kind_of(job.build.build_id)
            self.whole[kind] += 1
            self.rows[kind] += items

    def _answer(self, job: Job, batch: Batch, outputs: dict[str, Any]) -> None:
        """What of a run's outputs is the job's."""
        padding = job.servable.padding
        if batch.shapes is None or padding is None:
            job.answer.set_result(outputs)
            return
        try:
            job.answer.set_result(cropped(outputs, padding, job.request.shapes, batch.shapes))
        except Exception:  # they have not grown as they did at import, have other axes, or are no arrays
            job.note_padded(has_failed=True, is_certain=True)
            job.request.runs_alone = True
            job.answer.set_exception(RunAgain())


def _is_about_inputs(error: BaseException | None) -> bool:
    """Whether how a run ended says something of what went in: not where its processor went, or it took too long."""
    return error is None or isinstance(error, RunRefused) or not isinstance(error, ApplianceError | RunAgain)


def _inputs(job: Job, batch: Batch) -> Tensors:
    padding = job.servable.padding
    if batch.shapes is None or padding is None:
        return job.request.inputs
    return Padded(job.request.inputs, batch.shapes, padding.fill)
