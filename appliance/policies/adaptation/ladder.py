"""A search over networks alone: which level of accuracy each worker has, with clients given out greedily.

The paper's two sub-problems (§IV-B, §IV-C) with other means: no annealing but the first better neighbour, from a level
that all workers can have; no dynamic program but the patterns of the level; and boards that begin with the same workers
share the work.
"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from appliance.policies.adaptation.options import Bools, Floats, Options, distinct
from appliance.policies.adaptation.patterns import Ints, Patterns

RUNG_WORK = 2_500
"""What one worker costs, in the unit of `pairs.BOUND_WORK`."""

MOVES = ((1,), (2,), (1, -1), (1, -2), (2, -1), (1, -1, -1), (1, 1, -1), (-1,))
"""By how many levels one, two or three workers move together, in the order of trying; a worker alone goes down where
that lets it carry more.
"""

State = tuple[int, ...]
"""Levels of the workers, descending; a level is an index into the distinct accuracies, ascending."""


@dataclass(frozen=True, slots=True)
class Rung:
    """The first workers of a state with their clients: pattern and clients of the last one, those left, and how many
    are left by option and rate.
    """

    parent: "Rung | None"
    option: int
    clients: tuple[int, ...]
    left: Bools
    takers: Floats
    mapped: int
    objective: float


class Ladder:
    """Levels for one problem.

    `noise` (float64[P], in requests per second) makes patterns look larger than they are, for other ways up.
    """

    def __init__(self, options: Options, patterns: Patterns, workers: int, noise: Floats | None = None) -> None:
        self._rates = patterns.rates
        self._workers = workers
        self.work = 0
        accuracies = distinct(options.accuracy)
        level = np.searchsorted(accuracies, options.accuracy)
        self.levels = len(accuracies)
        self._accuracy = accuracies
        noise = np.zeros(len(patterns.option)) if noise is None else noise
        of_level = [np.flatnonzero(level[patterns.option] == j) for j in range(len(accuracies))]
        self._patterns = [(patterns.option[chosen], patterns.places[chosen], noise[chosen]) for chosen in of_level]
        size = options.tolerated.sum(axis=1)
        order = np.lexsort((np.arange(len(size)), size))
        self._of_kind: list[Ints] = [order[patterns.kind[order] == r] for r in range(len(patterns.rates))]
        self._is_kind = np.stack([patterns.kind == r for r in range(len(patterns.rates))], axis=1).astype(np.float64)
        self._tolerated = options.tolerated.astype(np.float64)
        self._takers: list[Bools] = list(np.ascontiguousarray(options.tolerated.T))
        self._rungs: dict[State, Rung] = {}
        left: Bools = np.array(options.tolerated.any(axis=1))
        self._ground = Rung(None, 0, (), left, self._tolerated.T @ self._is_kind, 0, 0.0)

    def climb(self, work_max: int) -> Rung:
        """The best state found from the highest level that maps as many as the lowest does."""
        state = self._start()
        best = self.rung(state)
        gained = True
        while gained and self.work < work_max:
            gained = False
            for neighbour in self._neighbours(state):
                found = self.rung(neighbour)
                if _better(found, best):
                    state, best, gained = neighbour, found, True
                    break
                if self.work >= work_max:
                    break
        return best

    def rung(self, state: State) -> Rung:
        """The greedy board of a state: workers by descending level, each with the pattern that carries the most."""
        known = self._rungs.get(state)
        if known is None:
            known = self._next(self.rung(state[:-1]) if len(state) > 1 else self._ground, state[-1])
            self._rungs[state] = known
        return known

    def _start(self) -> State:
        lowest = (0,) * self._workers
        low, high = 0, self.levels - 1
        while low < high:
            middle = (low + high + 1) // 2
            if self.rung((middle,) * self._workers).mapped >= self.rung(lowest).mapped:
                low = middle
            else:
                high = middle - 1
        return (low,) * self._workers

    def _neighbours(self, state: State) -> Iterator[State]:
        """The states that are one of MOVES away, each once."""
        distinct = sorted(set(state), reverse=True)
        seen = {state}
        for steps in MOVES:
            for sources in itertools.product(distinct, repeat=len(steps)):
                moved = self._moved(state, sources, steps)
                if moved is not None and moved not in seen:
                    seen.add(moved)
                    yield moved

    def _moved(self, state: State, sources: Sequence[int], steps: Sequence[int]) -> State | None:
        """The state with one worker of each source level moved by its step; None where there is no such worker or
        level.
        """
        moved = list(state)
        for source, step in zip(sources, steps, strict=True):
            if source not in moved or not 0 <= source + step < self.levels:
                return None
            moved.remove(source)
        moved += [source + step for source, step in zip(sources, steps, strict=True)]
        return tuple(sorted(moved, reverse=True))

    def _next(self, below: Rung, level: int) -> Rung:
        self.work += RUNG_WORK
        options, most, noise = self._patterns[level]
        places = np.minimum(most, below.takers[options])
        best = int((places @ self._rates + noise).argmax())
        option = int(options[best])
        clients = self._seated(below, option, places[best].tolist())
        left = below.left.copy()
        left[clients] = False
        takers = below.takers - self._tolerated[clients].T @ self._is_kind[clients]
        objective = below.objective + float(self._accuracy[level] * (places[best] @ self._rates))
        return Rung(below, option, tuple(clients), left, takers, below.mapped + len(clients), objective)

    def _seated(self, below: Rung, option: int, places: Sequence[float]) -> list[int]:
        """Clients for the places, those who tolerate the least first: the rest can go to more of the workers to
        come.
        """
        takers = below.left & self._takers[option]
        clients: list[int] = []
        for order, n in zip(self._of_kind, places, strict=True):
            if n:
                clients += order[takers[order]][: int(n)].tolist()
        return clients


def _better(found: Rung, best: Rung) -> bool:
    return (found.mapped, found.objective) > (best.mapped, best.objective + 1e-9)
