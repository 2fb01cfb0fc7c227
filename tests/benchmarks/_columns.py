"""An upper bound for the adaptation family: column generation, then branching on how many workers run which options.

A column is one worker with its clients, each by name. The relaxation over patterns is looser: there one client may fill two places of half a worker. For given
prices of the clients the best worker of an option is, by rate, the most valuable clients first, as many as a pattern has places: no search is needed, and
Lasdon's bound holds after every round, not only after the last. Options are in a row (`Options`), and in a plan whole numbers of workers run the options
up to any point of it; where the relaxation has half a worker, one branch has at most the lower and one at least the upper number.
"""

import heapq
import math
import time
from typing import Any

import highspy
import numpy as np

from appliance.policies.adaptation.options import Floats, Options
from appliance.policies.adaptation.patterns import Ints, coarse_rates, patterns_of

SMOOTHING = 0.7
"""Share of the best prices so far in those that columns are looked for with: a third of the rounds."""
GAP = 1e-5
LACK_PENALTY = 1e5
"""What a client or worker below a required number costs, until columns are found that have enough."""

Column = tuple[int, tuple[int, ...]]
"""An option and its clients."""
Box = tuple[tuple[int, int], ...]
"""Least and most workers that run one of the options up to each one."""


def mapped_bound(options: Options, workers: int, known: int, limit_s: float) -> int:
    """No plan maps more clients; `known` are mapped by one."""
    worth = np.where(options.tolerated, 1.0, 0.0)
    return math.floor(ColumnBound(options, workers, 0, worth).branched(known + 1.0 - 2 * GAP, limit_s) + GAP)


def objective_bounds(options: Options, workers: int, count: int, known: float, limit_s: float) -> tuple[float, float]:
    """No plan with at least `count` clients has more Σ accuracy·rate: before and after branching. `known` is that of a plan."""
    worth = np.where(options.tolerated, options.rates[:, None] * options.accuracy[None, :], 0.0)
    bound = ColumnBound(options, workers, count, worth)
    return bound.root(limit_s), bound.branched(known, limit_s)


class ColumnBound:
    """The program restricted to the columns found: a row per client, one for the workers, one for the count, one for each option's `Box`.

    worth: float64[N, O], of a client in an option. Limits are CPU seconds; a search that is stopped has a looser bound.
    """

    def __init__(self, options: Options, workers: int, count: int, worth: Floats) -> None:
        self._options, self._workers, self._count, self._worth = options, workers, count, worth
        patterns = patterns_of(options, coarse_rates(options, len(options.clients)), 1 << 20)
        assert patterns is not None
        self._option = patterns.option
        self._places = patterns.places.astype(np.int64)
        self._members: list[Ints] = [np.flatnonzero(patterns.kind == r) for r in range(len(patterns.rates))]
        self._present, self._starts = np.unique(patterns.option, return_index=True)
        self._columns: dict[Column, None] = {}
        self._clients, self._kinds = worth.shape
        self._box: Box = ((0, workers),) * self._kinds
        self._solver = self._empty()

    def root(self, limit_s: float) -> float:
        return self._node(((0, self._workers),) * self._kinds, limit_s)[0]

    def branched(self, known: float, limit_s: float) -> float:
        """Best first, on the number that is farthest from whole."""
        end = time.process_time() + limit_s
        box: Box = ((0, self._workers),) * self._kinds
        bound, running = self._node(box, limit_s)
        heap = [(-bound, 0, box, running)]
        for turn in range(1, 1 << 20, 2):
            if not heap or -heap[0][0] <= known + GAP:
                return min(bound, known + GAP)
            split = int(np.abs(heap[0][3] - heap[0][3].round()).argmax())
            number = float(heap[0][3][split])
            if abs(number - round(number)) < 1e-4 or time.process_time() >= end:
                break
            above, _, box, _ = heapq.heappop(heap)
            low, high = box[split]
            for k, ends in enumerate(((low, math.floor(number)), (math.ceil(number), high))):
                child = (*box[:split], ends, *box[split + 1 :])
                value, running = self._node(child, limit_s)
                heapq.heappush(heap, (-min(value, -above), turn + k, child, running))
        return -heap[0][0]

    def _node(self, box: Box, limit_s: float) -> tuple[float, Floats]:
        """The bound within a box, and how many workers run the options up to each one there."""
        self._box = box
        for option, (least, most) in enumerate(box):
            self._solver.changeRowBounds(self._clients + 2 + option, float(least), float(most))
        bound, best = math.inf, None
        end = time.process_time() + limit_s
        while time.process_time() < end:
            self._solver.run()
            value = float(self._solver.getInfo().objective_function_value)
            last = np.array(self._solver.getSolution().row_dual)
            prices = last if best is None else SMOOTHING * best + (1 - SMOOTHING) * last
            columns, worker = self._priced(prices)
            proven = self._proven(prices, worker)
            if proven < bound:
                bound, best = proven, prices
            if bound - value <= GAP * max(1.0, abs(value)):
                break
            if not self._add(columns):
                if best is None:
                    break
                best = None  # smoothed prices led nowhere: once with the last ones
        return bound, self._running()

    def _running(self) -> Floats:
        used = np.array(self._solver.getSolution().col_value)[1 + self._kinds :]
        each = np.bincount([option for option, _ in self._columns], used[: len(self._columns)], minlength=self._kinds)
        running: Floats = np.cumsum(each)
        return running

    def _proven(self, prices: Floats, worker: float) -> float:
        """Lasdon's bound: clients, count and box at their prices, each worker at the best column's."""
        n = self._clients
        box, sides = prices[n + 2 :], np.array(self._box)
        fixed = float(prices[:n].clip(0.0).sum()) + self._count * min(float(prices[n + 1]), 0.0)
        return (
            fixed
            + self._workers * max(worker, 0.0)
            + float(np.where(box > 0, box * sides[:, 1], box * sides[:, 0]).sum())
        )

    def _priced(self, prices: Floats) -> tuple[list[Column], float]:
        """Each option's best column, and what the best of all is worth beyond its prices."""
        n = self._clients
        gain = self._worth - prices[:n, None].clip(0.0) - min(float(prices[n + 1]), 0.0)
        gain = np.where(self._options.tolerated, gain, 0.0).clip(0.0)
        order = [m[np.argsort(-gain[m], axis=0, kind="stable")] for m in self._members]
        # An option counts in its own row of the box and in all after it.
        value = -prices[n + 2 :][::-1].cumsum()[::-1][self._option]
        for rate, ranked in enumerate(order):
            total = np.cumsum(np.take_along_axis(gain, ranked, 0), axis=0)
            value += np.vstack([np.zeros((1, self._kinds)), total])[self._places[:, rate], self._option]
        columns: list[Column] = []
        for option, start, end in zip(self._present, self._starts, [*self._starts[1:], len(value)], strict=True):
            places = self._places[start + int(value[start:end].argmax())]
            clients = (int(i) for ranked, k in zip(order, places, strict=True) for i in ranked[:k, option])
            columns.append((int(option), tuple(sorted(i for i in clients if gain[i, option] > 0.0))))
        return columns, float(value.max())

    def _add(self, columns: list[Column]) -> int:
        fresh = [column for column in columns if column[1] and column not in self._columns]
        n = self._clients
        for option, clients in fresh:
            rows = np.array([*clients, n, n + 1, *range(n + 2 + option, n + 2 + self._kinds)], dtype=np.int32)
            terms = np.ones(len(rows))
            terms[len(clients) + 1] = len(clients)
            cost = float(self._worth[list(clients), option].sum())
            self._solver.addCol(cost, 0.0, highspy.kHighsInf, len(rows), rows, terms)
        self._columns.update(dict.fromkeys(fresh))
        return len(fresh)

    def _empty(self) -> Any:
        solver: Any = highspy.Highs()  # type: ignore[no-untyped-call]
        solver.setOptionValue("output_flag", False)
        solver.setOptionValue("threads", 1)
        none, terms = np.array([], dtype=np.int32), np.array([])
        for most in [1.0] * self._clients + [float(self._workers)]:
            solver.addRow(-highspy.kHighsInf, most, 0, none, terms)
        for least in [float(self._count)] + [0.0] * self._kinds:
            solver.addRow(least, highspy.kHighsInf, 0, none, terms)
        solver.changeObjectiveSense(highspy.ObjSense.kMaximize)
        for row in range(self._clients + 1, self._clients + 2 + self._kinds):
            solver.addCol(-LACK_PENALTY, 0.0, highspy.kHighsInf, 1, np.array([row], dtype=np.int32), np.array([1.0]))
        return solver
