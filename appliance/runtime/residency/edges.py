"""When windows open and close next: two heaps, by what is the application's own of it.

Δ and the lead of loads are the same for all and change with every request, so they are added where an edge is asked
for: nothing has to be sorted anew. What a key says of an application is true until the next `put`; older keys are left
where they are and passed over.
"""

from heapq import heapify, heappop, heappush

_SLACK = 64
"""Passed keys that are kept before the heap is made anew."""


class WindowEdges:
    """The next edge of each application's window. O(log n) a change, and nothing for those whom nobody asks."""

    def __init__(self) -> None:
        self._opens = _Keys()
        self._closes = _Keys()

    def put(self, name: str, window_ns: int | None, predicted_ns: int | None, load_ns: int) -> None:
        """Take over the open window, or else the prediction that the next one opens for, `load_ns` before it."""
        self._closes.put(name, window_ns)
        self._opens.put(name, predicted_ns - load_ns if window_ns is None and predicted_ns is not None else None)

    def forget(self, name: str) -> None:
        """It is gone."""
        self._closes.put(name, None)
        self._opens.put(name, None)

    def due(self, now_ns: int, delta_ns: int, lead_ns: int) -> set[str]:
        """Applications whose edge has come; each must be `put` again. `lead_ns` comes before every window."""
        return self._closes.until(now_ns - delta_ns - 1) | self._opens.until(now_ns + delta_ns + lead_ns)

    def next_ns(self, delta_ns: int, lead_ns: int) -> int | None:
        """When the next edge comes."""
        close_ns, open_ns = self._closes.first(), self._opens.first()
        edges = [] if close_ns is None else [close_ns + delta_ns + 1]
        if open_ns is not None:
            edges.append(open_ns - delta_ns - lead_ns)
        return min(edges, default=None)


class _Keys:
    """A heap of (time, name), of which the latest put of a name counts."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, str]] = []
        self._now: dict[str, int] = {}

    def put(self, name: str, at_ns: int | None) -> None:
        if at_ns is None:
            self._now.pop(name, None)
        elif self._now.get(name) != at_ns:
            self._now[name] = at_ns
            heappush(self._heap, (at_ns, name))
            if len(self._heap) > 2 * len(self._now) + _SLACK:
                self._heap = [(ns, known) for known, ns in self._now.items()]
                heapify(self._heap)

    def until(self, at_ns: int) -> set[str]:
        """Take out the names of times up to `at_ns`."""
        found: set[str] = set()
        while self._heap and self._heap[0][0] <= at_ns:
            key_ns, name = heappop(self._heap)
            if self._now.get(name) == key_ns:
                del self._now[name]
                found.add(name)
        return found

    def first(self) -> int | None:
        """The earliest time."""
        while self._heap and self._now.get(self._heap[0][1]) != self._heap[0][0]:
            heappop(self._heap)
        return self._heap[0][0] if self._heap else None
