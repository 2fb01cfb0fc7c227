"""What a clairvoyant could reach at best: the fewest cold starts, and the most utility with a given number of them.

Bounds, not schedules.

Why they are bounds. Take any run of the engine on this box, under whatever policy, and read off it what `chains` asks:
which variants were there when a request came, whether they had been there at the request before, or had come since.
Every constraint holds in it, for none asks more than the emulated processor enforces: nothing is there at the start; a
load takes at least its time, and memory from its beginning on; a variant in use stays until its run is over, and its
memory until it is unloaded; what is in memory at an instant fits. The programme chooses among all such readings, so its
optimum is never worse than a run's. It may still do what no run can: load any number of variants at once and in no more
than their size, run all requests at once, and look only at the requests' own loads.

For utility, a request that is not warm is given the most accurate variant that could be loaded for it, and costs no
memory at all; but at most `cold_max` requests may be not warm. Without that limit the bound would be to serve everybody
cold with the best variant, which utility alone does not forbid.

How near the truth they are is told by `clairvoyant`, which carries a plan out, and by a comparison with all plans of
small problems in the tests.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from appliance.lab.clairvoyant.chains import Ask, Chains, Schedule

_MARGIN = 1e-6
"""Added for what the solver calls feasible."""


@dataclass(frozen=True, slots=True)
class Bound:
    """`cold_least` requests cannot be warm, whatever is done; `utility_most` is per request, with at most `cold_max`
    of them not warm.
    """

    cold_least: float
    utility_most: float


def bound(schedule: Schedule, *, cold_max: float | None = None) -> Bound:
    """Both bounds. Without `cold_max` (requests) any number may be cold. Raises: ValueError without requests."""
    return bounds(schedule, [cold_max])[0]


def bounds(schedule: Schedule, colds_max: Sequence[float | None]) -> list[Bound]:
    """The bounds for several numbers of cold requests; cheaper together. Raises: ValueError without requests."""
    if not schedule.asks:
        raise ValueError("no arrivals, so no bound")
    chains = Chains(schedule)
    total = len(schedule.asks)
    most_warm = chains.most(dict.fromkeys(chains.warm.values(), 1.0)).bound
    cold_least = max(0.0, total - most_warm - _MARGIN * total)
    cold = [_best_cold(schedule, ask) for ask in schedule.asks]
    gains = {
        column: schedule.choices[schedule.asks[place.ask].model][place.rank].accuracy - cold[place.ask]
        for place, column in chains.warm.items()
    }

    @cache
    def utility_most(allowed: float) -> float:
        gain = chains.most(gains, max(0.0, total - allowed - 2 * _MARGIN * total)).bound
        return (sum(cold) + gain) / total + _MARGIN

    allowed = [total if c is None else min(total, max(c, cold_least)) for c in colds_max]
    return [Bound(cold_least, utility_most(each)) for each in allowed]


def _best_cold(schedule: Schedule, ask: Ask) -> float:
    """The accuracy of the best variant that fits when nothing else is there, and whose load ends in time; 0 where
    there is none.
    """
    return max(
        (
            c.accuracy
            for c in schedule.choices[ask.model]
            if c.bytes <= schedule.memory_bytes and c.load_ns + c.run_ns <= ask.at_ns + ask.patience_ns
        ),
        default=0.0,
    )
