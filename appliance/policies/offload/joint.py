"""The joint choice of variants: which candidate network each client runs, so that together they leave room for the most
clients.

A smaller network's accuracy gap takes from the SLA what its quicker inference and smaller frame give to interval and
batch; which side wins differs by client, and batches fill only if enough clients run the same variant. So: for every
small set of variants that the box may run, each client takes the one of the set that costs least of the processor. The
closed form knows nothing of waiting behind the batches of slower networks, which hurts those most whose SLA the gap has
nearly used up; so for each set there are further choices, where a client leaves the most accurate variant only for one
that costs much less. The sets that promise the most clients are planned in full, by whoever calls; `most` says which
need not be.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from appliance.policies.offload.base import Client, OffloadInput, Variant
from appliance.policies.offload.due import pace
from appliance.policies.offload.fleet import Choice, fleet_of

SET_MAX = 3
"""Variants of a set. More of them share too few clients to fill batches; 6 candidates make 41 sets."""
CANDIDATES_MAX = 8
"""Of more variants, those count that serve the most clients alone."""
SETS_PLANNED = 4
"""Sets that are planned in full; the closed form is good at the order, not at the last client."""
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


Loads = Mapping[str, Mapping[str, float]]
"""Variant → client → share of the processor, if everybody who can ran that variant."""


def choices(problem: OffloadInput) -> list[Promise]:
    """The most promising choices, best first: by the number of clients whose loads fit, then by the load that is left,
    then by name.
    Every variant alone is among them, so that a joint choice is no loss."""
    loads = _loads(problem)
    alone = sorted(loads, key=lambda name: (-_promise(problem, loads, (name,), 1.0).clients, name))[:CANDIDATES_MAX]
    promises = [_promise(problem, loads, chosen, 1.0) for chosen in _sets(sorted(alone))]
    promises.sort(key=lambda p: (-p.clients, p.load, p.chosen))
    sets = _distinct(promises)[:SETS_PLANNED]
    found = [_promise(problem, loads, p.chosen, times) for times in RELUCTANCES for p in sets]
    found += [p for p in promises if len(p.chosen) == 1]
    found.sort(key=lambda p: -p.clients)
    return _with_previous(problem, _distinct(found))


def held(problem: OffloadInput) -> Choice:
    """The variants that the served run in the previous plan."""
    before: dict[str, str | None] = {name: b.variant for b in problem.previous for name, _ in b.requests}
    return {c.name: v for c in problem.clients for v in c.variants if before.get(c.name) == v.name}


def _distinct(promises: Iterable[Promise]) -> list[Promise]:
    """The first of those with the same choice."""
    kept: list[Promise] = []
    for promise in promises:
        if all(promise.choice != other.choice for other in kept):
            kept.append(promise)
    return kept


def _sets(names: list[str]) -> Iterator[tuple[str, ...]]:
    for count in range(1, min(SET_MAX, len(names)) + 1):
        yield from combinations(names, count)


def _loads(problem: OffloadInput) -> Loads:
    clients = (*problem.clients, *problem.waiting)
    names = sorted({variant.name for client in clients for variant in client.variants})
    loads = {}
    for name in names:
        choice = {c.name: v for c in clients for v in c.variants if v.name == name}
        fleet = fleet_of(problem, choice)
        rates = pace(fleet).load
        loads[name] = {c.name: rates[i] for i, c in enumerate(fleet.clients) if c.name in choice}
    return loads


def _promise(problem: OffloadInput, loads: Loads, chosen: tuple[str, ...], reluctance: float) -> Promise:
    """What a set of variants promises if each client takes the cheapest of the set, those with a larger gap counted
    `reluctance` times.
    """
    choice: dict[str, Variant] = {}
    costs = []
    for client in (*problem.clients, *problem.waiting):
        usable = [v for v in client.variants if v.name in chosen] or list(client.variants)
        if usable:
            variant = _cheapest(client, usable, loads, reluctance)
            choice[client.name] = variant
            costs.append(loads[variant.name][client.name])
    total, number, within, most = 0.0, 0, 0.0, 0
    for cost in sorted(costs):
        total += cost
        if total <= 1.0:
            within, number = total, number + 1
        if total <= LOAD_MAX:
            most += 1
    return Promise(chosen, choice, number, within, most)


def _cheapest(client: Client, usable: Sequence[Variant], loads: Loads, reluctance: float) -> Variant:
    least = min(v.accuracy_gap for v in usable)

    def cost(variant: Variant) -> tuple[float, float, str]:
        times = reluctance if variant.accuracy_gap > least else 1.0
        return times * loads[variant.name][client.name], variant.accuracy_gap, variant.name

    return min(usable, key=cost)


def _with_previous(problem: OffloadInput, found: list[Promise]) -> list[Promise]:
    """Whoever is served already keeps the variant of the previous plan if that suffices; the free choices come
    after.
    """
    kept = held(problem)
    if not kept:
        return found
    return _distinct([*(replace(p, choice={**p.choice, **kept}) for p in found), *found])
