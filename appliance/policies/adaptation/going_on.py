"""The plan before, where it still serves everybody: a search that leaves somebody out may have overlooked it.

Searches are heuristics. One that serves all of a crowd need not find how at the next turn, with a little more room or
another start; who was let in would have to go for that.
"""

from appliance.policies.adaptation.answer import assemble
from appliance.policies.adaptation.base import AdaptationInput, AdaptationPlan
from appliance.policies.adaptation.budgets import batch_for, link_keeps_up
from appliance.policies.adaptation.mapping import Mapped

WORTH = 0.8
"""Other networks that are as accurate are worth a change where they take at most so much of the time of those before.
What a run takes moves with the load, and of two precisions of one network now the one seems quicker, now the other."""
PAID_S = 30.0
"""Within which they make good what the change costs."""
AS_ACCURATE = 0.1
"""Points: networks no further apart are as accurate as each other."""


def gone_on(problem: AdaptationInput, before: AdaptationPlan) -> AdaptationPlan | None:
    """The same clients on the same networks, in the batches that they need now; None where that does not serve all."""
    clients = {client.name: client for client in problem.clients}
    networks = {network.name: network for network in problem.networks}
    mapped = []
    for worker in before.workers:
        network = networks.get(worker.network)
        members = tuple(clients.pop(name) for name in worker.clients if name in clients)
        if not members:
            continue
        if network is None or not all(link_keeps_up(client, network) for client in members):
            return None
        batch = batch_for(network, members)
        if batch is None:
            return None
        mapped.append(Mapped(network, batch, members))
    if clients or len(mapped) > problem.workers:
        return None
    return assemble(problem, mapped, "as before")


def points_gained(problem: AdaptationInput, before: AdaptationPlan, plan: AdaptationPlan) -> float | None:
    """Points of accuracy that a frame gains on average, of the clients that change networks from one plan to the other;
    None where nobody does."""
    accuracy = {network.name: network.accuracy for network in problem.networks}
    rates = {client.name: client.rate_rps for client in problem.clients}
    had, gained, total = networks_of(before), 0.0, 0.0
    for name, network in networks_of(plan).items():
        if name in had and had[name] != network and had[name] in accuracy:
            gained += rates[name] * (accuracy[network] - accuracy[had[name]])
            total += rates[name]
    return gained / total if total else None


def pays(problem: AdaptationInput, before: AdaptationPlan, plan: AdaptationPlan, cost_ms: float) -> bool:
    """Whether a plan takes so much less of the workers than another one that a change is worth it, and makes good
    within `PAID_S` what the change costs: `cost_ms` of all workers' time, as the problem counts it."""
    takes, took = _takes(problem, plan), _takes(problem, before)
    return takes <= WORTH * took and (took - takes) * PAID_S >= cost_ms


def networks_of(plan: AdaptationPlan) -> dict[str, str]:
    """By client."""
    return {name: worker.network for worker in plan.workers for name in worker.clients}


def _takes(problem: AdaptationInput, plan: AdaptationPlan) -> float:
    """Milliseconds of all workers in a second."""
    rates = {client.name: client.rate_rps for client in problem.clients}
    latency_ms = {network.name: network.latency_ms for network in problem.networks}
    return sum(
        rates[name] * latency_ms[worker.network][worker.batch] / worker.batch
        for worker in plan.workers
        for name in worker.clients
    )
