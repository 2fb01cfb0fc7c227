"""Processes of the box's own that plan beside it, as memory counts them: what each takes is nobody's.

Planning goes on without them, in threads. So they take a part of the budget at most, nothing leaves for one that is
expected, guaranteed or planned with, and they are the first to end where memory is short.
"""

import errno
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import AsyncExitStack, asynccontextmanager

from appliance.clock import NS_PER_S, Clock
from appliance.domain.errors import OutOfMemory, ShuttingDown
from appliance.domain.overhead import PLANNERS
from appliance.runtime.memory.manager import MemoryManager
from appliance.runtime.memory.room import Process
from appliance.runtime.ports import Occupied

SHARE = 0.25
"""Of the budget, what they take together at most."""
REST_NS = 60 * NS_PER_S
"""One that found no room, or ended for others, does not begin for so long."""


class OwnProcesses:
    """Port `IdleProcesses`: every one is idle that is there. Event-loop thread only."""

    def __init__(self, clock: Clock, memory: MemoryManager) -> None:
        """Names itself to `memory` as what ends where that is short (`MemoryManager.when_short`). `assemble` makes it
        before any other sort of processes is named, so that planners end first.
        """
        self._clock = clock
        self._memory = memory
        self._there: dict[str, OwnProcess] = {}
        self._beginning: dict[str, OwnProcess] = {}
        memory.when_short(self)

    def process(self, name: str, count_bytes: int) -> "OwnProcess":
        """Return a process that may begin and end any number of times, and takes `count_bytes` while it runs."""
        return OwnProcess(self, Process((PLANNERS, name), count_bytes), name)

    def idle_bytes(self, wanted: Collection[str]) -> int:
        return sum(one.bytes for one in self._there.values())

    def end_idle(self, wanted: Collection[str]) -> bool:
        if not self._there:
            return False
        one = min(self._there.values(), key=lambda one: (one.is_busy(), one.name))
        one.rests_until_ns = self._clock.now_ns() + REST_NS
        one.end_now()
        self.ended(one)
        return True

    def occupied(self, wanted: Collection[str]) -> Collection[Occupied]:
        return ()

    @asynccontextmanager
    async def beginning(self, one: "OwnProcess") -> AsyncIterator[None]:
        """As `OwnProcess.beginning`."""
        now_ns = self._clock.now_ns()
        taken = sum(other.bytes for other in {**self._there, **self._beginning}.values() if other is not one)
        if now_ns < one.rests_until_ns or taken + one.bytes > SHARE * self._memory.budget_bytes:
            raise _no_room()
        self._beginning[one.name] = one
        try:
            async with AsyncExitStack() as stack:
                try:
                    await stack.enter_async_context(self._memory.room_to_begin(one.process, is_needed=False))
                except (OutOfMemory, ShuttingDown):
                    one.rests_until_ns = now_ns + REST_NS
                    raise _no_room() from None
                yield
                self._there[one.name] = one
                self._count(one)
        finally:
            del self._beginning[one.name]

    def ended(self, one: "OwnProcess") -> None:
        """As `OwnProcess.ended`."""
        if self._there.get(one.name) is one:
            del self._there[one.name]
            self._count()

    def _count(self, *come: "OwnProcess") -> None:
        count_bytes = sum(one.bytes for one in self._there.values())
        self._memory.set_overhead(count_bytes, of=PLANNERS, there={one.process.name for one in come})


class OwnProcess:
    """A process that plans, as memory counts it."""

    def __init__(self, all_: OwnProcesses, process: Process, name: str) -> None:
        self._all = all_
        self.process = process
        self.name = name
        self.rests_until_ns = 0
        """The process does not begin before this moment of the clock."""
        self.is_busy: Callable[[], bool] = lambda: False
        """Whether the process computes; processes that compute are the last to end."""
        self.end_now: Callable[[], None] = lambda: None
        """End the process at once, because its memory is needed."""

    @property
    def bytes(self) -> int:
        """Bytes that the process takes while it runs."""
        return self.process.bytes

    @asynccontextmanager
    async def beginning(self) -> AsyncIterator[None]:
        """Within it the process begins; it counts from its end on, unless that fails.

        Raises: OSError (`ENOMEM`) where there is no room for it.
        """
        async with self._all.beginning(self):
            yield

    def ended(self) -> None:
        """Say that the process has ended."""
        self._all.ended(self)


def _no_room() -> OSError:
    return OSError(errno.ENOMEM, "no room in memory for a process that plans")
