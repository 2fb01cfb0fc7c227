"""The best division of some clients between two workers: exact, over all networks, batches and patterns at once, in
numpy.

For options o ≥ p in accuracy with x_r and y_r places for rate r, the most that can be seated is min(x_r + y_r, n_r(o or
p)), where n_r counts clients of rate r that tolerate one of them (Hall's condition for two kinds of places), and the
best is to fill o first. So the value of every pair of patterns is a few array operations; patterns that cannot beat the
present division with any partner are left out before.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from appliance.policies.adaptation.options import Bools, Floats, Options
from appliance.policies.adaptation.patterns import Ints, Patterns

BOUND_WORK, SIDE_WORK, SINGLE_WORK, SORT_WORK = 8_000, 12_000, 5_000, 600
"""What the bounds of a division cost, what it costs beyond when they hold something out (and a unit each pair of
patterns), a worker alone, and an exchange, in about 10 ns: so that `work` is proportional to time."""
ROWS_AT_ONCE = 32
PRODUCT_MAX = 1 << 17
"""Multiplications in one matrix product, half of what OpenBLAS computes on one core."""
LEAST_GAIN = 1e-8
"""Below this, two divisions are worth the same."""
ROOM_WORTH = 1e-6
"""What a unit of capacity adds: of equal divisions the one with more room is better, because a later one may use it."""


Singles = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Held:
    """A worker in a search: its option and its clients, both as indices."""

    option: int
    clients: tuple[int, ...]


EMPTY = Held(0, ())


@dataclass(frozen=True, slots=True)
class _Pool:
    """The clients to divide.

    clients: int64[n]; rate: of all together; tolerated: float32[n, O]; is_kind: float32[n, R]; takers: float64[R, O],
    clients that tolerate an option; both: float32[O, O], clients that tolerate two options.
    """

    clients: Ints
    rate: float
    tolerated: Singles
    is_kind: Singles
    takers: Floats
    both: Singles


@dataclass(frozen=True, slots=True)
class _Side:
    """What one of the two workers may be: patterns cut to the clients of a pool that tolerate them, or the most that
    options can carry.

    option: int64[S], ascending; places: float64[R, S]; load, count: float64[S], rate and number of clients.
    """

    option: Ints
    places: Floats
    load: Floats
    count: Floats

    def only(self, kept: Ints) -> "_Side":
        return _Side(self.option[kept], self.places[:, kept], self.load[kept], self.count[kept])


class PairSearch:
    """Divisions of pools of clients, for one problem.

    The value of a worker is `mapped_worth` per client plus Σ accuracy·rate: O1 before O2.
    """

    def __init__(self, options: Options, patterns: Patterns) -> None:
        self.options = options
        self.patterns = patterns
        self.mapped_worth = float(patterns.rates[patterns.kind].sum() * options.accuracy.max()) + 1.0
        self.work = 0
        self._places = np.ascontiguousarray(patterns.places.T)
        bounds = np.searchsorted(patterns.option, np.arange(len(options.batches) + 1))
        self._first, self._number = bounds[:-1], np.diff(bounds)
        self._room = ROOM_WORTH * options.capacity
        self._is_before = np.tri(len(options.batches), k=-1, dtype=np.bool_).T
        self._tolerated = options.tolerated.astype(np.float32)
        self._is_kind = (patterns.kind[:, None] == np.arange(len(patterns.rates))[None, :]).astype(np.float32)
        # Who tolerates the least is seated first where there is a choice: it leaves those who can go anywhere.
        size = options.tolerated.sum(axis=1)
        self._takers = options.tolerated.sum(axis=0)
        self._rank = np.lexsort((np.arange(len(size)), size)).argsort()

    def value(self, held: Held) -> float:
        """What a worker's clients are worth, with the rates that are planned with."""
        if not held.clients:
            return 0.0
        rate = self.patterns.rates[self.patterns.kind[list(held.clients)]].sum()
        worth = float(self.options.accuracy[held.option] * rate + self._room[held.option])
        return len(held.clients) * self.mapped_worth + worth

    def best_single(self, clients: Sequence[int], allowed: Bools | None = None) -> Held:
        """The most valuable single worker from `clients`, over the options allowed."""
        self.work += SINGLE_WORK
        pool = self._pool(clients)
        options = np.arange(len(self.options.batches)) if allowed is None else np.flatnonzero(allowed)
        side = self._side(pool, options)
        best = int((side.count * self.mapped_worth + self.options.accuracy[side.option] * side.load).argmax())
        option = int(side.option[best])
        chosen: list[int] = []
        for members, places in zip(self._of_kind(pool), side.places[:, best], strict=True):
            takers = [i for i in members if self.options.tolerated[i, option]]
            chosen += takers[: int(places)]
        return Held(option, tuple(chosen)) if chosen else EMPTY

    def best_pair(self, clients: Sequence[int], present: float) -> tuple[Held, Held] | None:
        """The best two workers from `clients`; None when they are not worth more than `present`.

        Bounds, first for two options, then for a pattern beside an option, leave few pairs of patterns: a dozen times a
        dozen as a rule.
        """
        self.work += BOUND_WORK
        least = present + LEAST_GAIN
        pool = self._pool(clients)
        whole = self._whole(pool)
        hopeful = self._bound(pool, whole, whole) > least
        whole = whole.only(np.flatnonzero(hopeful.any(axis=0) | hopeful.any(axis=1)))
        if not len(whole.option):
            return None
        side = self._side(pool, whole.option)
        self.work += SIDE_WORK + len(side.option) * len(whole.option)
        as_first, as_second = self._bound(pool, side, whole).max(axis=1), self._bound(pool, whole, side).max(axis=0)
        found = None
        # The most promising first: what they reach rules most of the others out.
        while len(rows := np.flatnonzero(as_first > least)):
            rows = rows[np.argsort(-as_first[rows], kind="stable")[:ROWS_AT_ONCE]]
            columns = np.flatnonzero(as_second > least)
            if not len(columns):
                break
            self.work += len(rows) * len(columns)
            value = self._value(pool, side.only(rows), side.only(columns))
            best = int(value.argmax())
            if value.flat[best] > least:
                least, found = float(value.flat[best]), (rows[best // len(columns)], columns[best % len(columns)])
            as_first[rows] = -np.inf
        return self._seated(pool, side, *found) if found else None

    def _pool(self, clients: Sequence[int]) -> _Pool:
        members = np.array(sorted(clients), dtype=np.int64)
        tolerated, is_kind = self._tolerated[members], self._is_kind[members]
        takers = is_kind.T @ tolerated
        rate = float(is_kind.sum(axis=0) @ self.patterns.rates)
        return _Pool(members, rate, tolerated, is_kind, takers.astype(np.float64), _in_both(tolerated, tolerated))

    def _whole(self, pool: _Pool) -> _Side:
        """The most that each option can carry of the pool, by rate and by number.

        Without options that a more accurate one makes needless here:
        tolerated by the same clients, with room for them."""
        capacity = self.options.capacity
        load = np.minimum(capacity, self.patterns.rates @ pool.takers)
        beaten = (pool.both >= pool.both.diagonal()) & (capacity[:, None] >= load) & self._is_before
        options = np.flatnonzero((load > 0.0) & ~beaten.any(axis=0))
        left, count, places = capacity[options], np.zeros(len(options)), pool.takers[:, options]
        for takers, rate in zip(places, self.patterns.rates, strict=True):  # the least rates first: the most clients
            n = np.minimum(takers, left // rate)
            left -= n * rate
            count += n
        return _Side(options, places, load[options], count)

    def _side(self, pool: _Pool, options: Ints) -> _Side:
        """The patterns of these options."""
        number = self._number[options]
        ends = number.cumsum()
        pattern = np.arange(int(ends[-1])) + np.repeat(self._first[options] - ends + number, number)
        option = np.repeat(options, number)
        places = np.minimum(self._places[:, pattern], pool.takers[:, option])
        return _Side(option, places, self.patterns.rates @ places, places.sum(axis=0))

    def _bound(self, pool: _Pool, first: _Side, second: _Side) -> Floats:
        """float64[first, second]: no division between the two is worth more; the more accurate is filled first.

        −1 for the other way round.
        """
        accuracy, other = self.options.accuracy[first.option], self.options.accuracy[second.option]
        size = pool.both.diagonal()
        either = size[first.option][:, None] + size[second.option] - pool.both[first.option[:, None], second.option]
        value: Floats = np.minimum(first.count[:, None] + second.count, either)
        value *= self.mapped_worth
        value += other * np.minimum(second.load, (pool.rate - first.load)[:, None])
        value += (accuracy * first.load + self._room[first.option])[:, None] + self._room[second.option]
        value[first.option[:, None] > second.option] = -1.0
        return value

    def _value(self, pool: _Pool, rows: _Side, columns: _Side) -> Floats:
        """float64[rows, columns]: worth of each pair, the first filled first."""
        accuracy, other = self.options.accuracy[rows.option], self.options.accuracy[columns.option]
        value = (accuracy * rows.load + self._room[rows.option])[:, None] - rows.load[:, None] * other
        value += self._room[columns.option]
        for kind, rate in enumerate(self.patterns.rates):
            members = pool.is_kind[:, kind] > 0.0
            refused = 1.0 - pool.tolerated[members]
            either = len(refused) - _in_both(refused[:, rows.option], refused[:, columns.option])
            seated = np.minimum(rows.places[kind][:, None] + columns.places[kind], either)
            value += seated * (self.mapped_worth + other * rate)
        return value

    def _seated(self, pool: _Pool, side: _Side, row: int, column: int) -> tuple[Held, Held]:
        """Clients into the places of two patterns: those who tolerate only one of them there; of the others, the
        most tolerant where few can be.
        """
        first, second = int(side.option[row]), int(side.option[column])
        ins: list[int] = []
        others: list[int] = []
        for rate, order in enumerate(self._of_kind(pool)):
            in_first, in_second = self.options.tolerated[order, first], self.options.tolerated[order, second]
            only_first = [i for i, a, b in zip(order, in_first, in_second, strict=True) if a and not b]
            only_second = [i for i, a, b in zip(order, in_first, in_second, strict=True) if b and not a]
            either = [i for i, a, b in zip(order, in_first, in_second, strict=True) if a and b]
            if self._takers[first] < self._takers[second]:
                either.reverse()
            places = int(side.places[rate, row])
            ins += (only_first + either)[:places]
            left = either[max(0, places - len(only_first)) :]
            others += (only_second + left)[: int(side.places[rate, column])]
        return Held(first, tuple(sorted(ins))), Held(second, tuple(sorted(others)))

    def sorted_between(self, first: Held, second: Held) -> tuple[Held, Held]:
        """The same two workers with clients of equal rate exchanged so that the more demanding option has those who
        tolerate the most.
        """
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

    def _of_kind(self, pool: _Pool) -> list[list[int]]:
        """The clients of each rate, the least tolerant first."""
        order = pool.clients[self._rank[pool.clients].argsort()]
        kind = self.patterns.kind[order]
        return [order[kind == rate].tolist() for rate in range(len(self.patterns.rates))]


def _in_both(one: Singles, other: Singles) -> Singles:
    """Of 0 and 1 in columns over the same clients: how many have 1 in both."""
    # In pieces, because beyond some size a product goes to all cores, which then wait for each other longer than it
    # takes.
    step = max(1, PRODUCT_MAX // max(1, one.size))
    with np.errstate(invalid="ignore"):  # small products: kernels of OpenBLAS compute, and flag, what lies beside them
        pieces = [one.T @ other[:, k : k + step] for k in range(0, max(1, other.shape[1]), step)]
        both: Singles = np.hstack(pieces)
    return both
