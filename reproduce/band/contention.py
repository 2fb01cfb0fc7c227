"""Applications that send to one processor without coordination (§6.4's baseline): runs share it, and slow each other.

How much, Table 1 measured with InceptionV4 on the Pixel 4's Edge TPU: 25.29, 35.86 and 56.94 ms with one, two and four
at once, and how far apart they were then.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random

ALONE_MS, TWO_MS, FOUR_MS = 25.29, 35.86, 56.94
SLOWER: Mapping[int, float] = {
    1: 1.0, 2: TWO_MS / ALONE_MS, 3: (TWO_MS + FOUR_MS) / 2 / ALONE_MS, 4: FOUR_MS / ALONE_MS
}  # fmt: skip
"""A run among so many; three lie between two and four."""
SPREAD: Mapping[int, float] = {1: 0.79 / 25.29, 2: 10.23 / 35.86, 3: 0.341, 4: 22.55 / 56.94}
"""Standard deviation / mean."""
AT_ONCE_MAX = 4


@dataclass(frozen=True, slots=True)
class Call:
    """A request of an application: when it comes, what it takes alone, until when it should be answered."""

    application: str
    at_ms: float
    alone_ms: float
    deadline_ms: float


@dataclass(slots=True)
class _Run:
    left_ms: float
    """Of what it would take alone."""
    deadline_ms: float


def in_time(calls: Sequence[Call], seed: int, *, drops_late: bool) -> float:
    """The share that is answered in time. An application has one run under way; its other calls wait, and are dropped
    where they cannot be in time any more, if `drops_late`.
    """
    random = Random(f"{seed}/contention")
    coming = deque(sorted(calls, key=lambda call: (call.at_ms, call.application)))
    waiting: dict[str, deque[Call]] = {call.application: deque() for call in coming}
    running: dict[str, _Run] = {}
    now_ms, kept, total = 0.0, 0, len(coming)
    while coming or running:
        slower = SLOWER[max(1, len(running))]
        first = min(running, key=lambda name: (running[name].left_ms, name), default=None)
        ends_ms = now_ms + running[first].left_ms * slower if first is not None else float("inf")
        comes_ms = coming[0].at_ms if coming else float("inf")
        then_ms = min(ends_ms, comes_ms)
        for run in running.values():
            run.left_ms -= (then_ms - now_ms) / slower
        now_ms = then_ms
        if first is not None and ends_ms <= comes_ms:
            name = first
            kept += now_ms <= running.pop(name).deadline_ms
        else:
            name = coming[0].application
            waiting[name].append(coming.popleft())
        while name not in running and waiting[name]:
            call = waiting[name].popleft()
            if drops_late and now_ms + call.alone_ms > call.deadline_ms:
                continue
            spread = SPREAD[min(AT_ONCE_MAX, len(running) + 1)]
            running[name] = _Run(call.alone_ms * random.lognormvariate(0.0, spread), call.deadline_ms)
    return kept / total
