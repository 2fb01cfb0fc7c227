"""Requests that are ready to run and wait for a worker: bounded per application and in all, most urgent first.

Only the event-loop thread touches a queue. Late work is dropped here, before it costs a processor anything (X-03).
"""

import asyncio
import heapq
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from appliance.clock import NS_PER_MS, Clock
from appliance.domain.errors import DeadlineExceeded, QueueFull, ShuttingDown
from appliance.domain.request import Request
from appliance.domain.states import REQUEST_MOVES, RequestState, move
from appliance.runtime.catalogue import Servable
from appliance.runtime.memory.build import LoadedBuild

_FOREVER = 1 << 62


@dataclass(slots=True, eq=False)
class Job:
    """A request with its pinned build and the future that its caller awaits."""

    request: Request
    servable: Servable
    build: LoadedBuild
    answer: asyncio.Future[dict[str, Any]]
    state: RequestState = RequestState.ADMITTED
    expected_ns: int | None = None
    """Run time to expect for this request's batch; None until the variant is profiled."""
    run_bytes: int = 0
    """Memory to expect for its run; 0 where that is not worth counting."""
    is_abandoned: bool = False
    """The caller went away during the run: the worker releases the build after it."""
    started_ns: int = 0
    finished_ns: int = 0

    def to(self, state: RequestState) -> None:
        """Move along the table of request states."""
        self.state = move(REQUEST_MOVES, self.state, state)


def too_late(request: Request, expected_ns: int | None, now_ns: int) -> DeadlineExceeded:
    """The refusal of a request that a run of `expected_ns` would end too late."""
    return DeadlineExceeded(
        waited_ms=(now_ns - request.arrival_ns) / NS_PER_MS,
        expected_ms=None if expected_ns is None else expected_ns / NS_PER_MS,
        decoded_ms=request.decoded_ns / NS_PER_MS,
    )


class Queue:
    """A priority queue: higher priority first, then the earlier deadline, then the earlier arrival."""

    def __init__(self, clock: Clock, len_max: int, total_max: int) -> None:
        self._clock = clock
        self._len_max = len_max
        self._total_max = total_max
        self._heap: list[tuple[int, int, int, Job]] = []
        self._waiting: Counter[str] = Counter()
        self._idle: deque[Callable[[Job], None]] = deque()
        self._sequence = 0

    def __len__(self) -> int:
        return len(self._heap)

    def check_room(self, application_id: str) -> None:
        """Raises: QueueFull. Asked at admission, so that an overload costs no load and no decoding."""
        if self._waiting[application_id] >= self._len_max or len(self._heap) >= self._total_max:
            raise QueueFull(application_id=application_id, queue_len_max=self._len_max)

    def put(self, job: Job) -> None:
        """Add a job; an idle worker begins at once. Raises: QueueFull."""
        request = job.request
        self.check_room(request.application_id)
        job.to(RequestState.QUEUED)
        self._sequence += 1
        deadline = _FOREVER if request.deadline_ns is None else request.deadline_ns
        heapq.heappush(self._heap, (-request.priority, deadline, self._sequence, job))
        self._waiting[request.application_id] += 1
        if self._idle:
            self.offer(self._idle.popleft())

    def offer(self, begin: Callable[[Job], None]) -> None:
        """A worker is free: it begins with the most urgent job, now or when one comes."""
        job = self.take()
        if job is None:
            self._idle.append(begin)
        else:
            begin(job)

    def withdraw(self, begin: Callable[[Job], None]) -> None:
        """The worker is no longer there."""
        if begin in self._idle:
            self._idle.remove(begin)

    def take(self) -> Job | None:
        """The most urgent job that can still be in time and whose caller still waits; None when there is none."""
        while self._heap:
            job = heapq.heappop(self._heap)[3]
            self._waiting[job.request.application_id] -= 1
            if job.answer.done():  # the caller went away
                job.to(RequestState.FAILED)
            elif self.is_late(job):
                job.to(RequestState.EXPIRED)
                job.answer.set_exception(too_late(job.request, job.expected_ns, self._clock.now_ns()))
            else:
                return job
        return None

    def refuse_all(self) -> None:
        """Answer whatever waits that the box is shutting down."""
        for *_, job in self._heap:
            job.to(RequestState.FAILED)
            if not job.answer.done():
                job.answer.set_exception(ShuttingDown())
        self._heap.clear()
        self._waiting.clear()

    def lengths(self) -> dict[str, int]:
        """Waiting requests by application."""
        return {name: count for name, count in sorted(self._waiting.items()) if count}

    def is_late(self, job: Job) -> bool:
        """Whether a run that began now would end after the deadline."""
        deadline_ns = job.request.deadline_ns
        if deadline_ns is None:
            return False
        return self._clock.now_ns() + (job.expected_ns or 0) > deadline_ns
