"""Who shares the run of a request whose turn has come: others that wait for the same build, as far as all gain by it.

Nobody waits for a batch to fill, unless a plan has reserved that wait: it is asked when a worker is free. Whose turn it
is was decided before; a batch brings nobody forward but those in it, and each pays for its own rows.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate

from appliance.clock import Clock
from appliance.domain.errors import NoRoomToRun
from appliance.domain.padding import widest
from appliance.domain.request import Request
from appliance.policies.batching.base import BatchingInput, BatchingPolicy, WaitingRequest
from appliance.runtime.memory.runs import RunMemory
from appliance.runtime.profiles.times import RunTimes
from appliance.runtime.serving.job import Job
from appliance.runtime.serving.queue import Queue

LOOKED_AT = 32
"""Of those that wait for the same build so many are weighed, the first included: it is asked before every run, on the
event loop. A longer line might choose a larger batch that gains a little more."""


@dataclass(slots=True, eq=False)
class Batch:
    """One run of a worker: a job, or several whose rows it computes together. `counts`: rows of each."""

    jobs: list[Job]
    counts: list[int]
    run_bytes: int
    """Memory to expect for it; 0 where that is not worth counting."""
    deadline_ns: int | None
    """When nobody wants it any more; None = never."""
    shapes: Mapping[str, tuple[int, ...]] | None = None
    """Of its inputs, but for their number of rows, where some are padded; None: they are as they were sent."""


class Batching:
    """Fills runs. Event-loop thread only."""

    def __init__(self, clock: Clock, queue: Queue, policy: BatchingPolicy, memory: RunMemory, workers: int) -> None:
        self._clock = clock
        self._queue = queue
        self._policy = policy
        self._memory = memory
        self._workers = workers
        self.running = 0
        """Runs under way."""

    def begin(self, first: Job) -> Batch:
        """The run that a taken job has now: with others that are taken out of the queue for it, or alone.

        Raises: NoRoomToRun where it has no room even alone.
        """
        batch = self._shared(first) if first.servable.together_max > 1 else None
        if batch is None:
            steps = _steps(first)
            run_bytes = first.run_bytes if steps is None else first.servable.run_bytes_of(steps)
            if run_bytes:
                self._memory.check(first.servable.build_id, first.servable.name, run_bytes)
            batch = Batch([first], [first.items], run_bytes, first.request.drop_ns, steps)
        return self._begun(batch)

    def begin_alone(self, job: Job) -> Batch:
        """The run of a staged job, which has begun and nobody shares."""
        return self._begun(Batch([job], [job.items], job.run_bytes, job.request.drop_ns))

    def expected_ns(self, request: Request, times: RunTimes, items: int, at_once_max: int | None = None) -> int:
        """What a run by itself that began now would take. `at_once_max`: runs of its build that are under way at once
        at most.
        """
        running = min(self.running + 1, at_once_max or self._workers)
        now_ns, drop_ns = self._clock.now_ns(), request.drop_ns
        if drop_ns is None:
            return times.expected_ns(items, running, now_ns)
        return times.in_time_ns(items, running, now_ns, drop_ns - now_ns)

    def _begun(self, batch: Batch) -> Batch:
        self._memory.begin(batch.run_bytes)
        self.running += 1
        batch.jobs[0].running = self.running
        return batch

    def end(self, batch: Batch) -> None:
        """It is over."""
        self.running -= 1
        self._memory.end(batch.run_bytes)

    def _shared(self, first: Job) -> Batch | None:
        """A run with others; None: there are none, they would not gain, or the memory for it is not there."""
        servable = first.servable
        mates = self._queue.mates(first, LOOKED_AT - 1)
        times, hoped_ns = first.times, first.hoped_ns if mates else None
        if hoped_ns is None:
            return None
        at_once_max = first.at_once_max(first.group)
        now_ns, running = self._clock.now_ns(), min(self.running + 1, at_once_max or self._workers)
        planned = first.request.batch
        mates = [job for job in mates if job.request.batch in (0, planned)]
        together = [first, *(job for job in mates if planned and job.request.batch == planned)]
        line = together if len(together) > 1 else [first, *mates]
        counts = [job.items for job in line]
        if servable.padding is None:
            requests = [WaitingRequest(items, job.left_ns(now_ns)) for items, job in zip(counts, line, strict=True)]
        else:
            sizes = [sum(tensor.size for tensor in job.request.inputs.values()) // (job.items or 1) for job in line]
            times = line[sizes.index(max(sizes))].times or times
            hoped_ns = hoped_ns if times is None else times.hoped_ns
            requests = [
                WaitingRequest(items, job.left_ns(now_ns), None if size == max(sizes) else job.expected_ns)
                for items, size, job in zip(counts, sizes, line, strict=True)
            ]

        def run_ns(items: int) -> int:
            return hoped_ns(items, running, now_ns)

        busy = self._queue.under_way.rests_ns(but=first)
        free_ns = busy + [0] * (self._workers - 1 - len(busy))
        if at_once_max is not None:  # whoever waits does not have the other workers
            free_ns = sorted(free_ns)[: at_once_max - 1]
        items_max = servable.together_max
        most_ns = self._queue.shared_ns_max(first)
        if most_ns is not None:
            items_max = max((n for n in accumulate(counts) if n <= items_max and run_ns(n) <= most_ns), default=1)
        problem = BatchingInput(requests, items_max, run_ns, free_ns)
        size = self._size(problem, first, is_weighed=len(together) > 1)
        if size == 1:
            return None
        jobs, counts = line[:size], counts[:size]
        items = sum(counts)
        shapes = first.stepped if servable.goes_in_steps else widest([job.request.shapes for job in jobs])
        shapes = {name: (items, *shape[1:]) for name, shape in shapes.items()}
        run_bytes = servable.run_bytes_of(shapes)
        try:
            self._memory.check(servable.build_id, servable.name, run_bytes)
        except NoRoomToRun:
            return None
        first.times, first.holds_ns = times, run_ns(items)
        for job, count in zip(jobs, counts, strict=True):
            job.share = count / items
            if job is not first:
                job.joins(first)
                self._queue.join(job, int(run_ns(items) * job.share * job.worth))
        drops = [job.request.drop_ns for job in jobs]
        deadline_ns = None if None in drops else max(drop for drop in drops if drop is not None)
        is_padded = any(job.request.shapes[name][1:] != shape[1:] for job in jobs for name, shape in shapes.items())
        return Batch(jobs, counts, run_bytes, deadline_ns, shapes if is_padded else None)

    def _size(self, problem: BatchingInput, first: Job, *, is_weighed: bool) -> int:
        """Of the requests so many as share the run. `is_weighed`: a planner of sessions has them run together."""
        if is_weighed:
            counts = accumulate(request.items for request in problem.requests)
            return max((n for n, items in enumerate(counts, 1) if items <= problem.items_max), default=1)
        wait = self._queue.waits.of(first.build.build_id)
        if wait is not None:  # a planner of pipelines has weighed it
            return _planned(problem, wait.items)
        return self._policy.together(problem)


def _planned(problem: BatchingInput, items_max: int) -> int:
    """Of the requests so many as a plan wants together, as long as none of them is late for it."""
    size = items = 0
    least_ns: int | None = None
    for request in problem.requests:
        items += request.items
        if request.end_by_ns is not None:
            least_ns = request.end_by_ns if least_ns is None else min(least_ns, request.end_by_ns)
        if items > min(problem.items_max, items_max) or (least_ns is not None and problem.run_ns(items) > least_ns):
            break
        size += 1
    return max(1, size)


def _steps(job: Job) -> Mapping[str, tuple[int, ...]] | None:
    """What the inputs of a job that runs by itself are padded to; None: they stay as they are."""
    if not job.servable.goes_in_steps or job.servable.padding is None:
        return None
    stepped = job.stepped
    return None if stepped == job.request.shapes else stepped
