"""P(r_j | A_i ∈ A*): how likely an application is to be requested unexpectedly while another one is in its window
(EM-19), learnt as windows close.

The caller owns one `Companions` on its loop. It tells, when a window of i closes, which applications came in it without
being expected.
"""

from collections import deque
from collections.abc import Collection, Iterator, Mapping
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
        self._beside: dict[str, dict[str, int]] = {}
        """Active application → who came unexpectedly, in how many of its windows."""
        self._seen: dict[str, int] = {}
        """Application → how many windows of it are remembered."""
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

    def beside(self, active: str) -> Mapping[str, float]:
        """P(r_j | active) of every application j, as it is known now; O(n) to take, little, and each O(1) to find."""
        pairs = self._beside.get(active, {})
        return _Beside(active, dict(pairs), dict(self._came), dict(self._seen), self._count)

    def forget(self, application: str) -> None:
        """It is gone: its windows, and its share in those of others."""
        for came in self._windows.pop(application, ()):
            self._take(application, came, -1)
        for active, pairs in self._beside.items():
            if pairs.pop(application, 0):
                self._windows[active] = deque(came - {application} for came in self._windows[active])
        self._came.pop(application, None)

    def _take(self, active: str, came: frozenset[str], sign: int) -> None:
        self._count += sign
        _add(self._seen, active, sign)
        pairs = self._beside.setdefault(active, {})
        for application in came:
            _add(pairs, application, sign)
            _add(self._came, application, sign)
        if not pairs:
            del self._beside[active]


class _Beside(Mapping[str, float]):
    """What is known of those who come beside one that is active. Has an answer for everybody, and lists those seen."""

    def __init__(
        self, active: str, pairs: Mapping[str, int], came: Mapping[str, int], seen: Mapping[str, int], count: int
    ) -> None:
        self._active = active
        self._pairs = pairs
        self._came = came
        self._seen = seen
        self._count = count

    def __getitem__(self, application: str) -> float:
        if application == self._active:
            return 0.0
        own = self._seen.get(application, 0)
        base = (PRIOR_WINDOWS * PRIOR_MEAN + self._came.get(application, 0)) / (PRIOR_WINDOWS + self._count - own)
        seen = self._seen.get(self._active, 0)
        return (SHRINK_WINDOWS * base + self._pairs.get(application, 0)) / (SHRINK_WINDOWS + seen)

    def __iter__(self) -> Iterator[str]:
        return iter({**self._came, **self._seen})

    def __len__(self) -> int:
        return len({**self._came, **self._seen})


def _add(counts: dict[Key, int], key: Key, sign: int) -> None:
    counts[key] = counts.get(key, 0) + sign
    if not counts[key]:
        del counts[key]
