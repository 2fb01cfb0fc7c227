"""What happens when: callbacks in the order of their time, equal times in the order of asking.

Steps of a few microseconds each, millions of them, need no tasks: `lab/loop.py` would take ten times as long.
"""

import heapq
from collections.abc import Callable


class Agenda:
    """`now_ns` is the time of the callback that runs."""

    def __init__(self) -> None:
        self.now_ns = 0
        self._entries: list[tuple[int, int, Callable[[], None]]] = []
        self._count = 0

    def at(self, at_ns: int, what: Callable[[], None]) -> None:
        """Not before now."""
        self._count += 1
        heapq.heappush(self._entries, (max(at_ns, self.now_ns), self._count, what))

    def run(self) -> None:
        """Until nothing is left to happen."""
        while self._entries:
            self.now_ns, _, what = heapq.heappop(self._entries)
            what()
