"""Whose turn it is: start-time fair queueing over flows that wait for processors, each with a weight.

Goyal, Vin and Cheng, "Start-time fair queuing" (SIGCOMM 1996), for several servers as Jin, Chase and Kaur do it, SFQ(D)
("Interposed proportional sharing for a storage service utility", SIGMETRICS 2004): virtual time is the start tag of the
run that began last. Differs: a run is charged with what it is expected to take when it begins, and corrected by what it
took when it ends.

Of two flows that always wait, each gets time by its weight, but for one run. A flow that was idle starts at the virtual
time: it has saved nothing up. Pure: no clock, no waiting; O(log flows) each.
"""

import heapq
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar


@dataclass(slots=True, eq=False)
class Flow:
    """One of those who share, for example a tenant. `tag` is where its next run starts, in nanoseconds by weight 1."""

    tag: float = 0.0
    entry: list[Any] | None = None
    """Its place in the line; None: it waits for nothing."""


F = TypeVar("F", bound=Flow)


class FairLine(Generic[F]):
    """Flows in the order in which their next runs start."""

    def __init__(self) -> None:
        self.now = 0.0
        """Virtual time, which never steps back."""
        self.waiting = 0
        """Flows in line."""
        self.running = 0
        """Runs begun and not ended."""
        self._latest = 0.0
        """No tag is beyond it."""
        self._heap: list[list[Any]] = []
        self._sequence = itertools.count()

    @property
    def is_busy(self) -> bool:
        """Whether anybody waits or runs. Who begins then is before nobody."""
        return bool(self.waiting or self.running)

    def start_of(self, flow: Flow) -> float:
        """The start tag of its next run."""
        return flow.tag if flow.tag > self.now else self.now

    def put(self, flow: F, tie: Any = 0) -> None:
        """Put a flow in its place, or in its new one; of equal start tags the smaller `tie` goes first."""
        if flow.entry is None:
            self.waiting += 1
        flow.tag = max(flow.tag, self.now)
        flow.entry = [flow.tag, tie, next(self._sequence), flow]
        heapq.heappush(self._heap, flow.entry)
        if len(self._heap) > 2 * self.waiting + 64:  # places that were left stay behind until they are first
            self._heap = [entry for entry in self._heap if entry is entry[3].entry]
            heapq.heapify(self._heap)

    def drop(self, flow: F) -> None:
        """Take a flow out of the line: it waits for nothing now."""
        if flow.entry is not None:
            flow.entry = None
            self.waiting -= 1
            self._rest()

    def first(self) -> F | None:
        """Return the flow whose turn it is; None: no flow waits."""
        heap = self._heap
        while heap:
            flow: F = heap[0][3]
            if flow.entry is heap[0]:
                return flow
            heapq.heappop(heap)
        return None

    def near(self, span: float) -> Iterator[F]:
        """Flows in line whose next runs start at most `span` after the first one's, in no order."""
        first = self.first()
        if first is None:
            return
        latest, ahead = self.start_of(first) + span, [0]
        while ahead:
            at = ahead.pop()
            if at < len(self._heap) and self._heap[at][0] <= latest:
                flow: F = self._heap[at][3]
                if flow.entry is self._heap[at]:
                    yield flow
                ahead += (2 * at + 1, 2 * at + 2)

    def begin(self, flow: F, expected_ns: int, weight: float) -> None:
        """A run of the flow begins."""
        self.now = max(self.now, flow.tag)
        self._charge(flow, self.now + expected_ns / weight)
        self.running += 1

    def join(self, flow: F, expected_ns: int, weight: float) -> None:
        """A run of the flow begins together with another one's, whose turn it is: nobody's turn comes sooner by it."""
        self._charge(flow, self.start_of(flow) + expected_ns / weight)
        self.running += 1

    def overtake(self, flow: F, expected_ns: int, weight: float) -> None:
        """A run of the flow begins, which may not be the first in line: who is before it keeps what it is behind."""
        first = self.first()
        if first is None or first is flow:
            self.begin(flow, expected_ns, weight)
        else:
            self.join(flow, expected_ns, weight)

    def end(self, flow: F, error_ns: int, weight: float) -> None:
        """A run has ended that took `error_ns` longer than was expected when it began."""
        self._charge(flow, flow.tag + error_ns / weight)
        self.running -= 1
        self._rest()

    def ran(self, flow: F, took_ns: int, weight: float) -> None:
        """A run that took no place in the line has begun and ended."""
        self.now = max(self.now, flow.tag)
        self._charge(flow, self.now + took_ns / weight)
        self._rest()

    def _charge(self, flow: F, tag: float) -> None:
        flow.tag = tag
        self._latest = max(self._latest, tag)
        if flow.entry is not None:
            self.put(flow, flow.entry[1])

    def _rest(self) -> None:
        """When the last one has gone, all are equal again: what was used while nobody else wanted it is no debt."""
        if not (self.waiting or self.running):
            self.now = self._latest
