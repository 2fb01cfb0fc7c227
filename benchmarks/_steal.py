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
    rounds: list[tuple[float, Round]] = []
    until = time.monotonic() + limit_s
    while sum(share <= STEAL_MAX for share, _ in rounds) < count and (time.monotonic() < until or not rounds):
        start, before = time.monotonic(), stolen_s()
        found = measure()
        rounds.append(((stolen_s() - before) / (time.monotonic() - start) / (os.cpu_count() or 1), found))
    kept = [found for share, found in rounds if share <= STEAL_MAX]
    if lost := [share for share, _ in rounds if share > STEAL_MAX]:
        results.say(f"left out: {len(lost)} of {len(rounds)} rounds, {min(lost):.0%} to {max(lost):.0%} stolen")
    if not kept:
        results.say("none undisturbed: the least disturbed round counts")
    return kept or [min(rounds, key=lambda one: one[0])[1]]


def stolen_s() -> float:
    """Processor seconds that the host took away since it started."""
    return int(_STAT.read_text().split("\n", 1)[0].split()[8]) / os.sysconf("SC_CLK_TCK")
