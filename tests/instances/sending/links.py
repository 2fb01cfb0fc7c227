"""A link in virtual time: a rate that changes by the second, delay, outages, and what TCP makes of them.

Bytes drain in order at the rate of the instant. In an outage nothing passes; a connection that was open then goes on
with the first retransmission after it, which TCP tries at ever longer intervals, a fresh one after its handshake.
"""

import math
from dataclasses import dataclass, field
from random import Random

RETRANSMIT_MS = 250.0
"""The first one; each later interval is twice as long."""


def lte_like(seed: int, seconds: int = 200, scale: float = 1.0) -> tuple[float, ...]:
    """Mbit/s by the second, with the statistics of Jellyfish's LTE uplink: mean 15.2, deviation 5.28, lowest 2.86,
    highest 26.3, correlation from one second to the next 0.67.
    """
    return _walk(seed, seconds, 15.2, 5.28, 2.86, 26.33, 0.67, scale)


def wifi_like(seed: int, seconds: int = 200, scale: float = 1.0) -> tuple[float, ...]:
    """The same of its WiFi trace: mean 51.9, deviation 16.8, 12.9 to 90.8, correlation 0.74."""
    return _walk(seed, seconds, 51.87, 16.82, 12.9, 90.8, 0.74, scale)


def synthetic(seconds: int = 200) -> tuple[float, ...]:
    """Its synthetic one: 20, 15, 10 and 7.5 Mbit/s for 20 s each, again and again."""
    steps = (20.0, 15.0, 10.0, 7.5)
    return tuple(steps[at // 20 % len(steps)] for at in range(seconds))


def _walk(
    seed: int,
    seconds: int,
    mean: float,
    deviation: float,
    lowest: float,
    highest: float,
    correlation: float,
    scale: float,
) -> tuple[float, ...]:
    random = Random(seed)
    value, rates = random.gauss(0.0, 1.0), []
    for _ in range(seconds):
        rates.append(scale * min(highest, max(lowest, mean + deviation * value)))
        value = correlation * value + math.sqrt(1.0 - correlation**2) * random.gauss(0.0, 1.0)
    return tuple(rates)


@dataclass
class Link:
    """One device's link; times are milliseconds."""

    mbps: tuple[float, ...]
    """By the second, again and again."""
    round_trip_ms: float = 32.0
    jitter_ms: float = 0.0
    """Deviation of each way; never earlier than what was sent before."""
    outages: tuple[tuple[float, float], ...] = ()
    random: Random = field(default_factory=lambda: Random(0))
    _free_ms: float = 0.0
    _opened_ms: float = 0.0
    _came_ms: float = 0.0

    @property
    def free_ms(self) -> float:
        """When it takes the next byte."""
        return self._free_ms

    def fresh(self, now_ms: float) -> None:
        """A new connection, which nothing holds up that is on the old one."""
        self._free_ms, self._opened_ms = now_ms, now_ms

    def is_down(self, at_ms: float) -> bool:
        return any(begin <= at_ms < end for begin, end in self.outages)

    def sent(self, size_bytes: float, at_ms: float) -> float:
        """When the last byte has arrived, of a frame sent now."""
        at = self._passable(max(at_ms, self._free_ms))
        bits = 8.0 * size_bytes
        while bits > 0.0:
            rate = self.mbps[int(at // 1000.0) % len(self.mbps)] * 1000.0
            until = min([(at // 1000.0 + 1.0) * 1000.0, *(begin for begin, _ in self.outages if begin > at)])
            passed = min(bits / rate, until - at)
            bits -= passed * rate
            at = until if bits > 1e-6 else at + passed
            bits = bits if bits > 1e-6 else 0.0
            at = self._passable(at) if bits else at
        self._free_ms = at
        self._came_ms = max(self._came_ms, at + self.one_way_ms())
        return self._came_ms

    def one_way_ms(self) -> float:
        """Of a message of a few bytes."""
        return max(0.5, self.round_trip_ms / 2.0 + abs(self.random.gauss(0.0, self.jitter_ms)))

    def _passable(self, at: float) -> float:
        """When this connection carries bytes again."""
        for begin, end in self.outages:
            if begin <= at < end or (self._opened_ms <= begin <= at and self._resumed(begin, end) > at):
                return self._resumed(begin, end)
        return at

    def _resumed(self, begin: float, end: float) -> float:
        if self._opened_ms >= end:
            return begin
        tries, wait = begin, RETRANSMIT_MS
        while tries < end:
            tries, wait = tries + wait, wait * 2.0
        return tries
