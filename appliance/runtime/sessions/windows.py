"""In how many stretches of time a promise was kept: 10 s each for latency, 1 s for accuracy.

Only whole windows in which the session was served count, and of latency only those in which frames came. When a session
is removed, the window under way is broken, and so is each whole one until it is served again.
"""

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from appliance.clock import NS_PER_S

LATENCY_NS = 10 * NS_PER_S
ACCURACY_NS = NS_PER_S
MISSES_MAX = 0.01
"""Share of a window's frames that may not be in time (the paper's target, JF-28)."""
RESULTS_MAX = 256


class LatencyWindows:
    """Of a promise of latency."""

    def __init__(self) -> None:
        self.windows = self.kept = 0
        self._since_ns: int | None = None
        self._due = self._missed = 0
        self._is_removed = False

    def begin(self, now_ns: int) -> None:
        """It is served from now on."""
        if self._since_ns is None or self._is_removed:
            self._since_ns, self._due, self._missed = now_ns, 0, 0
            self._is_removed = False

    def remove(self, now_ns: int) -> None:
        """Its promise is kept no more although it would be served: count the window under way, and those that follow
        until `begin` or `stop`, as broken.
        """
        self.roll(now_ns)
        if self._since_ns is not None:
            self.windows += 1
            self._since_ns, self._is_removed = now_ns, True

    def stop(self) -> None:
        """It is served no more; the window under way does not count."""
        self._since_ns, self._is_removed = None, False

    def ended(self, now_ns: int, *, in_time: bool) -> None:
        """A frame has ended."""
        self.roll(now_ns)
        self._due += 1
        self._missed += not in_time

    def roll(self, now_ns: int) -> None:
        """Close the windows that are over."""
        if self._since_ns is None or now_ns - self._since_ns < LATENCY_NS:
            return
        if self._is_removed:
            self.windows += (now_ns - self._since_ns) // LATENCY_NS
        elif self._due:
            self.windows += 1
            self.kept += self._missed <= MISSES_MAX * self._due
        self._since_ns += (now_ns - self._since_ns) // LATENCY_NS * LATENCY_NS
        self._due = self._missed = 0


class ClosedWindow(NamedTuple):
    """A window that is over and in which results were shown."""

    stride: float
    """Mean age of the results, in frames."""
    drop: float
    """Share of 1."""


class AccuracyWindows:
    """Of a promise of accuracy: the age of what is shown, in frames (AR-01), by window."""

    def __init__(self) -> None:
        self.windows = self.kept = 0
        self.last_drop: float | None = None
        """Of the last window, as a share of 1."""
        self._since_ns: int | None = None
        self._is_removed = False
        self._results: deque[tuple[int, int, str]] = deque(maxlen=RESULTS_MAX)
        """(shown from, captured at, variant) of results, in the order of the first two."""

    def begin(self, now_ns: int) -> None:
        """It is served from now on."""
        if self._since_ns is None or self._is_removed:
            self._since_ns, self._is_removed = now_ns, False

    def remove(self, now_ns: int) -> None:
        """Its promise is kept no more although it would be served: count the window under way, and those that follow
        until `begin` or `stop`, as broken.
        """
        if self._since_ns is not None:
            self.windows += 1
            self._since_ns, self._is_removed = now_ns, True
            self._results.clear()

    def stop(self) -> None:
        """It is served no more; the window under way does not count."""
        self._since_ns, self._is_removed = None, False
        self._results.clear()

    def shown(self, captured_ns: int, shown_ns: int, variant: str = "") -> None:
        """The device shows a result of a variant from now on; one older than what is shown already counts nothing."""
        if not self._results or (captured_ns > self._results[-1][1] and shown_ns >= self._results[-1][0]):
            self._results.append((shown_ns, captured_ns, variant))

    def roll(
        self, now_ns: int, fps: float, drop_of: Callable[[float, str], float], drop_max: float
    ) -> list[ClosedWindow]:
        """Close the windows that are over and return them. `drop_of`: drop of a variant at a mean stride."""
        closed = []
        while self._since_ns is not None and now_ns - self._since_ns >= ACCURACY_NS:
            shown = self._strides(self._since_ns, self._since_ns + ACCURACY_NS, fps)
            if self._is_removed:
                self.windows += 1
            elif shown:
                self.windows += 1
                self.last_drop = sum(share * drop_of(stride, variant) for variant, (share, stride) in shown.items())
                self.kept += self.last_drop <= drop_max + 1e-9
                closed.append(ClosedWindow(sum(share * stride for share, stride in shown.values()), self.last_drop))
            self._since_ns += ACCURACY_NS
            while len(self._results) > 1 and self._results[1][0] <= self._since_ns:
                self._results.popleft()
        return closed

    def _strides(self, from_ns: int, to_ns: int, fps: float) -> dict[str, tuple[float, float]]:
        """Variant → (share of the time in which results of it were shown, their mean age in frames); empty where
        nothing was shown from the start on."""
        if not self._results or self._results[0][0] > from_ns:
            return {}
        shown: dict[str, list[float]] = {}
        for at, (shown_ns, captured_ns, variant) in enumerate(self._results):
            begin_ns = max(from_ns, shown_ns)
            end_ns = min(to_ns, self._results[at + 1][0]) if at + 1 < len(self._results) else to_ns
            if end_ns > begin_ns:
                sums = shown.setdefault(variant, [0.0, 0.0])
                sums[0] += end_ns - begin_ns
                sums[1] += (end_ns - begin_ns) * ((begin_ns + end_ns) / 2 - captured_ns)
        # A frame is shown for as long as the next one takes: on average half a frame beyond its own time.
        return {
            variant: (took_ns / (to_ns - from_ns), max(0.0, area / took_ns * fps / NS_PER_S - 0.5))
            for variant, (took_ns, area) in shown.items()
        }
