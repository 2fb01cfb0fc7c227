"""Recent counts: how much of what was promised was kept of late.

The window is the last five minutes in which something was counted, an hour back at most. So a promise that was broken
is not forgotten while nobody asks, and one late frame among many decides nothing.
"""

from collections import deque
from typing import NamedTuple

SLOT_S = 10
SLOTS_MAX = 30
AGE_MAX_S = 3600


class Share(NamedTuple):
    """A number of requests, frames, windows or loads, and how many of them were as promised."""

    counted: int = 0
    kept: int = 0

    @property
    def missed(self) -> int:
        return self.counted - self.kept


NOTHING = Share()


class RecentCounts:
    """Counts of one thing, from totals that only rise."""

    def __init__(self) -> None:
        self._totals = Share()
        self._slots: deque[tuple[int, Share]] = deque(maxlen=SLOTS_MAX)

    def look(self, now_s: int, totals: Share) -> Share:
        """Take the totals as they are now; return the sums over the window. Totals that fall were counted anew."""
        if totals.counted < self._totals.counted or totals.kept < self._totals.kept:
            self._totals = Share()
            self._slots.clear()
        new = Share(totals.counted - self._totals.counted, totals.kept - self._totals.kept)
        self._totals = totals
        if new.counted:
            self._add(now_s // SLOT_S, new)
        while self._slots and now_s // SLOT_S - self._slots[0][0] > AGE_MAX_S // SLOT_S:
            self._slots.popleft()
        return Share(sum(one.counted for _, one in self._slots), sum(one.kept for _, one in self._slots))

    def _add(self, slot: int, new: Share) -> None:
        if self._slots and self._slots[-1][0] == slot:
            before = self._slots.pop()[1]
            new = Share(before.counted + new.counted, before.kept + new.kept)
        self._slots.append((slot, new))
