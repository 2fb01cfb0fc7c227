"""Requests that wait for memory for the same builds: of each such queue only the first one tries again when memory has
changed, for the others would be refused as it is.
"""

from collections.abc import Callable

from appliance.runtime.memory.manager import MemoryManager


class RoomQueue:
    """The queues, by what their requests wait for. Event-loop thread only."""

    def __init__(self, memory: MemoryManager) -> None:
        self._memory = memory
        self._waiting: dict[tuple[str, ...], list[object]] = {}

    async def turn(
        self, builds: tuple[str, ...], changes: int, until_ns: int, *, is_first: bool, is_there: Callable[[], bool]
    ) -> bool:
        """Wait until a request should try again to have one of `builds` loaded: memory has changed since it had done so
        `changes` times, and it is the first of its queue, or one is there or on its way (`is_there`). False: that was
        not so until then.

        `is_first`: it was the first before, and has been refused again.
        """
        queue, request = self._waiting.setdefault(builds, []), object()
        queue.insert(0 if is_first else len(queue), request)
        try:
            while await self._memory.change(changes, until_ns):
                if queue[0] is request or is_there():
                    return True
                changes = self._memory.changes
            return False
        finally:
            queue.remove(request)
            if not queue:
                del self._waiting[builds]
