"""The memory predictor (EM-05): how little memory the whole machine will have available over the next seconds, from
samples of what it had.

Other processes take memory too; the box acts on what will be left, not only on what is. Samples come at a steady
period.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil, sqrt
from typing import Protocol

SAMPLES_MAX = 64
"""Looked at, at most: the latest."""


@dataclass(frozen=True, slots=True)
class MemorySample:
    """What the machine could still give away at a time, all processes and the box itself counted."""

    at_ns: int
    available_bytes: int


@dataclass(frozen=True, slots=True)
class MemoryPrediction:
    """The least available between now and the horizon (never more than now), and the standard deviation of such
    predictions.
    """

    low_bytes: int
    spread_bytes: int


class MemoryForecaster(Protocol):
    """Pure, as `Forecaster` is."""

    @property
    def name(self) -> str: ...

    def predict(self, samples: Sequence[MemorySample], horizon_ns: int) -> MemoryPrediction | None:
        """From samples in ascending order, the last of them now; None with too few."""
        ...


MemoryFit = Callable[[Sequence[MemorySample], int, int], MemoryForecaster | None]
"""(samples, horizon_ns, seed) → a forecaster; None where the samples are too few to learn from."""


@dataclass(frozen=True, slots=True)
class Trend:
    """The level and its slope, both exponentially weighted (Holt's linear method), carried to the horizon; the spread
    is that of its steps ahead.

    A falling series is followed down, no faster than over its last two steps; a rising one counts as flat: memory not
    yet free is not promised. O(samples looked at), about 15 µs.
    """

    level_weight: float = 0.6
    slope_weight: float = 0.3
    name: str = "trend"

    def predict(self, samples: Sequence[MemorySample], horizon_ns: int) -> MemoryPrediction | None:
        if len(samples) < 2:
            return None
        recent = samples[-SAMPLES_MAX:]
        level, slope, variance = float(recent[0].available_bytes), 0.0, 0.0
        weight = self.slope_weight
        for sample in recent[1:]:
            error = sample.available_bytes - level - slope
            variance += weight * (error * error - variance)
            level += slope + self.level_weight * error
            slope += self.slope_weight * self.level_weight * error
        now = recent[-1].available_bytes
        lately = recent[-3:]
        # A fall that is over is not carried on.
        slope = max(slope, (now - lately[0].available_bytes) / (len(lately) - 1))
        steps = steps_of(recent, horizon_ns)
        low = min(float(now), now + slope * steps)
        return MemoryPrediction(max(0, round(low)), round(sqrt(variance * steps)))


def steps_of(samples: Sequence[MemorySample], horizon_ns: int) -> int:
    """How many samples from now the horizon is, at the mean period of those given (at least two); at least 1."""
    period_ns = (samples[-1].at_ns - samples[0].at_ns) / (len(samples) - 1)
    return max(1, ceil(horizon_ns / period_ns)) if period_ns > 0 else 1


def lows(available: Sequence[int], steps: int) -> list[int]:
    """For each sample that has `steps` successors, the least of itself and them."""
    return [min(available[i : i + steps + 1]) for i in range(len(available) - steps)]


def unrest_bytes(samples: Sequence[MemorySample]) -> int:
    """How much memory moved, up and down together."""
    return sum(abs(after.available_bytes - before.available_bytes) for before, after in pairwise(samples))
