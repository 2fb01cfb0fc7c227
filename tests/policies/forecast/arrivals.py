"""Histories of arrivals by pattern, from a seed; times in nanoseconds."""

from collections.abc import Callable, Iterable, Mapping
from random import Random

SECOND = 1_000_000_000


def arrivals(gaps_s: Iterable[float]) -> list[int]:
    """The first gap counts from time 0."""
    now_ns, found = 0, []
    for gap in gaps_s:
        now_ns += max(1, int(gap * SECOND))
        found.append(now_ns)
    return found


def periodic(draw: Random, count: int) -> list[int]:
    return arrivals(draw.gauss(1.0, 0.05) for _ in range(count))


def poisson(draw: Random, count: int) -> list[int]:
    return arrivals(draw.expovariate(1.0) for _ in range(count))


def alternating(draw: Random, count: int) -> list[int]:
    """One second, three seconds, one, three ..."""
    return arrivals((1.0 if i % 2 else 3.0) * draw.gauss(1.0, 0.02) for i in range(count))


def counted_bursts(draw: Random, count: int) -> list[int]:
    """Five requests in a row, then silence: a recurrent network can count, a mean cannot."""
    return arrivals((0.1 if i % 5 else 10.0) * draw.gauss(1.0, 0.05) for i in range(count))


def random_bursts(draw: Random, count: int) -> list[int]:
    return arrivals((0.1 if draw.random() < 0.75 else 10.0) * draw.gauss(1.0, 0.05) for _ in range(count))


def two_phase(draw: Random, count: int) -> list[int]:
    """Fifty requests at half a second each, fifty at five seconds each, and so on."""
    return arrivals((0.5 if (i // 50) % 2 else 5.0) * draw.gauss(1.0, 0.1) for i in range(count))


def slowing(draw: Random, count: int) -> list[int]:
    return arrivals((1.0 + i / 50.0) * draw.gauss(1.0, 0.1) for i in range(count))


PATTERNS: Mapping[str, Callable[[Random, int], list[int]]] = {
    "periodic": periodic,
    "poisson": poisson,
    "alternating": alternating,
    "counted bursts": counted_bursts,
    "random bursts": random_bursts,
    "two phases": two_phase,
    "slowing": slowing,
}
