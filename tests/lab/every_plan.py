"""The best that any plan can do, by trying all of them: for small problems in whole seconds, to hold the
clairvoyant's bounds against.
"""

from collections.abc import Iterator
from functools import cache
from itertools import product

from appliance.lab.clairvoyant.chains import Choice, Schedule

S = 1_000_000_000
ABSENT, RESIDENT = 0, -1
"""A build's state: absent, resident, or the seconds until its load ends."""
_Builds = tuple[int, ...]
_Waiting = tuple[int, ...]
"""Indices of requests that came cold and were not served yet."""


def best_by_cold(schedule: Schedule) -> dict[int, float]:
    """Requests not warm → the most accuracy in sum with exactly so many.

    Loads, any number at once, begin at whole seconds; unloading and runs are instant.
    """
    keys = [(m, r) for m, choices in enumerate(schedule.choices) for r in range(len(choices))]
    choices = [schedule.choices[m][r] for m, r in keys]
    end = max(ask.at_ns for ask in schedule.asks) // S + max(c.load_ns for c in choices) // S

    def fits(builds: _Builds) -> bool:
        return (
            sum(c.bytes for c, state in zip(choices, builds, strict=True) if state != ABSENT) <= schedule.memory_bytes
        )

    def served(builds: _Builds, ask: int) -> list[float]:
        model = schedule.asks[ask].model
        return [
            c.accuracy
            for (m, _), c, state in zip(keys, choices, builds, strict=True)
            if m == model and state == RESIDENT
        ]

    @cache
    def best(second: int, builds: _Builds, waiting: _Waiting) -> dict[int, float]:
        """From the moment at which loads that end now have ended, and before requests of now come."""
        accuracy, cold = 0.0, 0
        left = []
        for ask in waiting:
            if schedule.asks[ask].at_ns + schedule.asks[ask].patience_ns >= second * S:
                accuracies = served(builds, ask)
                accuracy += max(accuracies, default=0.0)
                left += [] if accuracies else [ask]
        for number, ask_ in enumerate(schedule.asks):
            if ask_.at_ns == second * S:
                accuracies = served(builds, number)
                accuracy += max(accuracies, default=0.0)
                cold += not accuracies
                left += [] if accuracies else [number]
        found: dict[int, float] = {}
        afters = [] if second >= end else [after for after in _steps(builds, choices) if fits(after)]
        for rest in [best(second + 1, after, tuple(left)) for after in afters] or [{0: 0.0}]:
            for count, value in rest.items():
                found[count + cold] = max(found.get(count + cold, 0.0), value + accuracy)
        return found

    return best(0, (ABSENT,) * len(keys), ())


def _steps(builds: _Builds, choices: list[Choice]) -> Iterator[_Builds]:
    """The states a second later, whatever is begun and dropped now."""

    def ways(state: int, choice: Choice) -> tuple[int, ...]:
        load_s = choice.load_ns // S
        if state == ABSENT:
            return (ABSENT, RESIDENT if load_s == 1 else load_s - 1)
        if state == RESIDENT:
            return (RESIDENT, ABSENT)
        return (RESIDENT if state == 1 else state - 1,)

    yield from product(*(ways(state, choice) for state, choice in zip(builds, choices, strict=True)))
