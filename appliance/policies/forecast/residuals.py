"""Δ and H of Edge-MultiAI, recomputed with every request from bounded windows of what was seen lately.

The caller owns one `Residuals` and one `Interarrivals` and feeds them on its loop; each call is O(1) and sums are whole numbers, so nothing drifts.
"""

from collections import deque
from math import sqrt

WINDOW = 64
"""Values kept per application: a busy application weighs in "over all applications" no more than this many requests of a quiet one."""
_ENOUGH = 16
"""Residuals from which on an application is judged by its own."""
ALPHA = 1.02
"""The paper's best (§IV-E)."""
ALPHA_MAX = 2.0


class Windows:
    """The latest values of each key, with their count, sum and sum of squares over all keys."""

    def __init__(self, window: int = WINDOW) -> None:
        self._window = window
        self._kept: dict[str, deque[int]] = {}
        self._totals: dict[str, int] = {}
        self.count = self.total = self.squares = 0

    def add(self, key: str, value: int) -> None:
        kept = self._kept.setdefault(key, deque())
        if len(kept) == self._window:
            self._take(key, kept.popleft(), -1)
        kept.append(value)
        self._take(key, value, 1)

    def forget(self, key: str) -> None:
        for value in self._kept.pop(key, ()):
            self._take(key, value, -1)
        self._totals.pop(key, None)

    def mean_of(self, key: str, count_min: int) -> float | None:
        """Of the latest values of one key; None where they are fewer than `count_min`."""
        count = len(self._kept.get(key, ()))
        return self._totals[key] / count if count >= count_min else None

    @property
    def mean(self) -> float:
        """0 when empty, as is `deviation`."""
        return self.total / self.count if self.count else 0.0

    @property
    def deviation(self) -> float:
        spread = self.count * self.squares - self.total * self.total
        return sqrt(spread) / self.count if self.count else 0.0

    def _take(self, key: str, value: int, sign: int) -> None:
        self._totals[key] = self._totals.get(key, 0) + sign * value
        self.count += sign
        self.total += sign * value
        self.squares += sign * value * value


class Residuals:
    """How far predictions were off, over all applications: |actual - predicted|, its mean D and standard deviation σ (EM-07)."""

    def __init__(self, initial_ns: int) -> None:
        self._initial_ns = initial_ns
        self._windows = Windows()

    def add(self, application: str, predicted_ns: int, actual_ns: int) -> None:
        self._windows.add(application, abs(actual_ns - predicted_ns))

    def forget(self, application: str) -> None:
        self._windows.forget(application)

    def delta_ns(self, alpha: float = ALPHA) -> int:
        """Δ = D + α·σ, never negative; the lower sign of the paper's D ± α·σ is a negative α. `initial_ns` before the first residual.

        Raises: ValueError for |α| > 2.
        """
        if not -ALPHA_MAX <= alpha <= ALPHA_MAX:
            raise ValueError(f"alpha is {alpha}; it goes from -{ALPHA_MAX:g} to {ALPHA_MAX:g}")
        if not self._windows.count:
            return self._initial_ns
        return max(0, round(self._windows.mean + alpha * self._windows.deviation))

    def mean_ns(self, application: str) -> int:
        """D of one application, or over all of them while it has few residuals of its own; `initial_ns` before the first."""
        own_ns = self._windows.mean_of(application, _ENOUGH)
        if own_ns is not None:
            return round(own_ns)
        return round(self._windows.mean) if self._windows.count else self._initial_ns


class Interarrivals:
    """Mean time between two requests of an application, over all applications: the history window H (EM-16)."""

    def __init__(self, initial_ns: int) -> None:
        self._initial_ns = initial_ns
        self._last_ns: dict[str, int] = {}
        self._windows = Windows()

    def add(self, application: str, at_ns: int) -> None:
        last_ns = self._last_ns.get(application)
        self._last_ns[application] = at_ns
        if last_ns is not None:
            self._windows.add(application, at_ns - last_ns)

    def forget(self, application: str) -> None:
        self._last_ns.pop(application, None)
        self._windows.forget(application)

    def mean_ns(self) -> int:
        """H; `initial_ns` before any application came twice."""
        return round(self._windows.mean) if self._windows.count else self._initial_ns
