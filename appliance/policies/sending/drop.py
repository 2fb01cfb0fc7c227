"""How much accuracy tracking loses with each frame that a result grows older, estimated on the device (ARISE §4.3).

When the result of a frame comes, the device still knows what it showed for that frame: the tracked result of an older
one. Their difference d at tracking stride L is one sample. The paper takes d / L for the rate (AR-04); at short strides
that is 2 to 10 times too high, because a detector never says the same twice: d = base + rate × stride, of which only
the rate is lost with time. The slope is the median over all pairs of samples (Theil-Sen), so that single bad results
do not move it; the newest samples count only, because the rate changes with what the camera sees (AR-06).
"""

from collections import deque
from dataclasses import dataclass
from statistics import median

SAMPLES_MAX = 40
SPREAD_MIN = 2.0
"""Frames between strides below which two samples say nothing of a slope."""
PAIRS_MIN = 12
DROP_MAX = 1.0


@dataclass(frozen=True, slots=True)
class Drop:
    """Shares of 1: lost at once, and with each frame of age."""

    base: float
    rate: float

    def at(self, stride: float) -> float:
        """Lost at a stride, against a fresh result."""
        return min(DROP_MAX, max(0.0, self.rate * stride))


class DropEstimate:
    """Of one variant. A few hundred µs a sample."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, float]] = deque(maxlen=SAMPLES_MAX)
        self._base = 0.0

    def observe(self, stride: float, drop: float) -> None:
        """A tracked result was `drop` worse than the fresh one of the same frame, `stride` frames after its own."""
        if stride > 0:
            self._samples.append((stride, min(DROP_MAX, max(0.0, drop))))

    def fitted(self) -> Drop | None:
        """None before the first sample.

        While all strides are alike the base is what it was when they were not, at first 0: the paper's estimate.
        """
        if not self._samples:
            return None
        slopes = [
            (d2 - d1) / (s2 - s1)
            for at, (s1, d1) in enumerate(self._samples)
            for s2, d2 in list(self._samples)[at + 1 :]
            if abs(s2 - s1) >= SPREAD_MIN
        ]
        if len(slopes) >= PAIRS_MIN:
            rate = max(0.0, median(slopes))
            self._base = max(0.0, median(d - rate * s for s, d in self._samples))
        else:
            rate = median(max(0.0, d - self._base) / s for s, d in self._samples)
        return Drop(self._base, rate)
