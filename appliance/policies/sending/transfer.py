"""How long a frame takes to its acknowledgement: fitted over its size, net of the frame before it.

The model: acknowledged = max(sent, line free) + latency + bytes × ms a byte, where the line is free as soon as the last
byte of the frame before has left, that is its acknowledgement less the latency. The two parts are told apart because
size / (acknowledged − round trip) is several times too low for small frames on quick links: what is not the size's
then counts as the size's, smaller frames follow, and the error grows. Times are milliseconds as floats.
"""

import math
from collections import deque
from collections.abc import Iterable
from statistics import median
from typing import NamedTuple

PRIOR_MS_A_BYTE = 0.002
"""4 Mbit/s: what a link is taken for before the first acknowledgement."""
PRIOR_LATENCY_MS = 40.0
MEMORY_MS = 400.0
"""Time constant in which older samples of the rate are forgotten: links of phones change within a second."""
SAMPLES_MAX = 24
PAIRS_MAX = 31
PAIRS_MIN = 5
"""Below it the latency is what small messages took, or a guess."""
PAIR_AGE_MS = 1_000.0
"""Two frames further apart may have met two different links."""
PAIR_RATIO = 1.3
"""Sizes closer than that say nothing of the latency."""
CHANGED = 1.3
"""Two samples in a row off by this factor, to one side: the link is another one, and what was before does not count."""
STALLED = 4.0
"""One sample off by more than this factor is a stall, not the link's rate; two in a row are the link."""
MS_A_BYTE_MIN = 8e-6
"""1 Gbit/s: no frame's time is all latency."""
MEASURED_BYTES_MIN = 1460
"""A smaller body comes in one packet: that says nothing of the link's rate. The box counts with the same."""


class Unacknowledged(NamedTuple):
    """A frame on its way."""

    size_bytes: int
    sent_ms: float


class Line(NamedTuple):
    """The link as it stands at an instant: when it can take the next byte, and what a byte costs."""

    free_ms: float
    ms_a_byte: float
    latency_ms: float

    def acknowledged_ms(self, size_bytes: float, margin: float = 1.0) -> float:
        """When a frame that is sent now is acknowledged, should its bytes take `margin` times what is expected."""
        return self.free_ms + self.latency_ms + size_bytes * self.ms_a_byte * margin


class _Sample(NamedTuple):
    size_bytes: int
    took_ms: float
    acknowledged_ms: float


class TransferEstimate:
    """The estimate of one link. `observe` takes some 20 µs, `line` a few."""

    def __init__(self) -> None:
        self._samples: deque[_Sample] = deque(maxlen=SAMPLES_MAX)
        self._alone: deque[_Sample] = deque(maxlen=4)
        self._pairs: deque[float] = deque(maxlen=PAIRS_MAX)
        self._round_trips: deque[float] = deque(maxlen=16)
        self._last_ms = -math.inf
        self._side = 0
        self.latency_ms = PRIOR_LATENCY_MS
        self.ms_a_byte = PRIOR_MS_A_BYTE

    @property
    def mbps(self) -> float:
        """The link's rate in Mbit/s, without what every frame pays."""
        return 0.008 / self.ms_a_byte

    def observe_round_trip(self, took_ms: float) -> None:
        """A message of a few bytes and its answer."""
        if took_ms > 0.0:
            self._round_trips.append(took_ms)
            self._fit_latency()

    def observe(self, size_bytes: int, sent_ms: float, acknowledged_ms: float) -> None:
        """A frame was acknowledged; in the order in which they were sent. One of a single packet is a round trip."""
        free_ms = self._last_ms - self.latency_ms
        is_alone = sent_ms >= self._last_ms
        sample = _Sample(size_bytes, acknowledged_ms - max(sent_ms, free_ms), acknowledged_ms)
        self._last_ms = acknowledged_ms
        if size_bytes <= 0 or sample.took_ms <= 0.0:
            return
        if size_bytes < MEASURED_BYTES_MIN:
            self.observe_round_trip(sample.took_ms)
            return
        if not self._is_stall(sample):
            if is_alone:
                self._pair(sample)
            self._samples.append(sample)
            self._fit_latency()
            self._fit_rate()

    def interrupted(self) -> None:
        """The connection is a new one: what was on its way does not hold the line."""
        self._last_ms = -math.inf

    def line(self, now_ms: float, unacknowledged: Iterable[Unacknowledged] = ()) -> Line:
        """What to expect of a frame sent now, behind those that are on their way.

        One that is overdue says that the link has become slower, at least as much as it has been waited for.
        """
        free_ms, cost = self._last_ms - self.latency_ms, self.ms_a_byte
        for frame in unacknowledged:
            begin_ms = max(frame.sent_ms, free_ms)
            cost = max(cost, (now_ms - begin_ms - self.latency_ms) / max(frame.size_bytes, 1))
            free_ms = begin_ms + frame.size_bytes * cost
        return Line(max(now_ms, free_ms), cost, self.latency_ms)

    def _is_stall(self, sample: _Sample) -> bool:
        """Also remembers on which side of the expectation the sample lay, and forgets a link that is no more."""
        if not self._samples:
            return False
        ratio = sample.took_ms / (self.latency_ms + sample.size_bytes * self.ms_a_byte)
        side = (ratio > CHANGED) - (ratio < 1.0 / CHANGED)
        is_second = side != 0 and side == self._side
        self._side = side
        if is_second:
            while len(self._samples) > 1:
                self._samples.popleft()
            # A frame of the link before and one of this have no latency between them.
            self._alone.clear()
            self._pairs.clear()
            return False
        return ratio > STALLED

    def _pair(self, sample: _Sample) -> None:
        """Two frames of different size, each alone on the line, have one latency between them."""
        for other in self._alone:
            small, large = sorted((sample, other))
            if sample.acknowledged_ms - other.acknowledged_ms > PAIR_AGE_MS:
                continue
            if large.size_bytes >= PAIR_RATIO * small.size_bytes:
                slope = (large.took_ms - small.took_ms) / (large.size_bytes - small.size_bytes)
                self._pairs.append(small.took_ms - slope * small.size_bytes)
        self._alone.append(sample)

    def _fit_latency(self) -> None:
        if len(self._pairs) >= PAIRS_MIN:
            latency = median(self._pairs)
        elif self._round_trips:
            latency = median(self._round_trips)
        else:
            latency = min(sample.took_ms for sample in self._samples) / 2.0
        if self._samples:
            latency = min(latency, *(sample.took_ms - sample.size_bytes * MS_A_BYTE_MIN for sample in self._samples))
        self.latency_ms = max(0.0, latency)

    def _fit_rate(self) -> None:
        """All bytes over all times, the latest counting most: a mean of rates would believe the quickest."""
        newest = self._samples[-1].acknowledged_ms
        bytes_, times = 0.0, 0.0
        for sample in self._samples:
            weight = math.exp((sample.acknowledged_ms - newest) / MEMORY_MS)
            bytes_ += weight * sample.size_bytes
            times += weight * max(0.0, sample.took_ms - self.latency_ms)
        self.ms_a_byte = max(times / bytes_, MS_A_BYTE_MIN)
