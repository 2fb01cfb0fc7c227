"""One fixed network for everybody, and nobody is refused: the baseline of Jellyfish's evaluation as it was (§VI-C).

`edf` judges who fits before it serves, as our own planner does. Here all are served, as there, and what comes too late
is dropped; the box's queue decides which, by its deadline. Clients go to the worker with the least rate so far, the
largest first; its batch is the largest in time for the tightest of them, or the smallest there is.
"""

from collections.abc import Callable, Sequence

from appliance.policies.adaptation.answer import assemble
from appliance.policies.adaptation.base import AdaptationInput, AdaptationPlan, Client, Network
from appliance.policies.adaptation.budgets import fits_latency, latency_budget_ms
from appliance.policies.adaptation.mapping import Mapped
from appliance.policies.adaptation.zoo import filtered


class OpenDoor:
    """The network that `choose` picks from the filtered zoo (ascending size) on all workers. Ties: the client's
    name.
    """

    def __init__(self, name: str, choose: Callable[[Sequence[Network]], Network]) -> None:
        self._name = name
        self._choose = choose

    def plan(self, problem: AdaptationInput) -> AdaptationPlan:
        network = self._choose(filtered(problem.networks))
        workers: list[list[Client]] = [[] for _ in range(problem.workers)]
        for client in sorted(problem.clients, key=lambda c: (-c.rate_rps, c.name)):
            min(workers, key=lambda members: sum(one.rate_rps for one in members)).append(client)
        mapped = [Mapped(network, _batch(network, members), tuple(members)) for members in workers if members]
        return assemble(problem, mapped, f"{self._name}, {network.name} on every worker")


def _batch(network: Network, members: Sequence[Client]) -> int:
    budget_ms = min(latency_budget_ms(client, network) for client in members)
    in_time = [batch for batch, ms in network.latency_ms.items() if fits_latency(ms, budget_ms)]
    return max(in_time, default=min(network.latency_ms))


def smallest() -> OpenDoor:
    return OpenDoor("open-smallest", lambda zoo: zoo[0])


def middle() -> OpenDoor:
    """The middle of the zoo by size, the smaller one of two."""
    return OpenDoor("open-middle", lambda zoo: zoo[(len(zoo) - 1) // 2])


def largest() -> OpenDoor:
    return OpenDoor("open-largest", lambda zoo: zoo[-1])
