"""The best division of some clients between two workers: exact, over all networks, batches and patterns at once, in numpy.

For options o ≥ p in accuracy with x_r and y_r places for rate r, the most that can be seated is min(x_r + y_r, n_r(o or p)), where n_r counts clients
of rate r that tolerate one of them (Hall's condition for two kinds of places), and the best is to fill o first. So the value of every pair of patterns
is a few array operations; patterns that cannot beat the present division with any partner are left out before.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from appliance.policies.adaptation.options import Bools, Floats, Options
from appliance.policies.adaptation.patterns import Ints, Patterns

CALL_WORK = 13_000
"""What a call costs before it looks at pairs, in pairs of patterns; so that `work` is proportional to time."""
SINGLE_WORK, SORT_WORK, PATTERN_WORK = CALL_WORK // 4, CALL_WORK // 20, 5
LEAST_GAIN = 1e-8
"""Below this, two divisions are worth the same."""
ROOM_WORTH = 1e-6
"""What a unit of capacity adds: of equal divisions the one with more room is better, because a later one may use it."""


@dataclass(frozen=True, slots=True)
class Held:
    """A worker in a search: its option and its clients, both as indices."""

    option: int
    clients: tuple[int, ...]


EMPTY = Held(0, ())


@dataclass(frozen=True, slots=True)
class _Pool:
    """The clients to divide and what the patterns are worth among them.

    of_kind[r]: clients of rate r; kinds: float64[R], how many; places: float64[P, R], patterns cut to the clients that tolerate them;
    load: float64[P], rate; count: float64[P], clients.
    """

    clients: Ints
    of_kind: tuple[Ints, ...]
    kinds: Floats
    places: Floats
    load: Floats
    count: Floats


class PairSearch:
    """Divisions of pools of clients, for one problem. The value of a worker is `mapped_worth` per client plus Σ accuracy·rate: O1 before O2."""

    def __init__(self, options: Options, patterns: Patterns) -> None:
        self.options = options
        self.patterns = patterns
        self.mapped_worth = float(patterns.rates[patterns.kind].sum() * options.accuracy.max()) + 1.0
        self.work = 0
        self._accuracy = options.accuracy[patterns.option]
        self._room = ROOM_WORTH * options.capacity[patterns.option]
        self._tolerated = options.tolerated.astype(np.float32)
        # Who tolerates the least is seated first where there is a choice: it leaves those who can go anywhere.
        size = options.tolerated.sum(axis=1)
        self._takers = options.tolerated.sum(axis=0)
        self._rank = np.lexsort((np.arange(len(size)), size)).argsort()
        # Equal sums of these marks: equal tolerance within a pool (but for a collision in 2^64, which costs a duplicate its chance).
        self._mark = _marks(len(size))

    def value(self, held: Held) -> float:
        """What a worker's clients are worth, with the rates that are planned with."""
        rate = self.patterns.rates[self.patterns.kind[list(held.clients)]].sum()
        room = ROOM_WORTH * float(self.options.capacity[held.option]) if held.clients else 0.0
        return len(held.clients) * self.mapped_worth + float(self.options.accuracy[held.option] * rate) + room

    def best_single(self, clients: Sequence[int], allowed: Bools | None = None) -> Held:
        """The most valuable single worker from `clients`, over the options allowed."""
        self.work += SINGLE_WORK
        pool = self._pool(clients)
        value = pool.count * self.mapped_worth + self._accuracy * pool.load
        if allowed is not None:
            value = np.where(allowed[self.patterns.option], value, -1.0)
        best = int(value.argmax())
        option = int(self.patterns.option[best])
        chosen: list[int] = []
        for members, places in zip(pool.of_kind, pool.places[best], strict=True):
            takers = [i for i in self._ordered(members) if self.options.tolerated[i, option]]
            chosen += takers[: int(places)]
        return Held(option, tuple(chosen)) if chosen and value[best] > 0.0 else EMPTY

    def best_pair(
        self, clients: Sequence[int], present: float, dice: random.Random | None = None
    ) -> tuple[Held, Held] | None:
        """Two workers from `clients`, worth more than `present`; None when there are none.

        With dice, one of the best divisions at random, also when it is worth as much as the present one. Cost: about 0.2 ms plus 25 ns per pair of
        patterns that remains, counted in `work`.
        """
        self.work += CALL_WORK + PATTERN_WORK * len(self.patterns.option)
        if not len(clients):
            return None
        pool = self._pool(clients)
        least = present - LEAST_GAIN if dice else present + LEAST_GAIN
        everybody = least >= len(clients) * self.mapped_worth
        rows, columns = self._hopeful_all(pool, least) if everybody else self._hopeful(pool, least)
        if not len(rows) or not len(columns):
            return None
        rows = self._distinct(pool, rows)
        columns = self._distinct(pool, columns) if everybody else rows
        self.work += len(rows) * len(columns)
        value = self._value_all(pool, rows, columns) if everybody else self._value(pool, rows)
        best = int(value.argmax())
        if value.flat[best] <= least:
            return None
        if dice:
            equal = np.flatnonzero(value >= value.flat[best] - LEAST_GAIN)
            best = int(equal[dice.randrange(len(equal))])
        row, column = divmod(best, len(columns))
        return self._seated(pool, int(rows[row]), int(columns[column]))

    def _pool(self, clients: Sequence[int]) -> _Pool:
        members = np.array(sorted(clients), dtype=np.int64)
        kind = self.patterns.kind[members]
        of_kind = tuple(members[kind == r] for r in range(len(self.patterns.rates)))
        takers = np.stack([self._tolerated[m].sum(axis=0) for m in of_kind], axis=1)  # [O, R]
        places = np.minimum(self.patterns.places, takers[self.patterns.option])
        kinds = np.array([len(m) for m in of_kind], dtype=np.float64)
        return _Pool(members, of_kind, kinds, places, places @ self.patterns.rates, places.sum(axis=1))

    def _hopeful(self, pool: _Pool, least: float) -> tuple[Ints, Ints]:
        """Patterns that reach `least` beside the best other one."""
        alone = pool.count * self.mapped_worth + self._accuracy * pool.load + self._room
        kept = np.flatnonzero(alone + alone.max() > least)
        return kept, kept

    def _hopeful_all(self, pool: _Pool, least: float) -> tuple[Ints, Ints]:
        """Where everybody must be seated: as the more accurate one (rows), patterns that reach `least` beside the most accurate one with room for
        the rest; as the other (columns), patterns with room for what the widest row leaves."""
        total = float(pool.kinds @ self.patterns.rates)
        order = np.argsort(pool.load)
        by_load = pool.load[order]
        accuracy_above = np.append(np.maximum.accumulate(self._accuracy[order][::-1])[::-1], -np.inf)
        partner = accuracy_above[np.searchsorted(by_load, total - pool.load - 1e-6)]
        rest = total - pool.load
        bound = self._room + self._room.max() + self._accuracy * pool.load + np.where(rest > 1e-6, rest * partner, 0.0)
        rows = np.flatnonzero(bound > least - len(pool.clients) * self.mapped_worth)
        if not len(rows):
            return rows, rows
        wide = pool.load >= total - pool.load[rows].max() - 1e-6
        return rows, np.flatnonzero(wide & (pool.count >= len(pool.clients) - pool.count[rows].max()))

    def _distinct(self, pool: _Pool, kept: Ints) -> Ints:
        """Without patterns that a more accurate one with the same takers and places makes needless."""
        mark = (self._mark[pool.clients] @ self.options.tolerated[pool.clients])[self.patterns.option[kept]]
        for rate in range(len(self.patterns.rates)):
            mark = mark * np.int64(1_000_003) + pool.places[kept, rate].astype(np.int64)
        _, first = np.unique(mark, return_index=True)
        return kept[np.sort(first)]

    def _value_all(self, pool: _Pool, rows: Ints, columns: Ints) -> Floats:
        """float64[rows, columns]: worth with everybody seated, as much as fits in the row's pattern; negative where not everybody can be."""
        refused = 1.0 - self._tolerated[pool.clients]
        options, row_at = np.unique(self.patterns.option[rows], return_inverse=True)
        others, column_at = np.unique(self.patterns.option[columns], return_inverse=True)
        by_both = refused[:, options].T @ refused[:, others]
        feasible: Bools = (by_both < 0.5)[row_at][:, column_at]
        for rate, n in enumerate(pool.kinds):
            feasible &= pool.places[rows, rate][:, None] >= n - pool.places[columns, rate][None, :]
        accuracy, other = self._accuracy[rows][:, None], self._accuracy[columns][None, :]
        total = float(pool.kinds @ self.patterns.rates)
        worth = pool.load[rows][:, None] * (accuracy - other) + total * other
        worth += self._room[rows][:, None] + self._room[columns][None, :] + len(pool.clients) * self.mapped_worth
        return np.where(feasible, worth, -1.0)

    def _value(self, pool: _Pool, rows: Ints) -> Floats:
        """float64[rows, rows]: worth of each pair, the first filled first."""
        options, at = np.unique(self.patterns.option[rows], return_inverse=True)
        accuracy, load = self._accuracy[rows], pool.load[rows]
        value: Floats = (
            (accuracy * load + self._room[rows])[:, None]
            - load[:, None] * accuracy[None, :]
            + self._room[rows][None, :]
        )
        for rate, members in enumerate(pool.of_kind):
            tolerated = self._tolerated[members][:, options]
            both = tolerated.T @ tolerated
            either = both.diagonal()[:, None] + both.diagonal()[None, :] - both
            places = pool.places[rows, rate]
            seated = np.minimum(places[:, None] + places[None, :], either[at][:, at])
            value += seated * (self.mapped_worth + accuracy * self.patterns.rates[rate])[None, :]
        return value

    def _seated(self, pool: _Pool, row: int, column: int) -> tuple[Held, Held]:
        """Clients into the places of two patterns: those who tolerate only one of them there; of the others, the most tolerant where few can be."""
        first, second = int(self.patterns.option[row]), int(self.patterns.option[column])
        ins: list[int] = []
        others: list[int] = []
        for rate, members in enumerate(pool.of_kind):
            order = self._ordered(members)
            in_first, in_second = self.options.tolerated[order, first], self.options.tolerated[order, second]
            only_first = [i for i, a, b in zip(order, in_first, in_second, strict=True) if a and not b]
            only_second = [i for i, a, b in zip(order, in_first, in_second, strict=True) if b and not a]
            either = [i for i, a, b in zip(order, in_first, in_second, strict=True) if a and b]
            if self._takers[first] < self._takers[second]:
                either.reverse()
            places = int(pool.places[row, rate])
            ins += (only_first + either)[:places]
            left = either[max(0, places - len(only_first)) :]
            others += (only_second + left)[: int(pool.places[column, rate])]
        return Held(first, tuple(sorted(ins))), Held(second, tuple(sorted(others)))

    def sorted_between(self, first: Held, second: Held) -> tuple[Held, Held]:
        """The same two workers with clients of equal rate exchanged so that the more demanding option has those who tolerate the most."""
        self.work += SORT_WORK
        if self._takers[first.option] > self._takers[second.option]:
            other, one = self.sorted_between(second, first)
            return one, other
        ins, others = list(first.clients), list(second.clients)
        tolerated, kind = self.options.tolerated, self.patterns.kind
        for rate in range(len(self.patterns.rates)):
            a = [i for i in ins if kind[i] == rate and tolerated[i, second.option]]
            b = [i for i in others if kind[i] == rate and tolerated[i, first.option]]
            if a and b:
                order = sorted(a + b, key=lambda i: -int(self._rank[i]))
                ins = [i for i in ins if i not in a] + order[: len(a)]
                others = [i for i in others if i not in b] + order[len(a) :]
        return Held(first.option, tuple(sorted(ins))), Held(second.option, tuple(sorted(others)))

    def _ordered(self, members: Ints) -> list[int]:
        """The least tolerant first."""
        return sorted((int(i) for i in members), key=lambda i: int(self._rank[i]))


def _marks(count: int) -> Ints:
    """int64[count]: fixed numbers without pattern (splitmix64), so that sums of different ones differ."""
    mixed = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    return (mixed ^ (mixed >> np.uint64(31))).view(np.int64)
