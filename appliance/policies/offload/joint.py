"""The joint choice of variants: which candidate network each client runs, so that together they leave room for the most clients.

A smaller network's accuracy gap takes from the SLA what its quicker inference and smaller frame give to interval and batch; which side wins differs by
client, and batches fill only if enough clients run the same variant. So: for every small set of variants that the box may run, each client takes the one
of the set that costs least of the processor; the sets that promise the most clients are planned in full, by whoever calls.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations

from appliance.policies.offload.base import OffloadInput, Variant
from appliance.policies.offload.due import pace
from appliance.policies.offload.fleet import Choice, fleet_of

SET_MAX = 3
"""Variants of a set. More of them share too few clients to fill batches; 6 candidates make 41 sets."""
CANDIDATES_MAX = 8
"""Of more variants, those count that serve the most clients alone."""
SETS_PLANNED = 4
"""Sets that are planned in full; the closed form is good at the order, not at the last client."""


def choices(problem: OffloadInput) -> list[Choice]:
    """The most promising choices, best first: by the number of clients whose loads fit, then by the load that is left, then by name."""
    loads = _loads(problem)
    alone = sorted(loads, key=lambda name: (-_Promise.of(problem, loads, (name,)).clients, name))[:CANDIDATES_MAX]
    promises = [_Promise.of(problem, loads, chosen) for chosen in _sets(sorted(alone))]
    promises.sort(key=lambda p: (-p.clients, p.load, p.chosen))
    kept: list[Choice] = []
    for promise in promises:
        if promise.choice not in kept:
            kept.append(promise.choice)
    kept = kept[:SETS_PLANNED]
    singles = [p.choice for p in promises if len(p.chosen) == 1]
    kept += [choice for choice in singles[:1] if choice not in kept]
    return _with_previous(problem, kept)


def _sets(names: list[str]) -> Iterator[tuple[str, ...]]:
    for count in range(1, min(SET_MAX, len(names)) + 1):
        yield from combinations(names, count)


def _loads(problem: OffloadInput) -> dict[str, dict[str, float]]:
    """Variant → client → share of the processor, if everybody who can ran that variant."""
    clients = (*problem.clients, *problem.waiting)
    names = sorted({variant.name for client in clients for variant in client.variants})
    loads = {}
    for name in names:
        choice = {c.name: v for c in clients for v in c.variants if v.name == name}
        fleet = fleet_of(problem, choice)
        rates = pace(fleet).load
        loads[name] = {c.name: rates[i] for i, c in enumerate(fleet.clients) if c.name in choice}
    return loads


@dataclass(frozen=True, slots=True)
class _Promise:
    """What a set of variants promises in closed form."""

    chosen: tuple[str, ...]
    choice: Choice
    clients: int
    load: float

    @classmethod
    def of(cls, problem: OffloadInput, loads: Mapping[str, Mapping[str, float]], chosen: tuple[str, ...]) -> "_Promise":
        choice: dict[str, Variant] = {}
        costs = []
        for client in (*problem.clients, *problem.waiting):
            usable = [v for v in client.variants if v.name in chosen] or list(client.variants)
            if usable:
                variant = min(usable, key=lambda v: (loads[v.name][client.name], v.accuracy_gap, v.name))
                choice[client.name] = variant
                costs.append(loads[variant.name][client.name])
        total, number = 0.0, 0
        for cost in sorted(costs):
            if total + cost > 1.0:
                break
            total, number = total + cost, number + 1
        return cls(chosen, choice, number, total)


def _with_previous(problem: OffloadInput, found: list[Choice]) -> list[Choice]:
    """Whoever is served already keeps the variant of the previous plan if that suffices; the free choices come after."""
    before: dict[str, str | None] = {name: b.variant for b in problem.previous for name, _ in b.requests}
    held = {c.name: v for c in problem.clients for v in c.variants if before.get(c.name) == v.name}
    if not held:
        return found
    kept: list[Choice] = []
    for choice in [*({**choice, **held} for choice in found), *found]:
        if choice not in kept:
            kept.append(choice)
    return kept
