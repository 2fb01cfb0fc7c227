"""How what a device shows ages against its plans: by how much it is older, over whole windows of its promise.

A plan says how old results are on average over the second ahead. A window of the promise begins at some instant of its
own, holds a part of an interval more or less, and frames, batches and results come a little earlier or later than was
thought. What windows have shown of all that is kept free of the promise, so that nearly all of them keep it.
"""

from collections import deque

PLANS_MAX = 8
"""Of a window: five, and those that come between."""
MEMORY = 0.15
"""Weight of the newest window."""
DEVIATIONS = 2.5
"""Mean deviations above the mean that are kept free: two windows in a hundred are beyond, where they are normal."""
PRIOR_SHARE = 0.04
"""Of the age that a promise allows, the mean deviation before windows were seen ..."""
MOST_SHARE = 0.3
"""... and the most that is ever kept free of it: who is that far off is not helped by more."""


class Ageing:
    """Of one session, in frames."""

    def __init__(self) -> None:
        self.is_rate_known = False
        """Whether its device has said how much it loses with each frame; else it is taken for as others are."""
        self.forgiven_turns = 0
        """Plans in a row that could not keep its promise."""
        self._planned: deque[float] = deque(maxlen=PLANS_MAX)
        self._mean = 0.0
        self._deviation: float | None = None

    def forget(self) -> None:
        """What windows have shown was over a link that may be another one by now."""
        self._planned.clear()
        self._mean, self._deviation = 0.0, None

    def expect(self, stride: float) -> None:
        """A plan has it that what is shown will be so old on average."""
        self._planned.append(stride)

    def observe(self, stride: float, allowed: float) -> None:
        """In a window it was so old on average; `allowed`: what the promise allows beyond its reference."""
        if not self._planned:
            return
        error = stride - sum(self._planned) / len(self._planned) - self._mean
        self._planned.clear()
        deviation = PRIOR_SHARE * allowed if self._deviation is None else self._deviation
        self._mean += MEMORY * error
        self._deviation = deviation + MEMORY * (abs(error) - deviation)

    def kept_free(self, allowed: float) -> float:
        """Frames of what a promise allows that a plan leaves."""
        deviation = PRIOR_SHARE * allowed if self._deviation is None else self._deviation
        return min(MOST_SHARE * allowed, max(0.0, self._mean + DEVIATIONS * deviation))
