"""From what a search found to a plan: workers matched with what they run, neighbours, who is left out, and why."""

from collections import Counter
from collections.abc import Mapping, Sequence

from appliance.policies.adaptation.base import AdaptationInput, AdaptationPlan, Client, WorkerPlan
from appliance.policies.adaptation.binding import Binding, binding, next_better
from appliance.policies.adaptation.mapping import Mapped
from appliance.policies.adaptation.matching import match, names, prefetch
from appliance.policies.adaptation.zoo import by_size


def assemble(
    problem: AdaptationInput,
    mapped: Sequence[Mapped],
    how: str,
    facts: Mapping[str, float] | None = None,
    says_what_binds: bool = False,
) -> AdaptationPlan:
    """The plan of `mapped`.

    `how` names the algorithm in the reason; `says_what_binds`: the reason also says what keeps the mapped clients from
    more accurate networks, for algorithms that looked for them. Raises: ValueError for more instances than workers (our
    own mistake)."""
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
        reason=_reason(problem, left, how) + (_bound(problem, ordered) if says_what_binds else ""),
        facts=dict(facts or {}),
    )


_UNMAPPED: Mapping[Binding, str] = {
    Binding.COMPUTE: "no network meets the SLO of {} of them: two runs take longer (compute budget)",
    Binding.NETWORK: "no network meets the SLO of {} of them over their link (network share)",
    Binding.RATE: "no worker carries the rate of {} of them in time, even alone (rate)",
    Binding.WORKERS: "for {} of them the workers have no room (worker capacity)",
}


def _reason(problem: AdaptationInput, left: Sequence[Client], how: str) -> str:
    total = len(problem.clients)
    if not left:
        return f"{'the device is' if total == 1 else f'all {total} devices are'} served. Planned by {how}"
    counts = Counter(binding(client, problem.networks) for client in left)
    why = " and ".join(text.format(counts[bound]) for bound, text in _UNMAPPED.items() if counts[bound])
    return f"{len(left)} of {total} devices {'is' if len(left) == 1 else 'are'} not served: {why}. Planned by {how}"


def _bound(problem: AdaptationInput, mapped: Sequence[Mapped]) -> str:
    """What keeps mapped clients from the next more accurate networks."""
    counts = Counter(
        binding(client, better)
        for m in mapped
        if (better := next_better(m.network, problem.networks))
        for client in m.clients
    )
    bounds = [f"{bound} for {counts[bound]}" for bound in Binding if counts[bound]]
    return f"; better networks are held back by {', '.join(bounds)}" if bounds else ""
