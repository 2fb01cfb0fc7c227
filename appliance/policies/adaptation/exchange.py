"""Our own policy: clients are exchanged between pairs of workers, each time in the best way there is, until no pair
can gain.
"""

import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from appliance.policies.adaptation.annealing import annealed
from appliance.policies.adaptation.answer import assemble
from appliance.policies.adaptation.base import AdaptationInput, AdaptationPlan
from appliance.policies.adaptation.budgets import batch_for
from appliance.policies.adaptation.ladder import Ladder, Rung
from appliance.policies.adaptation.mapping import Mapped
from appliance.policies.adaptation.options import Floats, Options, distinct, options_of
from appliance.policies.adaptation.pairs import EMPTY, LEAST_GAIN, Held, PairSearch
from appliance.policies.adaptation.patterns import Patterns, coarse_rates, patterns_of
from appliance.policies.adaptation.polish import polished

PATTERNS_MAX = 8000
"""More would make pairs dear; rates are then rounded up to fewer kinds."""
RATE_KINDS_MAX = 6
LEVELS_AHEAD = 3
"""How many levels of accuracy an upgrade tries at most."""
CLIMB_AGAIN_MAX = 8
"""With more workers than this another climb costs more than it finds."""
FEW_WORKERS = 6
COOLING_MANY, COOLING_FEW = 0.99, 0.95
"""With rounded rates: for few workers annealing takes about 640 steps, else about 130."""
NOISE = 1.2
"""By how much of a mean client's rate the patterns of another climb are made to look larger."""
WORK_FEW, WORK_MIN, WORK_EACH, WORK_MAX = 6_000_000, 2_500_000, 10_000, 25_000_000
"""The bound on work, 10 ns or so each: for few workers, where each kick may reach the optimum; beyond, the least; by
workers^2.5: 10 million for 16; the most."""
ANNEALED_MAX = 4_000
"""Clients × workers up to which an overloaded problem is also annealed for a start: about 15 ms for 16 × 160, then
more than the rest.
"""
TRUE_RATES_MAX = 20_000
"""Clients × workers up to which rounded rates are made good afterwards; beyond, it would take seconds."""


@dataclass(slots=True)
class Board:
    """Workers and the clients (indices) that none of them serves; the search changes it in place."""

    workers: list[Held]
    left: list[int]

    def copy(self) -> "Board":
        return Board(list(self.workers), list(self.left))


class PairwiseExchange:
    """Objective: most clients mapped, then Σ accuracy·rate; both at once by weights that keep the order.

    1. Options that others dominate are dropped (`options`); the few rates give patterns of places (`patterns`). Many
       distinct rates are rounded up to fewer kinds for the search, the paper's own way runs beside it,
       and the better of the two is improved with the true rates (`polish`).
    2. Starts: a climb over networks with clients given out greedily (`ladder`); where not all can be mapped, also what
       short annealing ends with; and the previous networks.
    3. Descent from each: for every pair of workers, the exactly best division of their clients and the unmapped
       (`pairs`), until no pair gains. For one or two workers that is the optimum.
    4. Until the work is done, by turns: another climb, with noise drawn by `seed` (where clients are left: whatever
       carries the most), and its descent; a worker forced up, whose lost clients the others take, until all were tried.
       What is better stays.
    The bound on work counts operations, not time, so equal input gives equal output. Ties: client and network names.
    Unlike annealing over networks with a greedy mapping (Jellyfish), a move here sees two workers' networks, batches
    and clients together.
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
        is_rounded = len(patterns.rates) < len(distinct(options.rates))
        if is_rounded and problem.workers * len(problem.clients) <= TRUE_RATES_MAX:
            mapped = _with_true_rates(problem, options, mapped)
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
    return WORK_FEW if workers <= FEW_WORKERS else min(WORK_MAX, max(WORK_MIN, int(WORK_EACH * workers**2.5)))


def _with_true_rates(problem: AdaptationInput, options: Options, mapped: Sequence[Mapped]) -> list[Mapped]:
    """The better of what the search found with rounded rates and what the paper's own way finds, both polished."""
    other, _ = annealed(problem, COOLING_FEW if problem.workers > FEW_WORKERS else COOLING_MANY)
    candidates = [polished(options, found, problem.workers) for found in (mapped, other)]
    return max(candidates, key=lambda ms: (sum(len(m.clients) for m in ms), sum(map(_worth, ms))))


def _worth(mapped: Mapped) -> float:
    return mapped.network.accuracy * sum(client.rate_rps for client in mapped.clients)


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
        best = self.descended(self._starts())
        return self.kicked(best) if self._problem.workers > 2 else best

    def descended(self, starts: Sequence[Board]) -> Board:
        """The best board after a descent from each start; the first of equals."""
        for start in starts:
            self._descend(start, set())
        return max(starts, key=self._value)

    # Starts

    def _starts(self) -> list[Board]:
        """Boards to descend from: the best rung of the ladder, what annealing ends with where not all can be mapped,
        and the previous networks.
        """
        starts = [self.climbed(self._options)]
        if starts[0].left and self._problem.workers * len(self._problem.clients) <= ANNEALED_MAX:
            starts.append(self._annealed())
        if any(self._problem.previous):
            starts.append(self._warm())
        return starts

    def climbed(self, options: Options, noise: Floats | None = None) -> Board:
        ladder = Ladder(options, self._pairs.patterns, self._problem.workers, noise)
        rung: Rung | None = ladder.climb(min(self._work_max // 2, self._work_max - self._pairs.work))
        self._pairs.work += ladder.work
        board = Board([], list(self._servable))
        while rung is not None and rung.parent is not None:
            self._give(board, Held(rung.option, rung.clients) if rung.clients else EMPTY)
            rung = rung.parent
        return board

    def _annealed(self) -> Board:
        """What the paper's own way ends with; with rounded rates some of its clients may not fit."""
        mapped, _ = annealed(self._problem, COOLING_FEW)
        index = {client.name: i for i, client in enumerate(self._options.clients)}
        board = Board([], list(self._servable))
        for clients in ([index[client.name] for client in m.clients] for m in mapped):
            self._give(board, self._pairs.best_single(clients))
        while len(board.workers) < self._problem.workers:
            self._give(board, EMPTY)
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
        """Best divisions for all pairs but those with the `frozen` worker, until none gains; `settled` remembers
        what gains nothing.
        """
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

    def _divide(self, board: Board, a: int, b: int, settled: set[object]) -> bool:
        first, second = board.workers[a], board.workers[b]
        state = (first.clients, second.clients, tuple(board.left))
        pool = [*first.clients, *second.clients, *board.left]
        if not pool or state in settled:
            return False
        settled.add(state)
        self.divisions += 1
        found = self._pairs.best_pair(pool, self._pairs.value(first) + self._pairs.value(second))
        if found is None:
            return False
        board.workers[a], board.workers[b] = found
        board.left = sorted(set(pool) - set(found[0].clients) - set(found[1].clients))
        return True

    def _value(self, board: Board) -> float:
        return sum(self._pairs.value(held) for held in board.workers)

    # Kicks

    def kicked(self, best: Board) -> Board:
        """The best board after kicks, until the work is done."""
        settled: set[object] = set()
        tried: set[object] = set()
        climbs = self._problem.workers <= CLIMB_AGAIN_MAX
        climbs_now = itertools.cycle((climbs, False))
        while self._pairs.work < self._work_max:
            if next(climbs_now):
                board = self._noisy(bool(best.left))
            else:
                board = best.copy()
                raised = self._upgrade(board, tried)
                if raised is not None:
                    self._descend(board, settled, raised)
                elif not climbs:
                    break
            self._descend(board, settled)
            if self._value(board) > self._value(best) + LEAST_GAIN:
                best = board
        return best

    def _noisy(self, is_over: bool) -> Board:
        """Another climb; with clients to spare (`is_over`) one that carries the most, whatever the accuracy, because
        more clients come first.
        """
        spread = NOISE * float(self._rates.mean())
        noise = np.array([self._dice.uniform(0.0, spread) for _ in self._pairs.patterns.option])
        options = self._options
        return self.climbed(replace(options, accuracy=np.zeros_like(options.accuracy)) if is_over else options, noise)

    def _upgrade(self, board: Board, tried: set[object]) -> int | None:
        """Force the worker up that loses the least rate by it, among those not tried yet; its index, or None when
        all were.
        """
        accuracy = self._options.accuracy
        choices: list[tuple[float, float, int, Held]] = []
        for k, held in enumerate(board.workers):
            for level in distinct(accuracy[accuracy > accuracy[held.option]])[:LEVELS_AHEAD] if held.clients else ():
                if (held.clients, float(level)) in tried:
                    continue
                raised = self._pairs.best_single(held.clients, accuracy == level)
                if raised.clients:
                    lost = self._rate(held.clients) - self._rate(raised.clients)
                    choices.append((lost, float(level), k, raised))
                else:
                    tried.add((held.clients, float(level)))
        if not choices:
            return None
        _, level, k, raised = min(choices, key=lambda choice: choice[:3])
        tried.add((board.workers[k].clients, level))
        board.left = sorted({*board.left, *board.workers[k].clients} - set(raised.clients))
        board.workers[k] = raised
        return k

    def _rate(self, clients: Sequence[int]) -> float:
        return float(self._rates[list(clients)].sum())
