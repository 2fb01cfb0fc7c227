"""What runs that belong to no session take of a worker's time. Whoever asks gets what it is of late at that instant, so
that the first promise after a while without any goes by it, too.
"""

from math import exp

from appliance.clock import NS_PER_S

SMOOTHING_NS = 2 * NS_PER_S
"""Time constant of the mean."""
LONGEST_NS = 10 * NS_PER_S
"""So long the longest run counts where no longer one comes."""


class UnplannedRuns:
    """Of one worker."""

    __slots__ = ("_at_ns", "_longest_at_ns", "_longest_ns", "_share")

    def __init__(self) -> None:
        self._share = 0.0
        """As it was at `_at_ns`."""
        self._at_ns = 0
        self._longest_ns = 0
        self._longest_at_ns = 0

    def ran(self, took_ns: int, now_ns: int) -> None:
        """One has ended."""
        self._share = min(1.0, self.share(now_ns) + 1.0 - exp(-took_ns / SMOOTHING_NS))
        self._at_ns = now_ns
        if took_ns >= self.longest_ns(now_ns):
            self._longest_ns, self._longest_at_ns = took_ns, now_ns

    def share(self, now_ns: int) -> float:
        """Of the worker's time, 0 to 1: the mean over the past, where what lies `SMOOTHING_NS` back counts 1/e of what
        is now."""
        return self._share * exp((self._at_ns - now_ns) / SMOOTHING_NS)

    def longest_ns(self, now_ns: int) -> int:
        """Of the runs of late; 0: there was none."""
        return self._longest_ns if now_ns - self._longest_at_ns <= LONGEST_NS else 0
