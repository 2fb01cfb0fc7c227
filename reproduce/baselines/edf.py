"""Baselines after Clockwork (§VI-C): one fixed network on every worker, clients by earliest deadline first, with
data adaptation.
"""

from collections.abc import Callable, Sequence

from appliance.policies.adaptation.answer import assemble
from appliance.policies.adaptation.base import AdaptationInput, AdaptationPlan, Client, Network
from appliance.policies.adaptation.budgets import batch_for, latency_budget_ms
from appliance.policies.adaptation.mapping import Mapped
from appliance.policies.adaptation.zoo import filtered


class EarliestDeadline:
    """The network that `choose` picks from the filtered zoo (ascending size) on all workers; the client with the least
    budget first, on the first
    worker with room.

    The paper's baseline orders requests; a plan orders clients, by the compute budget that their requests arrive with.
    O(clients · workers · batches). Ties: the client's name.
    """

    def __init__(self, name: str, choose: Callable[[Sequence[Network]], Network]) -> None:
        self._name = name
        self._choose = choose

    def plan(self, problem: AdaptationInput) -> AdaptationPlan:
        network = self._choose(filtered(problem.networks))
        workers: list[list[Client]] = [[] for _ in range(problem.workers)]
        for client in sorted(problem.clients, key=lambda c: (latency_budget_ms(c, network), c.name)):
            for members in workers:
                if batch_for(network, [*members, client]) is not None:
                    members.append(client)
                    break
        mapped = [
            Mapped(network, batch, tuple(members))
            for members in workers
            if members and (batch := batch_for(network, members)) is not None
        ]
        return assemble(problem, mapped, f"{self._name}, {network.name} on every worker")


def smallest() -> EarliestDeadline:
    return EarliestDeadline("edf-smallest", lambda zoo: zoo[0])


def middle() -> EarliestDeadline:
    """The middle of the zoo by size (352 of 128 … 608), the smaller one of two."""
    return EarliestDeadline("edf-middle", lambda zoo: zoo[(len(zoo) - 1) // 2])


def largest() -> EarliestDeadline:
    return EarliestDeadline("edf-largest", lambda zoo: zoo[-1])
