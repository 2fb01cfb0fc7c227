"""The decision log: every decision of the residency loop is stored, by one writer in the background, in batches.

On the inference path a decision costs an append. When decisions come faster than they can be written, the newest are dropped and counted; the loop
never waits for the disk.
"""

import asyncio
import datetime
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Protocol

from appliance.clock import NS_PER_S, Clock
from appliance.domain.decisions import DecisionRecord
from appliance.log import get as get_log
from appliance.policies.residency.base import ResidencyPlan, ResidencyProblem
from appliance.runtime.decisions.document import residency_record
from appliance.runtime.decisions.ring import Decision, DecisionRing

BATCH_MAX = 64
"""Decisions in one transaction: some milliseconds of a thread, so that inference does not wait long for the interpreter."""
GATHER_S = 1.0
"""How long the first decision of a batch waits for others: one synced commit a second, while they come slowly."""
BREATH_S = 0.1
"""Pause between batches while more than a batch waits."""
RETRY_S = 10.0
"""Pause after a failed write (a full disk is not free again at once)."""
KIND = "residency"
"""What is stored; other kinds stay in the ring."""
log = get_log("decisions")


class DecisionStore(Protocol):
    """Where decisions are kept; the store of the box."""

    async def add(self, records: Sequence[DecisionRecord], rows_max: int) -> None:
        """Append in order and remove the oldest beyond `rows_max`. Raises: StorageFull ..."""
        ...


class DecisionLog(DecisionRing):
    """The ring, and behind it the writer. Event-loop thread only; `run` is its background task, `close` its end."""

    def __init__(self, clock: Clock, *, queue_max: int, rows_max: int) -> None:
        super().__init__(clock)
        self._wall_clock = clock
        self._queue_max = queue_max
        self._rows_max = rows_max
        self._queue: deque[Decision] = deque()
        self._arrived = asyncio.Event()
        self._writing: asyncio.Task[bool] | None = None
        self.written = self.dropped = 0

    def record(self, kind: str, decision: Mapping[str, object]) -> None:
        """Remember a decision; of kind `residency` it holds `problem`, `plan`, `policy` and perhaps `sharing`, and is stored."""
        super().record(kind, decision)
        if kind != KIND:
            return
        if len(self._queue) >= self._queue_max:
            self.dropped += 1
            return
        self._queue.append(self._ring[-1])
        self._arrived.set()

    @property
    def waiting(self) -> int:
        """Decisions not written yet, those of the batch under way aside."""
        return len(self._queue)

    async def run(self, store: DecisionStore) -> None:
        """Write until cancelled; a batch under way is finished by `close`."""
        while True:
            await self._arrived.wait()
            await self._pause(GATHER_S if len(self._queue) < BATCH_MAX else BREATH_S)
            self._writing = asyncio.create_task(self._write(self._batch(), store))
            if not await asyncio.shield(self._writing):
                await self._pause(RETRY_S)

    async def close(self, store: DecisionStore) -> None:
        """Write what is left, once `run` has been cancelled."""
        if self._writing is not None:
            await self._writing
        while self._queue and await self._write(self._batch(), store):
            pass

    def _batch(self) -> list[Decision]:
        batch = [self._queue.popleft() for _ in range(min(BATCH_MAX, len(self._queue)))]
        if not self._queue:
            self._arrived.clear()
        return batch

    async def _write(self, batch: Sequence[Decision], store: DecisionStore) -> bool:
        """Whether it was written. What cannot be is lost and counted: the log must not stop the box, nor grow in memory."""
        offset = self._wall_clock.wall_now() - datetime.timedelta(microseconds=self._wall_clock.now_ns() / 1000)
        try:
            records = await asyncio.to_thread(_records, batch, offset)
            await store.add(records, self._rows_max)
        except Exception as error:
            self.dropped += len(batch)
            log.warning("decisions lost", count=len(batch), reason=repr(error))
            return False
        self.written += len(batch)
        return True

    async def _pause(self, seconds: float) -> None:
        await self._wall_clock.sleep_until_ns(self._wall_clock.now_ns() + int(seconds * NS_PER_S))


def _records(batch: Sequence[Decision], offset: datetime.datetime) -> list[DecisionRecord]:
    return [_record(decision, offset) for decision in batch]


def _record(decision: Decision, offset: datetime.datetime) -> DecisionRecord:
    """`offset` is the civil time at which the monotonic clock stood at zero."""
    facts = decision.decision
    problem, plan, policy = facts["problem"], facts["plan"], facts["policy"]
    assert isinstance(problem, ResidencyProblem)
    assert isinstance(plan, ResidencyPlan)
    at = offset + datetime.timedelta(microseconds=decision.at_ns / 1000)
    sharing = facts.get("sharing", {})
    assert isinstance(sharing, Mapping)
    return residency_record(at, problem, plan, str(policy), sharing)
