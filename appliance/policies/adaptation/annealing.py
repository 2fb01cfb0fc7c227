"""Jellyfish's own policy: networks by simulated annealing (§IV-C, Alg. 2), clients by Algorithm 1."""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from appliance.policies.adaptation.answer import assemble
from appliance.policies.adaptation.base import AdaptationInput, AdaptationPlan, Client
from appliance.policies.adaptation.budgets import capacity_rps
from appliance.policies.adaptation.mapping import Mapped, Mapper, RateScale
from appliance.policies.adaptation.zoo import filtered, monotone

TEMPERATURE_START = 0.0125
TEMPERATURE_MIN = 0.0005
COOLING = 0.99
"""The parameters of the authors' released simulator: about 321 steps a mode."""

State = tuple[int, ...]
"""The multiset of networks: indices into the zoo by size, ascending."""


@dataclass(frozen=True, slots=True)
class _Score:
    """O1, the share of clients mapped, and O2, accuracy a request with the best network's as 1, so that one
    temperature suits every unit.
    """

    mapped: float
    accuracy: float


class Jellyfish:
    """DEGRADE until all are mapped (O1), then UPGRADE for accuracy (O2) without losing O1; from the previous selection,
    else the smallest networks.

    Where the paper is silent: neighbours move each worker by −1 or 0 sizes (DEGRADE), by −1, 0 or 1 (UPGRADE), to a
    precision of that size drawn at random: over sizes the zoo is monotone, between precisions nothing is assumed
    (`zoo`). As printed, the acceptance rule takes every worse state (exp(−diff/T) > 1 for a negative diff); here a
    worse state is taken with exp(−|diff|/T). In UPGRADE only states that map as many clients as the best one are taken;
    so it also runs where not all can be mapped. Cost: at most 642 runs of Algorithm 1; states are cached.
    """

    def plan(self, problem: AdaptationInput) -> AdaptationPlan:
        if not problem.clients:
            return assemble(problem, (), "jellyfish")
        mapped, visited = annealed(problem)
        return assemble(problem, mapped, f"jellyfish, {visited} selections tried", says_what_binds=True)


def annealed(problem: AdaptationInput, cooling: float = COOLING) -> tuple[tuple[Mapped, ...], int]:
    """The mapping that Algorithm 2 ends with, and how many selections it looked at. The problem has clients."""
    search = _Search(problem, cooling)
    state = search.anneal(search.start(), upgrade=False)
    state = search.anneal(state, upgrade=True)
    return search.mapping(state), search.visited


class _Search:
    """One run of Algorithm 2: the problem in canonical order, the dice, the cache of mappings."""

    def __init__(self, problem: AdaptationInput, cooling: float) -> None:
        self._cooling = cooling
        self._problem = problem
        self._zoo = monotone(filtered(problem.networks))
        alike = groupby(range(len(self._zoo)), key=lambda i: self._zoo[i].input_bytes)
        self._sizes = [tuple(indices) for _, indices in alike]
        self._size_of = [size for size, indices in enumerate(self._sizes) for _ in indices]
        self._clients: Sequence[Client] = sorted(problem.clients, key=lambda c: c.name)
        self._random = random.Random(problem.seed)
        capacity = max(capacity_rps(network, batch) for network in self._zoo for batch in network.latency_ms)
        self._mapper = Mapper(self._clients, self._zoo, RateScale.over(self._clients, capacity))
        self._rate = sum(client.rate_rps for client in self._clients)
        self._accuracy_max = max(network.accuracy for network in self._zoo) or 1.0
        self._mappings: dict[State, tuple[Mapped, ...]] = {}

    @property
    def visited(self) -> int:
        return len(self._mappings)

    def start(self) -> State:
        """The previous selection; a worker without one, or with a network that left the zoo, starts with the
        smallest (JF-16).
        """
        index = {network.name: i for i, network in enumerate(self._zoo)}
        held = list(self._problem.previous[: self._problem.workers])
        held += [None] * (self._problem.workers - len(held))
        return tuple(sorted(index.get(name or "", 0) for name in held))

    def mapping(self, state: State) -> tuple[Mapped, ...]:
        if state not in self._mappings:
            self._mappings[state] = self._mapper.mapping(state)
        return self._mappings[state]

    def anneal(self, state: State, upgrade: bool) -> State:
        """The best state found from `state` in one mode."""
        best, best_score = state, self._score(state)
        score = best_score
        temperature = TEMPERATURE_START
        while temperature > TEMPERATURE_MIN and (upgrade or best_score.mapped < 1.0):
            neighbour = self._neighbour(state, upgrade)
            found = self._score(neighbour)
            if _better(found, best_score, upgrade):
                best, best_score = neighbour, found
            if self._accepts(found, score, best_score, temperature, upgrade):
                state, score = neighbour, found
            temperature *= self._cooling
        return best

    def _neighbour(self, state: State, upgrade: bool) -> State:
        return tuple(sorted([self._moved(i, self._random.randint(-1, 1 if upgrade else 0)) for i in state]))

    def _moved(self, i: int, steps: int) -> int:
        """A network of the size that lies so many steps from that of `i`, within the zoo."""
        alike = self._sizes[max(0, min(len(self._sizes) - 1, self._size_of[i] + steps))]
        return alike[0] if len(alike) == 1 else self._random.choice(alike)

    def _score(self, state: State) -> _Score:
        mapped = self.mapping(state)
        clients = sum(len(m.clients) for m in mapped)
        total = sum(m.network.accuracy * client.rate_rps for m in mapped for client in m.clients)
        return _Score(clients / len(self._clients), total / (self._rate * self._accuracy_max))

    def _accepts(self, found: _Score, current: _Score, best: _Score, temperature: float, upgrade: bool) -> bool:
        if upgrade and found.mapped < best.mapped:
            return False
        gain = found.accuracy - current.accuracy if upgrade else found.mapped - current.mapped
        return gain > 0 or math.exp(-abs(gain) / temperature) > self._random.random()


def _better(found: _Score, best: _Score, upgrade: bool) -> bool:
    if upgrade:
        return found.mapped >= best.mapped and found.accuracy > best.accuracy
    return found.mapped > best.mapped
