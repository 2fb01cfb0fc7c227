"""Our own policy: clients are exchanged between pairs of workers, each time in the best way there is, until no pair can gain."""

import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from appliance.policies.adaptation.answer import assemble
from appliance.policies.adaptation.base import AdaptationInput, AdaptationPlan
from appliance.policies.adaptation.budgets import batch_for
from appliance.policies.adaptation.ladder import Ladder, Rung
from appliance.policies.adaptation.mapping import Mapped
from appliance.policies.adaptation.options import Bools, Options, options_of
from appliance.policies.adaptation.pairs import CALL_WORK, EMPTY, LEAST_GAIN, Held, PairSearch
from appliance.policies.adaptation.patterns import Patterns, coarse_rates, patterns_of

PATTERNS_MAX = 8000
"""More would make pairs dear; rates are then rounded up to fewer kinds."""
RATE_KINDS_MAX = 8
KICKS_AHEAD = 3
"""How many levels of accuracy an upgrade tries at most."""
BALANCE = 0.9
"""The share of an even part of the load that each worker of the balanced start takes at least."""


@dataclass(slots=True)
class Board:
    """Workers and the clients (indices) that none of them serves; the search changes it in place."""

    workers: list[Held]
    left: list[int]

    def copy(self) -> "Board":
        return Board(list(self.workers), list(self.left))


EMPTY_BOARD = Board([], [])


class Exchange:
    """Objective: most clients mapped, then Σ accuracy·rate; both at once by weights that keep the order.

    1. Options that others dominate are dropped (`options`); the few rates give patterns of places (`patterns`).
    2. Start: the previous networks, or a greedy one: the most clients worker by worker, or, where that maps all, even parts of the load.
    3. Descent: for each pair of workers, the exactly best division of their clients and the unmapped (`pairs`). For one or two workers that is the
       optimum. 4. Kicks, up to a bound on work: one worker's network is forced up and the others take what it drops, or divisions of equal worth are
       drawn by `seed`; what becomes better after a descent stays.
    The bound is a count of operations (`work_max`), not time, so equal input gives equal output. Ties: client and network names. Unlike annealing over
    networks with a greedy mapping (Jellyfish), a move here sees both workers' networks, batches and clients together.
    """

    def __init__(self, work_max: int | None = None) -> None:
        self._work_max = work_max

    def plan(self, problem: AdaptationInput) -> AdaptationPlan:
        options = options_of(problem)
        if not options.batches:
            return assemble(problem, (), "exchange")
        patterns = _patterns(options)
        search = _Search(problem, options, patterns, self._work_max or _work_max(problem.workers))
        board = search.run()
        mapped = _mapped(options, board)
        return assemble(problem, mapped, f"exchange, {search.divisions} divisions between two workers tried")


def _patterns(options: Options) -> Patterns:
    """With all rates where they are few enough, else rounded up to as many kinds as PATTERNS_MAX allows."""
    for kinds in range(RATE_KINDS_MAX, 1, -1):
        patterns = patterns_of(options, coarse_rates(options, kinds), PATTERNS_MAX)
        if patterns is not None:
            return patterns
    patterns = patterns_of(options, coarse_rates(options, 1), 1 << 30)
    assert patterns is not None
    return patterns


def _work_max(workers: int) -> int:
    """Enough for the descent and for kicks in proportion: 140 divisions for 4 workers, 260 for 8, 740 for 16."""
    return CALL_WORK * (100 + workers * workers * 5 // 2)


def _mapped(options: Options, board: Board) -> list[Mapped]:
    mapped: list[Mapped] = []
    for held in board.workers:
        network, clients = options.networks[held.option], tuple(options.clients[i] for i in held.clients)
        batch = batch_for(network, clients) if clients else None
        if batch is not None:
            mapped.append(Mapped(network, batch, clients))
    return mapped


class _Search:
    def __init__(self, problem: AdaptationInput, options: Options, patterns: Patterns, work_max: int) -> None:
        self._problem = problem
        self._options = options
        self._pairs = PairSearch(options, patterns)
        self._rates = patterns.rates[patterns.kind]
        self._work_max = work_max
        self._dice = random.Random(problem.seed)
        self._servable = [int(i) for i in np.flatnonzero(options.tolerated.any(axis=1))]
        self.divisions = 0

    def run(self) -> Board:
        best = EMPTY_BOARD
        for start in self._starts():
            self._descend(start, set())
            best = max(best, start, key=self._value)
        if self._problem.workers > 2:
            best = self._kicked(best)
        return best

    # Starts

    def _starts(self) -> list[Board]:
        """Boards to descend from: the best rung of the ladder, by clients too where not all can be mapped, and the previous networks."""
        starts = [self._climbed(by_count=False)]
        if starts[0].left:
            starts.append(self._climbed(by_count=True))
        if any(self._problem.previous):
            starts.append(self._warm())
        return starts

    def _climbed(self, by_count: bool) -> Board:
        ladder = Ladder(self._options, self._pairs.patterns, self._problem.workers, by_count)
        rung: Rung | None = ladder.climb(self._work_max // 2)
        self._pairs.work += ladder.work
        board = Board([], list(self._servable))
        while rung is not None and rung.parent is not None:
            self._give(board, Held(rung.option, rung.clients) if rung.clients else EMPTY)
            rung = rung.parent
        return board

    def _warm(self) -> Board:
        board = Board([], list(self._servable))
        names = np.array([network.name for network in self._options.networks])
        held_before = sorted(filter(None, self._problem.previous[: self._problem.workers]))
        for name in held_before:
            allowed = names == name
            held = self._pairs.best_single(board.left, allowed) if board.left and allowed.any() else EMPTY
            self._give(board, held)
        while len(board.workers) < self._problem.workers:
            self._give(board, self._pairs.best_single(board.left) if board.left else EMPTY)
        return board

    @staticmethod
    def _give(board: Board, held: Held) -> None:
        board.workers.append(held)
        board.left = sorted(set(board.left) - set(held.clients))

    # Descent

    def _descend(self, board: Board, settled: set[object], frozen: int | None = None) -> None:
        """Best divisions for all pairs but those with the `frozen` worker, until none gains; `settled` remembers what gains nothing."""
        gained = True
        while gained and self._pairs.work < self._work_max:
            gained = False
            self._sort(board)
            for a, b in itertools.combinations(range(len(board.workers)), 2):
                if frozen in (a, b) or self._pairs.work >= self._work_max:
                    continue
                gained |= self._divide(board, a, b, settled)

    def _sort(self, board: Board) -> None:
        for a, b in itertools.combinations(range(len(board.workers)), 2):
            board.workers[a], board.workers[b] = self._pairs.sorted_between(board.workers[a], board.workers[b])

    def _divide(self, board: Board, a: int, b: int, settled: set[object], dice: random.Random | None = None) -> bool:
        first, second = board.workers[a], board.workers[b]
        state = (first.clients, second.clients, tuple(board.left))
        pool = [*first.clients, *second.clients, *board.left]
        if not dice and state in settled:
            return False
        settled.add(state)
        self.divisions += 1
        found = self._pairs.best_pair(pool, self._pairs.value(first) + self._pairs.value(second), dice)
        if found is None:
            return False
        board.workers[a], board.workers[b] = found
        board.left = sorted(set(pool) - set(found[0].clients) - set(found[1].clients))
        return True

    def _value(self, board: Board) -> float:
        return sum(self._pairs.value(held) for held in board.workers)

    # Kicks

    def _kicked(self, best: Board) -> Board:
        """The best board after kicks, by turns an upgrade and a shuffle, until the work is done."""
        best_value = self._value(best)
        settled: set[object] = set()
        tried: set[object] = set()
        for turn in itertools.count():
            if self._pairs.work >= self._work_max:
                return best
            board = best.copy()
            frozen = self._upgrade(board, tried) if turn % 2 == 0 else None
            if frozen is None:
                self._shuffle(board)
                if self._value(board) >= best_value - LEAST_GAIN:
                    best = board.copy()
            else:
                self._descend(board, settled, frozen)
            self._descend(board, settled)
            if self._value(board) > best_value + LEAST_GAIN:
                best, best_value = board, self._value(board)
        raise AssertionError("count does not end")

    def _upgrade(self, board: Board, tried: set[object]) -> int | None:
        """Force the worker up that loses the least rate by it, among those not tried yet; its index, or None when all were."""
        accuracy = self._options.accuracy
        choices: list[tuple[float, float, int, Held]] = []
        for k, held in enumerate(board.workers):
            for level in np.unique(accuracy[accuracy > accuracy[held.option]])[:KICKS_AHEAD] if held.clients else ():
                if (held.clients, float(level)) in tried:
                    continue
                raised = self._pairs.best_single(held.clients, accuracy == level)
                self._pairs.work += CALL_WORK // 4
                tried.add((held.clients, float(level))) if not raised.clients else None
                if raised.clients:
                    lost = self._rate(held.clients) - self._rate(raised.clients)
                    choices.append((lost, float(level), k, raised))
        if not choices:
            return None
        _, level, k, raised = min(choices, key=lambda choice: choice[:3])
        tried.add((board.workers[k].clients, level))
        board.left = sorted({*board.left, *board.workers[k].clients} - set(raised.clients))
        board.workers[k] = raised
        return k

    def _shuffle(self, board: Board) -> None:
        """Draw among divisions of equal worth, for as many random pairs as there are workers, twice."""
        workers = range(len(board.workers))
        for _ in range(2 * len(board.workers)):
            a, b = self._dice.sample(workers, 2)
            self._divide(board, a, b, set(), self._dice)

    def _rate(self, clients: Sequence[int]) -> float:
        return float(self._rates[list(clients)].sum())
