"""A processor for each network, as common runtimes have it (Band §6.2): what runs where is written into the network,
so that whoever schedules has no choice left.
"""

from collections.abc import Sequence
from typing import Protocol, TypeVar


class HasProcessors(Protocol):
    @property
    def processors(self) -> frozenset[str]: ...


Part = TypeVar("Part", bound=HasProcessors)


def until_first_fallback(
    parts: Sequence[HasProcessors], home: frozenset[str], cpus: frozenset[str]
) -> list[frozenset[str]]:
    """Where each part of a chain runs: all after the first that `home` lacks on the CPU (TensorFlow Lite as it is)."""
    places: list[frozenset[str]] = []
    for part in parts:
        stays = home <= part.processors and (not places or places[-1] == home)
        places.append(home if stays else cpus)
    return places


def max_partition(parts: Sequence[HasProcessors], home: frozenset[str], cpus: frozenset[str]) -> list[frozenset[str]]:
    """The same, but whatever `home` can run runs there (TensorFlow Lite with maximal partitions)."""
    return [home if home <= part.processors else cpus for part in parts]
