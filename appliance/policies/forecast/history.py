"""What every forecaster does with a history of arrivals: its latest gaps, what to say when the predicted time has
passed, and when to say nothing more.
"""

from collections.abc import Sequence
from operator import sub

LOOKBACK = 64
"""Arrivals looked at, at most."""
ENDED_AFTER = 8
"""A forecast ends when the silence is this many times as long as the longest of the latest gaps.

The next gap is longer than the longest of n once in n + 1 times, and where long gaps are as frequent as in the
heaviest tails (1 / length) eight times as long once in 8n + 1. Whoever comes back after that starts cold once, as it
did at first."""


def latest_gaps(arrivals_ns: Sequence[int], count: int = LOOKBACK - 1) -> list[int]:
    """Up to `count` latest inter-arrival times, oldest first; one fewer than the arrivals where those are few."""
    recent = arrivals_ns[-count - 1 :]
    return list(map(sub, recent[1:], recent))


def next_ns(arrivals_ns: Sequence[int], gap_ns: int, now_ns: int) -> int:
    """`gap_ns` after the last of at least two arrivals; where that has passed, as long again from now as it is late,
    and no later than the median of the
    latest gaps that are longer than the silence: always after now.

    So a request slightly late is expected at any moment, and one that stays away when such gaps usually end. Longer
    silent than ever nothing is known but how late it is: as long again is the median of what is left (of a density like
    1 / lateness), so each time that nobody comes the next request is expected twice as late.
    """
    due_ns = arrivals_ns[-1] + gap_ns
    if due_ns > now_ns:
        return due_ns
    wait_ns, silence_ns = now_ns - due_ns, now_ns - arrivals_ns[-1]
    longer = sorted([gap for gap in latest_gaps(arrivals_ns) if gap > silence_ns])  # no generator: it resumes 64 times
    if longer:
        wait_ns = min(wait_ns, longer[(len(longer) - 1) // 2] - silence_ns)
    return now_ns + max(1, wait_ns)


def has_ended(arrivals_ns: Sequence[int], now_ns: int) -> bool:
    """Whether the silence since the last of at least two arrivals is so long that nothing is expected until the next
    one.
    """
    silence_ns = now_ns - arrivals_ns[-1]
    return silence_ns > 0 and silence_ns > ENDED_AFTER * max(latest_gaps(arrivals_ns))
