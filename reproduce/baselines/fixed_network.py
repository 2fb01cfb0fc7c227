"""Baselines of Jellyfish's evaluation (§VI-C): one fixed network on every worker, with data adaptation."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from appliance.policies.adaptation.answer import assemble
from appliance.policies.adaptation.base import AdaptationInput, AdaptationPlan, Client, Network
from appliance.policies.adaptation.budgets import batch_for, fits_latency, latency_budget_ms
from appliance.policies.adaptation.mapping import Mapped
from appliance.policies.adaptation.zoo import filtered


@dataclass(frozen=True, slots=True)
class FixedNetwork:
    """The network that `choose` picks from the filtered zoo (ascending size) on all workers, as `seat` fills them."""

    name: str
    choose: Callable[[Sequence[Network]], Network]
    seat: Callable[[AdaptationInput, Network], list[Mapped]]

    def plan(self, problem: AdaptationInput) -> AdaptationPlan:
        network = self.choose(filtered(problem.networks))
        return assemble(problem, self.seat(problem, network), f"{self.name}, {network.name} on every worker")


def earliest_deadline(problem: AdaptationInput, network: Network) -> list[Mapped]:
    """After Clockwork: the client with the least budget first, on the first worker with room.

    The paper's baseline orders requests; a plan orders clients, by the compute budget that their requests arrive with.
    O(clients · workers · batches). Ties: the client's name.
    """
    workers: list[list[Client]] = [[] for _ in range(problem.workers)]
    for client in sorted(problem.clients, key=lambda c: (latency_budget_ms(c, network), c.name)):
        for members in workers:
            if batch_for(network, [*members, client]) is not None:
                members.append(client)
                break
    found = [(batch_for(network, members), members) for members in workers if members]
    return [Mapped(network, batch, tuple(members)) for batch, members in found if batch is not None]


def open_door(problem: AdaptationInput, network: Network) -> list[Mapped]:
    """Nobody is refused, as in the paper's evaluation: what comes too late is dropped by the box's queue.

    Clients go to the worker with the least rate so far, the largest first; its batch is the largest in time for the
    tightest of them, or the smallest there is. Ties: the client's name.
    """
    workers: list[list[Client]] = [[] for _ in range(problem.workers)]
    for client in sorted(problem.clients, key=lambda c: (-c.rate_rps, c.name)):
        min(workers, key=lambda members: sum(one.rate_rps for one in members)).append(client)
    return [Mapped(network, _largest_batch(network, members), tuple(members)) for members in workers if members]


def _largest_batch(network: Network, members: Sequence[Client]) -> int:
    budget_ms = min(latency_budget_ms(client, network) for client in members)
    in_time = [batch for batch, ms in network.latency_ms.items() if fits_latency(ms, budget_ms)]
    return max(in_time, default=min(network.latency_ms))


SIZES: Mapping[str, Callable[[Sequence[Network]], Network]] = {
    "smallest": lambda zoo: zoo[0],
    "middle": lambda zoo: zoo[(len(zoo) - 1) // 2],
    "largest": lambda zoo: zoo[-1],
}
"""The middle of the zoo by size (352 of 128 … 608) is the smaller one of two."""
FIXED_NETWORKS: Mapping[str, Callable[[], FixedNetwork]] = {
    f"{rule}-{size}": partial(FixedNetwork, f"{rule}-{size}", choose, seat)
    for rule, seat in (("edf", earliest_deadline), ("open", open_door))
    for size, choose in SIZES.items()
}
