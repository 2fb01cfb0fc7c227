"""What every forecaster does with a history of arrivals: its latest gaps, and what to say when the predicted time has passed."""

from collections.abc import Sequence
from operator import sub

LOOKBACK = 64
"""Arrivals looked at, at most."""


def latest_gaps(arrivals_ns: Sequence[int], count: int = LOOKBACK - 1) -> list[int]:
    """Up to `count` latest inter-arrival times, oldest first; one fewer than the arrivals where those are few."""
    recent = arrivals_ns[-count - 1 :]
    return list(map(sub, recent[1:], recent))


def next_ns(last_ns: int, gap_ns: int, now_ns: int) -> int:
    """`gap_ns` after the last arrival; where that has passed, as long again from now as it is late, at most one gap: always after now.

    So a request slightly late is expected at any moment, and one that stays away is expected later and later, but never given up.
    """
    due_ns = last_ns + gap_ns
    if due_ns > now_ns:
        return due_ns
    return now_ns + max(1, min(now_ns - due_ns, gap_ns))
