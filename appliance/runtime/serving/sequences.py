"""State that stateful models carry from request to request of one sequence: bounded, expiring, never mixed.

A sequence belongs to an application; its requests run one after another in arrival order (each waits for the one
before).
"""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from appliance.clock import NS_PER_MS, NS_PER_S, Clock
from appliance.domain.errors import DeadlineExceeded, IllegalState, LimitReached
from appliance.runtime.engine.portions import Portions

Key = tuple[str, str, str]
"""(application id, calling tenant, the caller's own name for it)."""


@dataclass(slots=True)
class Sequence:
    """`tensors` feed the model's state inputs, `carry` is the task's own (samples left over, context).

    `lock` orders the requests.
    """

    used_ns: int
    tensors: Mapping[str, Any] = field(default_factory=dict)
    carry: Mapping[str, Any] = field(default_factory=dict)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class Sequences:
    """At most `count_max` sequences, of which no tenant can take all; one that was idle for `idle_s` is forgotten."""

    def __init__(self, clock: Clock, count_max: int, idle_s: float) -> None:
        self._clock = clock
        self._places = Portions(count_max)
        self.idle_ns = int(idle_s * NS_PER_S)
        self._sequences: OrderedDict[Key, Sequence] = OrderedDict()

    def __len__(self) -> int:
        return len(self._sequences)

    def open(self, key: Key, *, start: bool) -> Sequence:
        """The sequence of `key`: new when `start`, else the one that goes on.

        Raises: IllegalState when it goes on but is unknown or was forgotten (going on from zeros would give wrong
        answers in silence); LimitReached when there are too many, or too many of the tenant.
        """
        now_ns = self._clock.now_ns()
        self._expire(now_ns)
        if start:
            if key not in self._sequences and not self._places.take(key[1]):
                raise LimitReached(retry_after_s=self.idle_ns / NS_PER_S)
            self._sequences[key] = Sequence(now_ns)
        sequence = self._sequences.get(key)
        if sequence is None:
            raise IllegalState(
                name=key[2], state="not started or forgotten after its idle time; begin again with sequence_start"
            )
        sequence.used_ns = now_ns
        self._sequences.move_to_end(key)
        return sequence

    def has(self, key: Key) -> bool:
        """Whether there is one to go on with."""
        self._expire(self._clock.now_ns())
        return key in self._sequences

    def close(self, key: Key, sequence: Sequence) -> None:
        """Forget a sequence at its end; one that was started anew under the same key stays."""
        if self._sequences.get(key) is sequence:
            self._forget(key)

    def drop_application(self, application_id: str) -> None:
        """Forget everything of an application, when it is deleted."""
        for key in [k for k in self._sequences if k[0] == application_id]:
            self._forget(key)

    @asynccontextmanager
    async def turn(self, sequence: Sequence, drop_ns: int | None) -> AsyncIterator[None]:
        """The sequence to oneself, after the requests before.

        Raises: DeadlineExceeded when that takes until `drop_ns`.
        """
        start_ns = self._clock.now_ns()
        left_s = None if drop_ns is None else max(0.0, (drop_ns - start_ns) / NS_PER_S)
        try:
            async with asyncio.timeout(left_s):
                await sequence.lock.acquire()
        except TimeoutError:
            raise DeadlineExceeded(waited_ms=(self._clock.now_ns() - start_ns) / NS_PER_MS) from None
        try:
            yield
        finally:
            sequence.lock.release()

    def _forget(self, key: Key) -> None:
        del self._sequences[key]
        self._places.give(key[1])

    def _expire(self, now_ns: int) -> None:
        while self._sequences:
            key, oldest = next(iter(self._sequences.items()))
            if now_ns - oldest.used_ns < self.idle_ns or oldest.lock.locked():
                return
            self._forget(key)
