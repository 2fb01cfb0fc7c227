"""Where frames with promises of latency wait for their planned worker: it runs what waits, and takes who came meanwhile
when that is over (Jellyfish §III-B, §IV-A). Eq. 5 counts on it: one run of waiting, one of its own.

The engine's workers are free for everybody: a frame whose planned worker is busy would begin on another one, alone,
and the batches that the plan's rates need would never be formed. Nobody waits for a batch to fill. How many go together
is weighed when a run begins, as in the engine's queue, up to the batch that is planned (JF-14): other promises count on
a run to be no longer. Differs from the paper: where cameras come at one instant a run is larger if
frames would be late in runs of that size that are not in larger ones.
"""

import asyncio
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import heappop, heappush, nsmallest

from appliance.clock import NS_PER_S, Clock
from appliance.policies.batching.base import BatchingInput, BatchingPolicy, WaitingRequest
from appliance.policies.batching.by_profile import ByProfile, late_of
from appliance.runtime.sessions.batches import Member, next_number

LOOKED_AT = 32
"""Of those that wait for a worker so many are weighed."""


@dataclass(frozen=True, slots=True)
class PlannedWorker:
    """What one worker of a plan does."""

    worker: int
    runs_ns: Mapping[int, int]
    """By batch."""
    batch: int
    """That the plan counts on."""
    sessions: frozenset[str]


class _Waiting:
    """A frame that waits for its worker."""

    def __init__(self, member: Member, deadline_ns: int) -> None:
        self.member = member
        self.deadline_ns = deadline_ns
        self.number = 0
        """Of the batch that it goes with; 0: it goes alone."""
        self.goes = asyncio.Event()


class _WorkerQueue:
    """One planned worker's."""

    def __init__(self, clock: Clock, policy: BatchingPolicy) -> None:
        self._clock = clock
        self._policy = policy
        self._waiting: list[tuple[int, int, _Waiting]] = []
        """By deadline, then in the order in which they came."""
        self._sequence = 0
        self.running: set[Member] = set()
        self.runs_ns: Mapping[int, int] = {1: 0}
        self.batch = 1

    async def wait(self, member: Member, deadline_ns: int) -> int:
        """As of `WorkerQueues`."""
        if not self.running and not self._waiting:
            self.running.add(member)
            return 0
        waiting = _Waiting(member, deadline_ns)
        self._sequence += 1
        heappush(self._waiting, (deadline_ns, self._sequence, waiting))
        try:
            # Whoever cannot be in time any more is answered so by the engine: at once.
            async with asyncio.timeout_at((deadline_ns - min(self.runs_ns.values())) / NS_PER_S):
                await waiting.goes.wait()
        except TimeoutError:
            self._forget(waiting)
            return 0
        except asyncio.CancelledError:
            self._forget(waiting)
            self.ended(member)
            raise
        return waiting.number

    def ended(self, member: Member) -> None:
        """It runs no more."""
        self.running.discard(member)
        if not self.running:
            self._begin()

    def _begin(self) -> None:
        """The next run: those whose deadlines come first."""
        if not self._waiting:
            return
        now_ns = self._clock.now_ns()
        line = [WaitingRequest(1, deadline_ns - now_ns) for deadline_ns, _, _ in nsmallest(LOOKED_AT, self._waiting)]
        size = self._size(line)
        together = [heappop(self._waiting)[2] for _ in range(size)]
        number = next_number() if len(together) > 1 else 0
        for one in together:
            one.number = number
            self.running.add(one.member)
            # With the next turn of the event loop, so that all of them are put before a worker takes one of them alone.
            asyncio.get_running_loop().call_soon(one.goes.set)

    def _size(self, line: Sequence[WaitingRequest]) -> int:
        """How many of those that wait go together: of the planned batch at most, unless more of them are in time so."""
        planned = BatchingInput(line, min(self.batch, max(self.runs_ns)), self._takes_ns)
        size = self._policy.together(planned)
        if len(line) <= planned.items_max or not late_of(planned, size):
            return size
        any_size = replace(planned, items_max=max(self.runs_ns))
        larger = self._policy.together(any_size)
        return larger if late_of(any_size, larger) < late_of(planned, size) else size

    def _takes_ns(self, count: int) -> int:
        """What a run of so many takes: as the next larger batch that was measured."""
        return self.runs_ns[min((batch for batch in self.runs_ns if batch >= count), default=max(self.runs_ns))]

    def _forget(self, waiting: _Waiting) -> None:
        self._waiting = sorted(one for one in self._waiting if one[2] is not waiting)


class WorkerQueues:
    """Those of all pools' plans. Event-loop thread only."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._policy = ByProfile()
        self._queues: dict[tuple[Hashable, int], _WorkerQueue] = {}
        """By pool and worker."""
        self._of: dict[str, tuple[Hashable, _WorkerQueue]] = {}
        """By session, with the pool that it was planned in."""
        self._came: dict[Member, _WorkerQueue] = {}
        """Of frames that wait, or run, whatever has become of their plan."""

    def plan(self, pool: Hashable, workers: Iterable[PlannedWorker]) -> None:
        """What a pool's workers do from now on. Frames that wait go on waiting where they are."""
        before = {key: queue for key, queue in self._queues.items() if key[0] == pool}
        self._queues = {key: queue for key, queue in self._queues.items() if key not in before}
        self._of = {session: found for session, found in self._of.items() if found[0] != pool}
        for one in workers:
            queue = before.get((pool, one.worker)) or _WorkerQueue(self._clock, self._policy)
            queue.runs_ns, queue.batch = one.runs_ns, one.batch
            self._queues[pool, one.worker] = queue
            self._of.update(dict.fromkeys(one.sessions, (pool, queue)))

    async def wait(self, member: Member, deadline_ns: int) -> int:
        """Until the member's worker takes it, or it cannot be in time; returns the number of its batch, 0 where it runs
        alone."""
        found = self._of.get(member[0])
        if found is None:
            return 0
        queue = self._came[member] = found[1]
        return await queue.wait(member, deadline_ns)

    def ended(self, member: Member) -> None:
        """Its run is over, or will not be; again: nothing."""
        queue = self._came.pop(member, None)
        if queue is not None:
            queue.ended(member)
