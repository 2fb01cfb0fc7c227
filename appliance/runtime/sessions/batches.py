"""Planned batches of one pool, as the scheduler has them: a lane of it (`engine.lanes`)."""

from collections.abc import Iterable

from appliance.clock import Clock
from appliance.domain.slots import Lane, Member, PlannedBatch, Slot
from appliance.runtime.engine.lanes import BatchCounts, Begun
from appliance.runtime.serving.queue import Queue


class Batches:
    """The lane of a pool with promises of accuracy. Event-loop thread only."""

    def __init__(self, clock: Clock, queue: Queue, lane: Lane, tenant: str) -> None:
        """`tenant`: whose sessions these are."""
        self._clock = clock
        self._queue = queue
        self._lanes = queue.scheduler.lanes
        self._lane = lane
        self._tenant = tenant

    def plan(self, batches: Iterable[PlannedBatch]) -> None:
        """Replace the batches that are expected."""
        self._queue.plan(self._lane, self._tenant, batches)

    def slot(self, member: Member, *, is_planned: bool) -> Slot:
        """Return what is said of a frame's run."""
        return Slot(self._lane, member, is_planned=is_planned)

    def planned_ns(self, member: Member) -> int | None:
        """Return the planned start of a frame's batch; None: it is in none."""
        batch = self._lanes.batch_of(member)
        return None if batch is None else batch.start_ns

    def begun(self) -> list[Begun]:
        """Return the batches that run, and those that are due."""
        return self._lanes.begun(self._lane)

    def has_come(self, member: Member) -> bool:
        """Return whether a frame waits in its batch."""
        return self._lanes.has_come(member)

    def is_to_begin(self, member: Member) -> bool:
        """Return whether a frame's batch is still to begin."""
        return self._lanes.batch_of(member) is not None

    def joined(self, member: Member) -> frozenset[Member]:
        """Return the frames of a frame's batch that is still to begin."""
        batch = self._lanes.batch_of(member)
        return frozenset((member,)) if batch is None else batch.members

    def beginning(self, until_ns: int) -> int:
        """Return how many batches have yet to begin and are to before a time."""
        return self._lanes.beginning(self._lane, self._clock.now_ns(), until_ns)

    def ended(self, member: Member) -> None:
        """A frame has its answer, or will have none."""
        self._queue.absent(member)

    @property
    def free_ns(self) -> int:
        """When the batches that run or are due are expected to have ended."""
        return self._lanes.free_ns(self._lane)

    @property
    def counts(self) -> BatchCounts:
        """What became of the batches since the start."""
        return self._lanes.counts(self._lane)
