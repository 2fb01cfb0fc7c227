"""Rounds of a benchmark in which the host left a virtual machine its processors.

On a shared host the time that others take shows as *steal*. A round is left out by that alone, never by what it
measured, and how many were left out is printed.
"""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from benchmarks import _results as results

STEAL_MAX = 0.02
"""Share of all processors' time that a round may lose."""
_STAT = Path("/proc/stat")
Round = TypeVar("Round")


def undisturbed(measure: Callable[[], Round], count: int, limit_s: float = 240) -> list[Round]:
    """So many rounds without steal, or fewer where the limit came first; at least one round, however it was."""
    kept: list[Round] = []
    disturbed: list[tuple[float, Round]] = []
    until = time.monotonic() + limit_s
    while len(kept) < count and (time.monotonic() < until or not (kept or disturbed)):
        start, before = time.monotonic(), stolen_s()
        found = measure()
        share = (stolen_s() - before) / (time.monotonic() - start) / (os.cpu_count() or 1)
        if share <= STEAL_MAX:
            kept.append(found)
        else:
            disturbed.append((share, found))
    if disturbed:
        least, most = min(share for share, _ in disturbed), max(share for share, _ in disturbed)
        results.say(
            f"left out: {len(disturbed)} of {len(kept) + len(disturbed)} rounds, {least:.0%} to {most:.0%} stolen"
        )
    if kept:
        return kept
    results.say("none undisturbed: the least disturbed round counts")
    return [min(disturbed, key=lambda one: one[0])[1]]


def stolen_s() -> float:
    """Processor seconds that the host took away since it started."""
    return int(_STAT.read_text().split("\n", 1)[0].split()[8]) / os.sysconf("SC_CLK_TCK")
