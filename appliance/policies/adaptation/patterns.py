"""How many clients of each rate fit into an option together: the few rates of a problem make its bin packing small."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from appliance.policies.adaptation.options import Options


@dataclass(frozen=True, slots=True)
class Pattern:
    """Places by rate in one instance of an option; together within its capacity."""

    option: int
    places: Mapping[float, int]


def patterns_of(options: Options, most: int) -> tuple[Pattern, ...] | None:
    """All patterns of all options to which no place can be added; None when there are more than `most`.

    A pattern never has more places of a rate than clients that tolerate the option.
    """
    rates = sorted({float(rate) for rate in options.rates}, reverse=True)
    patterns: list[Pattern] = []
    for option in range(len(options.batches)):
        takers = options.rates[options.tolerated[:, option]]
        limits = [int((takers == rate).sum()) for rate in rates]
        for counts in _maximal(rates, limits, float(options.capacity[option])):
            patterns.append(Pattern(option, {rate: n for rate, n in zip(rates, counts, strict=True) if n}))
            if len(patterns) > most:
                return None
    return tuple(patterns)


def _maximal(rates: Sequence[float], limits: Sequence[int], capacity: float) -> Iterator[list[int]]:
    """Counts by rate (descending) within the capacity to which no client can be added. Rates must be sorted."""
    counts = [0] * len(rates)

    def below(index: int, room: float) -> Iterator[list[int]]:
        if index == len(rates):
            if not any(counts[r] < limits[r] and rates[r] <= room for r in range(len(rates))):
                yield list(counts)
            return
        for n in range(min(limits[index], int(room // rates[index])), -1, -1):
            counts[index] = n
            yield from below(index + 1, room - n * rates[index])

    return below(0, capacity)
