"""Δ and H of Edge-MultiAI, recomputed with every request from bounded windows of what was seen lately.

The caller owns one `Residuals` and one `Interarrivals` and feeds them on its loop; each call is O(1) and sums are whole
numbers, so nothing drifts.
"""

from collections import deque
from math import exp, sqrt

WINDOW = 64
"""Values kept per application: a busy application weighs in "over all applications" no more than this many requests
of a quiet one.
"""
_ENOUGH = 16
"""Residuals from which on an application is judged by its own."""
HIT_RATE_FIRST = 0.8
HITS_FIRST = 4.0
"""Before anything is seen, four requests of five were predicted, as if seen of four."""
_IN_A_ROW = 8
_PARTS = 10**6
"""Of a chance, for the windows keep whole numbers."""
_FAR = 500.0
"""Mean residuals, or mean gaps, beyond which an exponential is as good as this."""
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
        more, squares = value, value * value
        if len(kept) == self._window:
            oldest = kept.popleft()
            more -= oldest
            squares -= oldest * oldest
        else:
            self.count += 1
        kept.append(value)
        self._totals[key] = self._totals.get(key, 0) + more
        self.total += more
        self.squares += squares

    def forget(self, key: str) -> None:
        kept = self._kept.pop(key, ())
        self.count -= len(kept)
        self.total -= self._totals.pop(key, 0)
        self.squares -= sum(value * value for value in kept)

    def mean_of(self, key: str, count_min: int) -> float | None:
        """Of the latest values of one key; None where they are fewer than `count_min`."""
        count = len(self._kept.get(key, ()))
        return self._totals[key] / count if count >= count_min else None

    def sum_of(self, key: str) -> tuple[int, int]:
        """Sum and count of the latest values of one key."""
        return self._totals.get(key, 0), len(self._kept.get(key, ()))

    @property
    def mean(self) -> float:
        """0 when empty, as is `deviation`."""
        return self.total / self.count if self.count else 0.0

    @property
    def deviation(self) -> float:
        spread = self.count * self.squares - self.total * self.total
        return sqrt(spread) / self.count if self.count else 0.0


class Residuals:
    """How far predictions were off, over all applications: |actual - predicted|, its mean D and standard deviation σ
    (EM-07).
    """

    def __init__(self, initial_ns: int) -> None:
        self._initial_ns = initial_ns
        self._windows = Windows()

    def add(self, application: str, predicted_ns: int, actual_ns: int) -> None:
        self._windows.add(application, abs(actual_ns - predicted_ns))

    def forget(self, application: str) -> None:
        self._windows.forget(application)

    def delta_ns(self, alpha: float = ALPHA) -> int:
        """Δ = D + α·σ, never negative; the lower sign of the paper's D ± α·σ is a negative α.

        `initial_ns` before the first residual.

        Raises: ValueError for |α| > 2.
        """
        if not -ALPHA_MAX <= alpha <= ALPHA_MAX:
            raise ValueError(f"alpha is {alpha}; it goes from -{ALPHA_MAX:g} to {ALPHA_MAX:g}")
        if not self._windows.count:
            return self._initial_ns
        return max(0, round(self._windows.mean + alpha * self._windows.deviation))

    def own_ns(self, application: str) -> int | None:
        """D of one application; None while it has few residuals of its own."""
        own_ns = self._windows.mean_of(application, _ENOUGH)
        return None if own_ns is None else round(own_ns)

    def mean_ns(self) -> int:
        """D over all applications; `initial_ns` before the first residual."""
        return round(self._windows.mean) if self._windows.count else self._initial_ns


class HitRates:
    """The share of an application's predictions that are true: requests came when they said, rather than when any
    request might have.

    Each request is one of the two, with the chances that its time gives them: by the prediction, a Laplace residual of
    the known mean size; or by the rate alone. The rate of hits is the mean of the chances of the latest requests, and a
    few before the first.
    """

    def __init__(self) -> None:
        self._windows = Windows()
        self._found: dict[str, float] = {}
        """What `of` found since the last change: every decision asks for it of everybody."""

    def add(self, application: str, chance: float) -> None:
        """Of having been predicted; see `hit_chance`."""
        self._windows.add(application, round(chance * _PARTS))
        self._found.pop(application, None)

    def forget(self, application: str) -> None:
        self._windows.forget(application)
        self._found.pop(application, None)

    def share(self, application: str) -> float:
        """The mean chance, in (0, 1)."""
        total, count = self._windows.sum_of(application)
        return (HITS_FIRST * HIT_RATE_FIRST + total / _PARTS) / (HITS_FIRST + count)

    def of(self, application: str) -> float:
        """The chance that `_IN_A_ROW` requests would all be predicted, against none of them: what tells a forecast
        from none.
        """
        found = self._found.get(application)
        if found is None:
            share = self.share(application)
            found = share**_IN_A_ROW / (share**_IN_A_ROW + (1 - share) ** _IN_A_ROW)
            self._found[application] = found
        return found


def hit_chance(
    hit_rate: float, since_ns: int, predicted_ns: int, actual_ns: int, spread_ns: float, rate: float
) -> float:
    """P(a request was predicted | when it came), for one that came after `since_ns`; `rate` in requests per
    nanosecond.
    """
    spread_ns = max(1.0, spread_ns)
    if predicted_ns <= since_ns:  # overdue from the start: likely at once, and less with every moment
        by_prediction = exp(-min(_FAR, (actual_ns - since_ns) / spread_ns)) / spread_ns
    else:
        come_before = 0.5 * exp(-min(_FAR, (predicted_ns - since_ns) / spread_ns))
        by_prediction = 0.5 * exp(-min(_FAR, abs(actual_ns - predicted_ns) / spread_ns)) / spread_ns / (1 - come_before)
    by_rate = rate * exp(-min(_FAR, rate * (actual_ns - since_ns)))
    hit = hit_rate * by_prediction
    return hit / (hit + (1 - hit_rate) * by_rate)


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
