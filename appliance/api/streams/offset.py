"""How far a device's clock is ahead of the box's, from exchanges of messages as NTP has them (RFC 5905 §8).

Pure. The exchange with the shortest round trip is believed: what an exchange takes longer than it must, it may have
taken on one way only. Measured on emulated links that is good to 0.3 ms while nothing else is sent.
"""

from collections import deque
from dataclasses import dataclass

_EXCHANGES_MAX = 64
"""That are remembered: of the last six seconds, with ten a second, so that a drift of the clocks is followed."""
_ASKED_MAX = 16
"""Messages of the box that may still be answered."""
STEP_MS = 5.0
"""Beyond what two round trips allow, so far two exchanges may be apart: clocks drift within the six seconds."""
TIME_MS_MAX = 1e15
"""Beyond it a double has no milliseconds: it is no time."""


@dataclass(frozen=True, slots=True)
class _Exchange:
    rtt_ms: float
    offset_ms: float


class ClockOffset:
    """Of one device. Milliseconds, each on the clock of who noted them."""

    def __init__(self) -> None:
        self._asked: deque[float] = deque(maxlen=_ASKED_MAX)
        self._exchanges: deque[_Exchange] = deque(maxlen=_EXCHANGES_MAX)
        self._best: _Exchange | None = None

    @property
    def rtt_ms(self) -> float | None:
        """Shortest round trip of late; None before the first exchange."""
        return None if self._best is None else self._best.rtt_ms

    def asked(self, box_ms: float) -> None:
        """The box has sent its clock."""
        self._asked.append(box_ms)

    def answered(self, of_ms: float, of_came_ms: float, sent_ms: float, box_ms: float) -> None:
        """The device has answered the clock `of_ms`, which came when its own showed `of_came_ms`, at `sent_ms`; that
        came at `box_ms`. One that cannot be true says nothing.
        """
        if of_ms not in self._asked or not all(abs(at) < TIME_MS_MAX for at in (of_came_ms, sent_ms)):
            return
        held_ms = sent_ms - of_came_ms
        rtt_ms = (box_ms - of_ms) - held_ms
        if held_ms < 0 or rtt_ms < 0:
            return
        exchange = _Exchange(rtt_ms, ((of_came_ms - of_ms) + (sent_ms - box_ms)) / 2)
        if self._best is not None and _is_stepped(self._best, exchange):
            self._exchanges.clear()
        self._exchanges.append(exchange)
        self._best = min(self._exchanges, key=lambda one: one.rtt_ms)

    def box_ms(self, device_ms: float) -> float | None:
        """When that was, on the box's clock; None before the first exchange, and for what is no time at all."""
        return None if self._best is None else device_ms - self._best.offset_ms


def _is_stepped(before: _Exchange, now: _Exchange) -> bool:
    """Whether the device's clock was set between two exchanges: each is wrong by half its round trip at most."""
    return abs(now.offset_ms - before.offset_ms) > (before.rtt_ms + now.rtt_ms) / 2 + STEP_MS
