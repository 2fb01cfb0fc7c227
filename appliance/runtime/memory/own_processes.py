"""Processes of the box's own that plan beside it, as memory counts them: what each takes is nobody's.

Room is made for one before it begins, as for a guard. Where none can be made in time it begins all the same, and others
leave afterwards: planned on the event loop, a decision would keep every request waiting.
"""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass

from appliance.domain.errors import OutOfMemory, ShuttingDown
from appliance.runtime.memory.manager import MemoryManager
from appliance.runtime.memory.room import Process

_SORT = "planners"


class OwnProcesses:
    """Event-loop thread only."""

    def __init__(self, memory: MemoryManager) -> None:
        self._memory = memory
        self._bytes: dict[str, int] = {}
        """What those take that are there."""

    def process(self, name: str, count_bytes: int) -> "OwnProcess":
        """One that is begun, and ends, any number of times; it takes `count_bytes` while it is there."""
        return OwnProcess(self, Process((_SORT, name), count_bytes), name)

    @asynccontextmanager
    async def beginning(self, process: Process, name: str) -> AsyncIterator[None]:
        """As `OwnProcess.beginning`."""
        async with AsyncExitStack() as stack:
            with suppress(OutOfMemory, ShuttingDown):
                await stack.enter_async_context(self._memory.room_to_begin(process))
            yield
            self._bytes[name] = process.bytes
            self._memory.set_overhead(sum(self._bytes.values()), of=_SORT, there={process.name})

    def ended(self, name: str) -> None:
        """As `OwnProcess.ended`."""
        if self._bytes.pop(name, None) is not None:
            self._memory.set_overhead(sum(self._bytes.values()), of=_SORT)


@dataclass(frozen=True, slots=True)
class OwnProcess:
    """One of them."""

    _all: OwnProcesses
    _process: Process
    _name: str

    @asynccontextmanager
    async def beginning(self) -> AsyncIterator[None]:
        """Within it the process begins; it counts from its end on, unless that fails."""
        async with self._all.beginning(self._process, self._name):
            yield

    def ended(self) -> None:
        """It is there no more."""
        self._all.ended(self._name)
