"""Planner processes as memory counts them: their bytes are charged to no tenant.

Planning goes on without them, in threads. Therefore they take at most a part of the budget, begin in free memory only,
and are the first processes to end where memory is short: before a build leaves for a request.
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
"""Share of the budget that planners may take together."""
REST_NS = 60 * NS_PER_S
"""Nanoseconds for which a planner does not begin again after it found no room, or ended for its memory."""


class PlannerProcesses:
    """Port `IdleProcesses` for planners: every planner that runs counts as idle. Event-loop thread only."""

    def __init__(self, clock: Clock, memory: MemoryManager) -> None:
        """Register with `memory` (`MemoryManager.when_short`).

        `assemble` does this before any other sort of processes registers, so planners end first.
        """
        self._clock = clock
        self._memory = memory
        self._there: dict[str, CountedPlanner] = {}
        self._beginning: dict[str, CountedPlanner] = {}
        memory.when_short(self)

    def process(self, name: str, count_bytes: int) -> "CountedPlanner":
        """Return a process that may begin and end any number of times, and takes `count_bytes` while it runs."""
        return CountedPlanner(self, Process((PLANNERS, name), count_bytes), name)

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
    async def beginning(self, one: "CountedPlanner") -> AsyncIterator[None]:
        """Make room for a process that begins within this context; see `CountedPlanner.beginning`."""
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

    def ended(self, one: "CountedPlanner") -> None:
        """Count the process no more; see `CountedPlanner.ended`."""
        if self._there.get(one.name) is one:
            del self._there[one.name]
            self._count()

    def _count(self, *come: "CountedPlanner") -> None:
        count_bytes = sum(one.bytes for one in self._there.values())
        self._memory.set_overhead(count_bytes, of=PLANNERS, there={one.process.name for one in come})


class CountedPlanner:
    """Process that plans, as memory counts it."""

    def __init__(self, all_: PlannerProcesses, process: Process, name: str) -> None:
        self._all = all_
        self.process = process
        self.name = name
        self.rests_until_ns = 0
        """Moment of the clock in nanoseconds before which the process does not begin again."""
        self.is_busy: Callable[[], bool] = lambda: False
        """Return whether the process computes; processes that compute are the last to end."""
        self.end_now: Callable[[], None] = lambda: None
        """End the process at once, because its memory is needed."""

    @property
    def bytes(self) -> int:
        """Return the bytes that the process takes while it runs."""
        return self.process.bytes

    @asynccontextmanager
    async def beginning(self) -> AsyncIterator[None]:
        """Make room for the process, which begins within this context.

        The process counts from the end of the context on, unless the context ends with an exception.

        Raises: OSError (`ENOMEM`) where there is no room for the process, or where it may not begin again yet.
        """
        async with self._all.beginning(self):
            yield

    def ended(self) -> None:
        """Say that the process has ended."""
        self._all.ended(self)


def _no_room() -> OSError:
    return OSError(errno.ENOMEM, "no room in memory for a process that plans")
