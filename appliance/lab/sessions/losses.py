"""What results of each variant lose with age, as it is: looked up in place of tracking (AR-25)."""

from collections.abc import Mapping
from dataclasses import dataclass

POINTS = 100.0
"""Of accuracy, that are all."""


@dataclass(frozen=True, slots=True)
class Loss:
    """Of one variant, against fresh results of the best one."""

    gap: float = 0.0
    """Share of 1 at an age of no frames."""
    times: float = 1.0
    """With each frame of age, times what the device's content loses."""

    def at(self, rate: float, stride: float) -> float:
        """Share of 1 at an age of so many frames, of content that loses `rate` a frame."""
        return self.gap + rate * self.times * stride


NOTHING = Loss()
"""Of what nobody says how it ages."""


class Losses:
    """Of the variants of one application, by name."""

    def __init__(self, accuracies: Mapping[str, float], times: Mapping[str, float]) -> None:
        """`accuracies`: points; `times`: as of a `Loss`."""
        most = max(accuracies.values(), default=0.0)
        self._losses = {name: Loss((most - own) / POINTS, times.get(name, 1.0)) for name, own in accuracies.items()}

    def of(self, variant: str | None) -> Loss:
        """Of one variant."""
        return NOTHING if variant is None else self._losses.get(variant, NOTHING)

    @property
    def of_best(self) -> Loss:
        """Of the most accurate."""
        return min(self._losses.values(), key=lambda loss: loss.gap, default=NOTHING)

    def between(self, tracked: str, fresh: str, rate: float, stride: float) -> float:
        """How much worse a result of so many frames of age is than a fresh one of the same frame."""
        return max(0.0, self.of(tracked).at(rate, stride) - self.of(fresh).gap)
