"""The decision log: every decision is stored, by one writer in the background, in batches.

On the inference path a decision costs an append. When decisions come faster than they can be written, the newest are
dropped and counted; the loop never waits for the disk. A decision with a `key` may come in floods (a request refused,
dropped or left without memory): the first is stored, and then one a minute of the same kind and key, whose `times`
counts those since the one before, itself included. So a tenant that is refused a thousand times a second makes one row
a minute for each application and cause. The applications of one tenant make at most `TENANT_ROWS_MAX` such rows a
minute, and beyond it one of each kind, which names the first of the rest and counts all: however many they are, they do
not push other tenants' decisions out. Of those without a key that say whose they are, a tenant has `OWN_ROWS_MAX` a
minute one by one, and beyond it one of each kind, which counts them.
What is counted is never lost: it is stored with the next decision of its key, with any other one after its minute, or
at the end. Such a row has the problems of all decisions in it, `FOLDED_MAX` different ones at most, so that each can be
decided again.
"""

import asyncio
import datetime
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from appliance.clock import NS_PER_S, Clock
from appliance.domain.decisions import DecisionRecord
from appliance.log import get as get_log
from appliance.runtime.decisions.document import record_of

BATCH_MAX = 64
"""Decisions in one transaction: some milliseconds of a thread, so that inference does not wait long for the
interpreter.
"""
GATHER_S = 1.0
"""How long the first decision of a batch waits for others: one synced commit a second, while they come slowly."""
BREATH_S = 0.1
"""Pause between batches while more than a batch waits."""
RETRY_S = 10.0
"""Pause after a failed write (a full disk is not free again at once)."""
HOLD_S = 60.0
"""Of decisions with one key, one in so long is stored."""
TENANT_ROWS_MAX = 32
"""Of decisions with a key and the same `asker` (a tenant), so many in `HOLD_S` are stored one by one: the 20 000 rows
that are kept last for ten hours of a flood.
"""
OWN_ROWS_MAX = 240
"""Of decisions without a key and the same `asker`, so many in `HOLD_S` are stored one by one: plans of sessions and
pipelines that change twice a second, and who is let in meanwhile.
"""
FOLDED_MAX = 64
"""Most different problems in one row."""
KEYS_MAX = 1000
"""Keys that are remembered; then those whose time is over are forgotten."""
log = get_log("decisions")


@dataclass(frozen=True, slots=True)
class Decision:
    """`facts` are as `document` wants them; `times`: how many decisions this one stands for."""

    at_ns: int
    kind: str
    facts: Mapping[str, object]
    times: int = 1
    on_stored: Callable[[int], None] | None = None
    """Told its id."""
    folded: Sequence[tuple[Mapping[str, object], int]] = ()
    """Where it stands for several: their problems, and how many had each."""


@dataclass(slots=True)
class _Held:
    """Decisions of one key since one of them was stored; `latest` is of the last of them."""

    at_ns: int
    kind: str
    count: int = 0
    latest: tuple[int, Mapping[str, object]] | None = None
    folded: list[tuple[Mapping[str, object], int]] = field(default_factory=list)

    def add(self, at_ns: int, facts: Mapping[str, object]) -> None:
        self.count += 1
        self.latest = at_ns, facts
        problem = facts["problem"]
        if not isinstance(problem, Mapping):  # a policy's own input: it is counted
            return
        if self.folded and self.folded[-1][0] == problem:
            self.folded[-1] = problem, self.folded[-1][1] + 1
        elif len(self.folded) < FOLDED_MAX:
            self.folded.append((problem, 1))


class DecisionStore(Protocol):
    """Where decisions are kept; the store of the box."""

    async def add(self, records: Sequence[DecisionRecord], rows_max: int) -> int:
        """Append in order, with ids that follow one another, and remove the oldest beyond `rows_max`; the first id.

        Raises: StorageFull ...
        """
        ...


class DecisionLog:
    """Port `DecisionSink`, and behind it the writer.

    Event-loop thread only; `run` is its background task, `close` its end.
    """

    def __init__(self, clock: Clock, *, queue_max: int, rows_max: int) -> None:
        self._clock = clock
        self._queue_max = queue_max
        self._rows_max = rows_max
        self._queue: deque[Decision] = deque()
        self._held: dict[object, _Held] = {}
        """Kind and key → the decisions since one of them was stored."""
        self._stored: dict[object, tuple[int, int]] = {}
        """Tenant, and whether without a key → when its present minute began, and how many of its decisions were stored
        in it."""
        self._arrived = asyncio.Event()
        self._writing: asyncio.Task[bool] | None = None
        self.written = self.dropped = 0
        self.on_recorded: Callable[[str, Mapping[str, object]], Callable[[int], None] | None] = _nobody
        """Asked at every decision that will be stored whether somebody wants its id, who is told."""

    def record(self, kind: str, decision: Mapping[str, object]) -> None:
        """Remember a decision until it is written; `document` says what it holds."""
        now_ns = self._clock.now_ns()
        key = self._key(kind, decision.get("key"), decision.get("asker"), now_ns)
        if key is None:
            self._append(Decision(now_ns, kind, decision))
            return
        held = self._held.get(key)
        if held is not None and self._is_held(key, now_ns):
            held.add(now_ns, decision)
            return
        if held is None and len(self._held) >= KEYS_MAX:
            self._release(now_ns)
        self._held[key] = _Held(now_ns, kind)
        if held is None or not held.count:
            self._append(Decision(now_ns, kind, decision))
        else:
            held.add(now_ns, decision)
            self._append(Decision(now_ns, kind, decision, held.count, folded=held.folded))

    def _append(self, decision: Decision) -> None:
        if len(self._queue) >= self._queue_max:
            self.dropped += 1
            return
        self._queue.append(replace(decision, on_stored=self.on_recorded(decision.kind, decision.facts)))
        self._arrived.set()

    def _release(self, now_ns: int | None) -> None:
        """Store the counted decisions of keys whose minute is over, and forget these keys; None: of all keys."""
        for key in [key for key in self._held if now_ns is None or not self._is_held(key, now_ns)]:
            held = self._held.pop(key)
            if held.latest is not None:
                at_ns, facts = held.latest
                self._append(Decision(at_ns, held.kind, facts, held.count, folded=held.folded))

    def _key(self, kind: str, key: object, tenant: object, now_ns: int) -> object | None:
        """Return under which key a decision made now is counted; None: it is stored by itself."""
        own, is_own = (kind, key), key is None
        if is_own and tenant is None:
            return None
        if not is_own and (tenant is None or self._is_held(own, now_ns)):
            return own
        began_ns, stored = self._stored.get((tenant, is_own), (now_ns, 0))
        if now_ns - began_ns >= HOLD_S * NS_PER_S:
            began_ns, stored = now_ns, 0
        if stored >= (OWN_ROWS_MAX if is_own else TENANT_ROWS_MAX):
            return kind, None, tenant
        self._stored[tenant, is_own] = (began_ns, stored + 1)
        return None if is_own else own

    def _is_held(self, key: object, now_ns: int) -> bool:
        held = self._held.get(key)
        return held is not None and now_ns - held.at_ns < HOLD_S * NS_PER_S

    @property
    def waiting(self) -> int:
        """Decisions not written yet, those of the batch under way aside."""
        return len(self._queue)

    async def run(self, store: DecisionStore) -> None:
        """Write until cancelled; a batch under way is finished by `close`."""
        while True:
            await self._arrived.wait()
            await self._pause(GATHER_S if len(self._queue) < BATCH_MAX else BREATH_S)
            self._release(self._clock.now_ns())
            self._writing = asyncio.create_task(self._write(self._batch(), store))
            if not await asyncio.shield(self._writing):
                await self._pause(RETRY_S)

    async def close(self, store: DecisionStore) -> None:
        """Write what is left, once `run` has been cancelled."""
        if self._writing is not None:
            await self._writing
        self._release(None)
        while self._queue and await self._write(self._batch(), store):
            pass

    def _batch(self) -> list[Decision]:
        batch = [self._queue.popleft() for _ in range(min(BATCH_MAX, len(self._queue)))]
        if not self._queue:
            self._arrived.clear()
        return batch

    async def _write(self, batch: Sequence[Decision], store: DecisionStore) -> bool:
        """Whether it was written.

        What cannot be is lost and counted: the log must not stop the box, nor grow in memory.
        """
        offset = self._clock.wall_now() - datetime.timedelta(microseconds=self._clock.now_ns() / 1000)
        try:
            records = await asyncio.to_thread(_records, batch, offset)
            first_id = await store.add(records, self._rows_max)
        except Exception as error:
            self.dropped += len(batch)
            log.warning("decisions lost", count=len(batch), reason=repr(error))
            return False
        self.written += len(batch)
        for id, decision in enumerate(batch, first_id):
            if decision.on_stored is not None:
                decision.on_stored(id)
        return True

    async def _pause(self, seconds: float) -> None:
        await self._clock.sleep_until_ns(self._clock.now_ns() + int(seconds * NS_PER_S))


def _nobody(kind: str, facts: Mapping[str, object]) -> None:
    """Nobody wants the id of a decision."""


def _records(batch: Sequence[Decision], offset: datetime.datetime) -> list[DecisionRecord]:
    return [_record(decision, offset) for decision in batch]


def _record(decision: Decision, offset: datetime.datetime) -> DecisionRecord:
    """`offset` is the civil time at which the monotonic clock stood at zero."""
    at = offset + datetime.timedelta(microseconds=decision.at_ns / 1000)
    return record_of(at, decision.kind, decision.facts, decision.times, decision.folded)
