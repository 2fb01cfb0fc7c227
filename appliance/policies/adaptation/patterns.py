"""How many clients of each rate fit into an option together: the few rates of a problem make its bin packing small."""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from appliance.policies.adaptation.options import Floats, Options, distinct

Ints = npt.NDArray[np.int64]

GRID_PER_PATTERN = 2
"""Of the combinations of counts that are tried, few are patterns; so many for each pattern allowed are looked at."""


@dataclass(frozen=True, slots=True)
class Patterns:
    """Places by rate in one instance of an option, together within its capacity; by option, so by descending accuracy.

    rates: float64[R], ascending; kind: int64[N], the rate of each client; option: int64[P]; places: float64[P, R],
    whole numbers.
    """

    rates: Floats
    kind: Ints
    option: Ints
    places: Floats


def patterns_of(options: Options, rates: Floats, most: int) -> Patterns | None:
    """All patterns to which no place can be added; None when there are more than `most`.

    `rates` are those to plan with, ascending: each client counts with the least that is not below its own. A pattern
    never has more places of a rate than clients that tolerate the option.
    """
    kind = np.searchsorted(rates, options.rates - 1e-12)
    members = np.stack([kind == r for r in range(len(rates))])
    takers = (members.astype(np.int64) @ options.tolerated.astype(np.int64)).T  # int64[O, R]
    limit = np.minimum(takers, options.capacity[:, None] // rates[None, :]).astype(np.int64)
    # The counts of all rates but the least are tried; of that one, which has the most, as many as fit.
    if math.prod(int(n) + 1 for n in limit.max(axis=0)[1:]) > GRID_PER_PATTERN * most:
        return None
    most_of = tuple(limit.max(axis=0)[1:] + 1)
    grid = np.indices(most_of).reshape(len(most_of), math.prod(most_of)).T
    load = grid @ rates[1:]
    found: list[tuple[Ints, Ints]] = []
    count = 0
    for option in range(len(options.batches)):
        chosen = _maximal(grid, load, takers[option], rates, float(options.capacity[option]))
        found.append((np.full(len(chosen), option), chosen))
        count += len(chosen)
        if count > most:
            return None
    places = np.concatenate([chosen for _, chosen in found]).astype(np.float64)
    return Patterns(rates, kind, np.concatenate([option for option, _ in found]), places)


def coarse_rates(options: Options, kinds: int) -> Floats:
    """At most `kinds` rates to plan with, such that rounding each client up to the next one adds the least rate in all.

    O(kinds · rates²).
    """
    rates = distinct(options.rates)
    if len(rates) <= kinds:
        return rates
    counts = np.bincount(np.searchsorted(rates, options.rates))
    total, weight = np.append(0.0, np.cumsum(rates * counts)), np.append(0, np.cumsum(counts))
    # waste[i, j]: what rounding rates i … j−1 up to rate j−1 adds
    waste = (weight[None, :] - weight[:, None]) * np.append(0.0, rates)[None, :] - (total[None, :] - total[:, None])
    waste[np.tril_indices(len(rates) + 1)] = np.inf
    best = waste[0]
    cuts: list[Ints] = []
    for _ in range(kinds - 1):
        through = best[:, None] + waste
        cuts.append(through.argmin(axis=0))
        best = through.min(axis=0)
    ends = [len(rates)]
    for cut in reversed(cuts):
        ends.append(int(cut[ends[-1]]))
    return rates[[end - 1 for end in reversed(ends)]]


def _maximal(grid: Ints, load: Floats, takers: Ints, rates: Floats, capacity: float) -> Ints:
    """The rows of the grid that fit, with as many of the least rate as fit beside, and to which no client can be
    added.
    """
    fits = (load <= capacity) & (grid <= takers[1:]).all(axis=1)
    least = np.minimum(takers[0], (capacity - load[fits]) // rates[0]).astype(np.int64)
    rows = np.column_stack((least, grid[fits]))
    carried = load[fits] + least * rates[0]
    full = (rows == takers) | (carried[:, None] + rates[None, :] > capacity)
    maximal: Ints = rows[full.all(axis=1)]
    return maximal
