"""P(r_j | A_i ∈ A*): how likely an application is to be requested unexpectedly while another one is in its window
(EM-19), learnt as windows close.

The caller owns one `Companions` on its loop. It tells, when a window of i closes, which applications came in it without
being expected.
"""

from collections import deque
from collections.abc import Collection
from typing import TypeVar

Key = TypeVar("Key")

WINDOWS_MAX = 64
"""Windows remembered per application; older ones are forgotten, so that habits may change."""
PRIOR_MEAN = 0.05
PRIOR_WINDOWS = 20.0
"""Before anything is seen, j comes unexpectedly in one of 20 windows: Beta(1, 19)."""
SHRINK_WINDOWS = 4.0
"""What j does in windows of all applications counts as this many windows of i."""


class Companions:
    """The conditional is a posterior mean with a prior that is itself one:

    m_j = (PRIOR_WINDOWS·PRIOR_MEAN + n_j) / (PRIOR_WINDOWS + n) from all windows (its Beta prior: 1, 19), and
    P(r_j | i) = (SHRINK_WINDOWS·m_j + n_ij) / (SHRINK_WINDOWS + n_i), the prior Beta(4·m_j, 4·(1 - m_j)).

    n_i: windows of i remembered, n_ij: those in which j came, n and n_j: the same summed over i (without j's own
    windows, where it is expected). Memory: applications × `WINDOWS_MAX` sets.
    """

    def __init__(self, windows_max: int = WINDOWS_MAX) -> None:
        self._windows_max = windows_max
        self._windows: dict[str, deque[frozenset[str]]] = {}
        self._pairs: dict[tuple[str, str], int] = {}
        self._came: dict[str, int] = {}
        self._count = 0

    def observe(self, active: str, unexpected: Collection[str]) -> None:
        """A window of `active` has closed in which `unexpected` came; all others stayed away, or were expected."""
        windows = self._windows.setdefault(active, deque())
        if len(windows) == self._windows_max:
            self._take(active, windows.popleft(), -1)
        came = frozenset(unexpected) - {active}
        windows.append(came)
        self._take(active, came, 1)

    def probability(self, application: str, active: str) -> float:
        """P(r_application | active), in (0, 1); 0 for an application beside itself. O(1)."""
        if application == active:
            return 0.0
        own = len(self._windows.get(application, ()))
        base = (PRIOR_WINDOWS * PRIOR_MEAN + self._came.get(application, 0)) / (PRIOR_WINDOWS + self._count - own)
        seen = len(self._windows.get(active, ()))
        return (SHRINK_WINDOWS * base + self._pairs.get((application, active), 0)) / (SHRINK_WINDOWS + seen)

    def forget(self, application: str) -> None:
        """It is gone: its windows, and its share in those of others."""
        for came in self._windows.pop(application, ()):
            self._take(application, came, -1)
        for active, windows in self._windows.items():
            if self._pairs.pop((application, active), 0):
                self._windows[active] = deque(came - {application} for came in windows)
        self._came.pop(application, None)

    def _take(self, active: str, came: frozenset[str], sign: int) -> None:
        self._count += sign
        for application in came:
            _add(self._pairs, (application, active), sign)
            _add(self._came, application, sign)


def _add(counts: dict[Key, int], key: Key, sign: int) -> None:
    counts[key] = counts.get(key, 0) + sign
    if not counts[key]:
        del counts[key]
