"""The joint choice of variants: which candidate network each client runs, so that together they leave room for the most
clients.

A smaller network's accuracy gap takes from the SLA what its quicker inference and smaller frame give to interval and
batch; which side wins differs by client, and batches fill only if enough clients run the same variant. So: for every
small set of variants that the box may run, each client takes the one of the set that costs least of the processor. The
closed form knows nothing of waiting behind the batches of slower networks, which hurts those most whose SLA the gap has
nearly used up; so for each set there are further choices, where a client leaves the most accurate variant only for one
that costs much less, and what a plan has shown to break is `mended`. The sets that promise the most clients are planned
in full, by whoever calls; `most` says which need not be.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from appliance.policies.offload.base import Client, OffloadInput, Variant
from appliance.policies.offload.due import pace
from appliance.policies.offload.fleet import Choice, Common, common_of, fleet_of

SET_MAX = 3
"""Variants of a set. More of them share too few clients to fill batches; 6 candidates make 41 sets."""
CANDIDATES_MAX = 8
"""Of more variants, those count that serve the most clients alone."""
SETS_PLANNED = 4
"""Sets that may be planned in full; the closed form is good at the order, not at the last client."""
RELUCTANCES = (1.0, 1.5, 2.0)
"""How many times less than the most accurate variant of the set another one has to cost."""
LOAD_MAX = 1.1
"""Σ load that no plan carries; a promise up to it is a bound."""


@dataclass(frozen=True, slots=True)
class Promise:
    """A choice with what it promises in closed form: clients whose loads fit the processor, and the most that any
    plan may serve.
    """

    chosen: tuple[str, ...]
    choice: Choice
    clients: int
    load: float
    most: int

    @property
    def is_alone(self) -> bool:
        """Whether all run the same variant."""
        return len({variant.name for variant in self.choice.values()}) == 1


@dataclass(frozen=True, slots=True)
class _Table:
    """What each variant would cost each client: rows by name of the variant, columns by name of the client.

    `load`: share of the processor, if everybody who can ran that variant; infinite where the client has no such one.
    """

    clients: tuple[Client, ...]
    names: tuple[str, ...]
    variants: tuple[Mapping[str, Variant], ...]
    """Of each client, by name."""
    load: NDArray[np.float64]
    gap: NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class _Row:
    """A promise before its choice is written out: the row of the table that each client takes, -1 for none."""

    chosen: tuple[str, ...]
    rows: NDArray[np.intp]
    clients: int
    load: float
    most: int


def choices(problem: OffloadInput, common: Common | None = None) -> list[Promise]:
    """The most promising choices, best first: by the number of clients whose loads fit, then by the load that is left,
    then by name.
    Every variant alone is among them, so that a joint choice is no loss.

    `problem`: one that has variants. `common`: of it, where that is known. O(sets · variants · clients)."""
    table = _table(problem, common or common_of(problem))
    alone = _rows(table, [(k,) for k in range(len(table.names))], 1.0)
    alone.sort(key=lambda p: (-p.clients, p.chosen))
    best = sorted(table.names.index(p.chosen[0]) for p in alone[:CANDIDATES_MAX])
    promises = _rows(table, list(_sets(best)), 1.0)
    promises.sort(key=lambda p: (-p.clients, p.load, p.chosen))
    sets = [tuple(table.names.index(name) for name in p.chosen) for p in _distinct(promises)[:SETS_PLANNED]]
    found = [p for times in RELUCTANCES for p in _rows(table, sets, times)]
    found += [p for p in promises if len(p.chosen) == 1]
    found.sort(key=lambda p: -p.clients)
    return _with_previous(problem, [_written(table, p) for p in _distinct(found)])


def held(problem: OffloadInput) -> Choice:
    """The variants that the served run in the previous plan."""
    before: dict[str, str | None] = {name: b.variant for b in problem.previous for name, _ in b.requests}
    return {c.name: v for c in problem.clients for v in c.variants if before.get(c.name) == v.name}


def mended(promise: Promise, choice: Choice, broken: Iterable[Client]) -> Choice | None:
    """`choice`, a promise's or one that came of it, with those whose SLA breaks on the next more accurate variant of
    the promised set: its gap leaves them more to lose by waiting. None where there is none for any of them.
    """
    moved = {}
    for client in broken:
        gap = choice[client.name].accuracy_gap if client.name in choice else -1.0
        better = [v for v in client.variants if v.accuracy_gap < gap and v.name in promise.chosen]
        if better:
            moved[client.name] = max(better, key=lambda v: (v.accuracy_gap, v.name))
    return {**choice, **moved} if moved else None


def _distinct(promises: Iterable[_Row]) -> list[_Row]:
    """The first of those with the same choice."""
    kept: dict[bytes, _Row] = {}
    for promise in promises:
        kept.setdefault(promise.rows.tobytes(), promise)
    return list(kept.values())


def _sets(rows: list[int]) -> Iterator[tuple[int, ...]]:
    for count in range(1, min(SET_MAX, len(rows)) + 1):
        yield from combinations(rows, count)


def _table(problem: OffloadInput, common: Common) -> _Table:
    clients = common.clients
    variants = tuple([{variant.name: variant for variant in client.variants} for client in clients])
    names = tuple(sorted({name for own in variants for name in own}))
    load, gap = np.full((len(names), len(clients)), np.inf), np.full((len(names), len(clients)), np.inf)
    for k, name in enumerate(names):
        choice = {client.name: own[name] for client, own in zip(clients, variants, strict=True) if name in own}
        rates = pace(fleet_of(problem, choice, common), has_choice=True).load
        for i, own in enumerate(variants):
            if name in own:
                load[k, i], gap[k, i] = rates[i], own[name].accuracy_gap
    return _Table(clients, names, variants, load, gap)


def _rows(table: _Table, sets: Sequence[tuple[int, ...]], reluctance: float) -> list[_Row]:
    """What sets of variants promise if each client takes the cheapest of the set, those with a larger gap counted
    `reluctance` times; of equals the one of the smaller gap, then by name. Who has none of a set takes any of its own.
    """
    has = np.isfinite(table.gap)
    usable = np.zeros((len(sets), len(table.names), 1), bool)
    for k, chosen in enumerate(sets):
        usable[k, list(chosen)] = True
    usable = usable & has
    usable |= ~usable.any(axis=1, keepdims=True) & has
    gap = np.where(usable, table.gap, np.inf)
    times = np.where(gap > gap.min(axis=1, keepdims=True, initial=np.inf), reluctance, 1.0)
    cost = np.where(usable, times * table.load, np.inf)
    is_least = (cost == cost.min(axis=1, keepdims=True, initial=np.inf)) & usable
    rows = np.where(is_least, gap, np.inf).argmin(axis=1)
    columns = np.arange(len(table.clients))
    loads = np.where(has.any(axis=0), table.load[rows, columns], 0.0)
    rows = np.where(has.any(axis=0), rows, -1)
    is_counted = has.any(axis=0)
    return [
        _row(tuple(table.names[k] for k in chosen), rows[at], np.sort(loads[at][is_counted]).cumsum())
        for at, chosen in enumerate(sets)
    ]


def _row(chosen: tuple[str, ...], rows: NDArray[np.intp], totals: NDArray[np.float64]) -> _Row:
    """`totals`: of the loads, the least first."""
    number = int(np.searchsorted(totals, 1.0, side="right"))
    within = float(totals[number - 1]) if number else 0.0
    return _Row(chosen, rows, number, within, int(np.searchsorted(totals, LOAD_MAX, side="right")))


def _written(table: _Table, row: _Row) -> Promise:
    choice = {
        client.name: own[table.names[k]]
        for client, own, k in zip(table.clients, table.variants, row.rows.tolist(), strict=True)
        if k >= 0
    }
    return Promise(row.chosen, choice, row.clients, row.load, row.most)


def _with_previous(problem: OffloadInput, found: list[Promise]) -> list[Promise]:
    """Whoever is served already keeps the variant of the previous plan if that suffices; the free choices come
    after.
    """
    kept = held(problem)
    if not kept:
        return found
    distinct: dict[tuple[tuple[str, str], ...], Promise] = {}
    for promise in (*(replace(p, choice={**p.choice, **kept}) for p in found), *found):
        distinct.setdefault(tuple(sorted([(name, v.name) for name, v in promise.choice.items()])), promise)
    return list(distinct.values())
