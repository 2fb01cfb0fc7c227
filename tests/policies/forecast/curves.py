"""Use of memory over time, by shape."""

from random import Random

from appliance.policies.forecast.memory import MemorySample

SECOND = 1_000_000_000
MB = 1_000_000


def samples(available: list[int]) -> list[MemorySample]:
    """One a second."""
    return [MemorySample(k * SECOND, value) for k, value in enumerate(available)]


def falling(draw: Random, count: int) -> list[MemorySample]:
    return samples([max(0, 4_000 - 5 * k + draw.randint(-3, 3)) * MB for k in range(count)])


def sawtooth(draw: Random, count: int) -> list[MemorySample]:
    """Another process takes 100 MB a second for eight seconds, then gives all back at once: the network can tell
    where in the cycle it is.
    """
    return samples([(2_000 - 100 * (k % 8) + draw.randint(-2, 2)) * MB for k in range(count)])


def steady(draw: Random, count: int) -> list[MemorySample]:
    return samples([(2_000 + draw.randint(-20, 20)) * MB for _ in range(count)])
