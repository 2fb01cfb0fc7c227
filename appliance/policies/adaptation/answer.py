"""From what a search found to a plan: workers matched with what they run, neighbours, who is left out, and why."""

from collections.abc import Mapping, Sequence

from appliance.policies.adaptation.base import AdaptationInput, AdaptationPlan, Client, Network, WorkerPlan
from appliance.policies.adaptation.budgets import fits_latency, latency_budget_ms
from appliance.policies.adaptation.mapping import Mapped
from appliance.policies.adaptation.matching import match, names, prefetch
from appliance.policies.adaptation.zoo import by_size


def assemble(
    problem: AdaptationInput, mapped: Sequence[Mapped], how: str, facts: Mapping[str, float] | None = None
) -> AdaptationPlan:
    """The plan of `mapped`. `how` names the algorithm in the reason. Raises: ValueError for more instances than workers (our own mistake)."""
    if len(mapped) > problem.workers:
        raise ValueError(f"{len(mapped)} instances for {problem.workers} workers")
    order = names(by_size(problem.networks))
    ordered = sorted(mapped, key=lambda m: (-m.network.accuracy, m.network.name, min(c.name for c in m.clients)))
    workers = match(problem.previous, [m.network.name for m in ordered], order, problem.workers)
    plans = sorted(
        (
            WorkerPlan(worker, m.network.name, m.batch, tuple(sorted(c.name for c in m.clients)))
            for worker, m in zip(workers, ordered, strict=True)
        ),
        key=lambda plan: plan.worker,
    )
    served = {client.name for m in mapped for client in m.clients}
    left = sorted((client for client in problem.clients if client.name not in served), key=lambda c: c.name)
    return AdaptationPlan(
        workers=tuple(plans),
        unmapped=tuple(client.name for client in left),
        objective=sum(m.network.accuracy * client.rate_rps for m in ordered for client in m.clients),
        prefetch=prefetch([plan.network for plan in plans], order, problem.prefetch_per_worker),
        reason=_reason(problem, left, how),
        facts=dict(facts or {}),
    )


def _reason(problem: AdaptationInput, left: Sequence[Client], how: str) -> str:
    total = len(problem.clients)
    if not left:
        return f"{how}: all {total} clients are mapped"
    hopeless = sum(not _servable(client, problem.networks) for client in left)
    why = [f"no network meets the SLO of {hopeless} over their link"] * (hopeless > 0)
    if len(left) > hopeless:
        why.append(f"for {len(left) - hopeless} the workers have no room")
    return f"{how}: {total - len(left)} of {total} clients are mapped; {' and '.join(why)}"


def _servable(client: Client, networks: Sequence[Network]) -> bool:
    """Whether some network alone on a worker could serve this client."""
    return any(
        fits_latency(ms, latency_budget_ms(client, network)) and client.rate_rps * ms <= 1000.0 * batch
        for network in networks
        for batch, ms in network.latency_ms.items()
    )
