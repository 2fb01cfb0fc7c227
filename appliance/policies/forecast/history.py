"""What every forecaster does with a history of arrivals: its latest gaps, what to say when the predicted time has passed, and when to say nothing more."""

from collections.abc import Sequence
from operator import sub

LOOKBACK = 64
"""Arrivals looked at, at most."""
ENDED_AFTER = 8
"""A forecast ends when the silence is this many times as long as the longest of the latest gaps. The next gap is longer than the longest of n once in n + 1
times, and where long gaps are as frequent as in the heaviest tails (1 / length) eight times as long once in 8n + 1. Whoever comes back after that starts
cold once, as it did at first."""


def latest_gaps(arrivals_ns: Sequence[int], count: int = LOOKBACK - 1) -> list[int]:
    """Up to `count` latest inter-arrival times, oldest first; one fewer than the arrivals where those are few."""
    recent = arrivals_ns[-count - 1 :]
    return list(map(sub, recent[1:], recent))


def next_ns(last_ns: int, gap_ns: int, now_ns: int) -> int:
    """`gap_ns` after the last arrival; where that has passed, as long again from now as it is late: always after now.

    That is the median of what is left where nothing is known but how late it is (a density of lateness like 1 / lateness). So a request slightly late is
    expected at any moment, and each time that nobody comes the next one is expected twice as late.
    """
    due_ns = last_ns + gap_ns
    return due_ns if due_ns > now_ns else now_ns + max(1, now_ns - due_ns)


def has_ended(arrivals_ns: Sequence[int], now_ns: int) -> bool:
    """Whether the silence since the last of at least two arrivals is so long that nothing is expected until the next one."""
    silence_ns = now_ns - arrivals_ns[-1]
    return silence_ns > 0 and silence_ns > ENDED_AFTER * max(latest_gaps(arrivals_ns))
