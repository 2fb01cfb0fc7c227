"""One direction of an emulated link: what enters it comes out later, or not at all. Pure: times are given.

A packet waits behind those before it, goes through at the rate of the trace, and is under way for the delay and some
jitter. It never overtakes another one.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from appliance.clock import NS_PER_MS
from appliance.lab.links.trace import Trace

BUFFER_BYTES = 256 * 1024
"""What a base station or a router keeps; more than that is lost."""


@dataclass(frozen=True, slots=True)
class LinkShape:
    """`delay_ms`: one way, with a standard deviation of `jitter_ms`; `loss`: a share of packets."""

    trace: Trace
    delay_ms: float = 0.0
    jitter_ms: float = 0.0
    loss: float = 0.0
    buffer_bytes: int = BUFFER_BYTES
    jitter_bytes: int = 0
    """Packets on one another's heels have one delay for so many bytes; 0: each has its own. Packets stay in order, so
    with a delay for each a picture of many of them takes longer than one of few by as much as the slowest is slower."""


@dataclass(frozen=True, slots=True)
class Passage:
    """A packet, as the link knows it; nanoseconds since the link began. `out_ns` is None for a lost one."""

    in_ns: int
    size_bytes: int
    out_ns: int | None


class Link:
    """`outages`: from when to when nothing comes through; what is sent then is lost, and so is what is on its way."""

    def __init__(self, shape: LinkShape, seed: int = 0, outages: Sequence[tuple[int, int]] = ()) -> None:
        self._shape = shape
        self._random = Random(f"{seed}/link")
        self._outages = list(outages)
        self._buffer: deque[tuple[int, int]] = deque()
        """When each packet that waits is through, and its bytes."""
        self._held_bytes = 0
        self._free_ns = 0
        """When the last packet is through."""
        self._last_out_ns = 0
        self._delay_ms = 0.0
        """Of the last packet, and of those behind it for ..."""
        self._left_bytes = 0

    def cut(self, from_ns: int, until_ns: int) -> None:
        """An outage more."""
        self._outages.append((from_ns, until_ns))

    @property
    def free_ns(self) -> int:
        """When the last packet is through, so that the next one need not wait."""
        return self._free_ns

    def passes(self, now_ns: int, size_bytes: int) -> Passage:
        """A packet enters now; calls are in the order of time."""
        while self._buffer and self._buffer[0][0] <= now_ns:
            self._held_bytes -= self._buffer.popleft()[1]
        lost = Passage(now_ns, size_bytes, None)
        if self._is_out(now_ns) or self._held_bytes + size_bytes > self._shape.buffer_bytes:
            return lost
        if now_ns >= self._free_ns or self._left_bytes <= 0:
            self._delay_ms = max(0.0, self._random.gauss(self._shape.delay_ms, self._shape.jitter_ms))
            self._left_bytes = self._shape.jitter_bytes
        self._left_bytes -= size_bytes
        through_ns = self._shape.trace.through_ns(max(now_ns, self._free_ns), 8 * size_bytes)
        self._free_ns = through_ns
        self._buffer.append((through_ns, size_bytes))
        self._held_bytes += size_bytes
        is_lost = self._random.random() < self._shape.loss  # drawn for each, so that an outage changes no other packet
        out_ns = max(through_ns + round(self._delay_ms * NS_PER_MS), self._last_out_ns)
        if is_lost or self._is_out(through_ns):
            return lost
        self._last_out_ns = out_ns
        return Passage(now_ns, size_bytes, out_ns)

    def _is_out(self, at_ns: int) -> bool:
        return any(begin <= at_ns < end for begin, end in self._outages)
