"""The plan before, where it still serves everybody: a search that leaves somebody out may have overlooked it.

Searches are heuristics. One that serves all of a crowd need not find how at the next turn, with a little more room or
another start; who was let in would have to go for that.
"""

from appliance.policies.adaptation.answer import assemble
from appliance.policies.adaptation.base import AdaptationInput, AdaptationPlan
from appliance.policies.adaptation.budgets import batch_for, link_keeps_up
from appliance.policies.adaptation.mapping import Mapped
from appliance.policies.adaptation.zoo import WORTH

EPSILON = 1e-9


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


def is_needless(problem: AdaptationInput, before: AdaptationPlan, plan: AdaptationPlan) -> bool:
    """Whether a plan that has somebody change networks does so for nothing: `before`, as `gone_on` gives it, is as
    accurate, and takes hardly more time."""
    if plan.objective > before.objective + EPSILON:
        return False
    return _takes(problem, plan) > WORTH * _takes(problem, before)


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
