"""Problems as the format writes them, for the independent checker and the dispatcher."""

from typing import Any

from appliance.policies.adaptation.base import AdaptationInput


def written(problem: AdaptationInput, policy: str | None = None) -> dict[str, Any]:
    """The problem as `appliance plan` reads it."""
    document: dict[str, Any] = {
        "kind": "adaptation",
        "models": [
            {
                "name": n.name,
                "accuracy": n.accuracy,
                "input_bytes": n.input_bytes,
                "latency_ms": {str(b): ms for b, ms in n.latency_ms.items()},
            }
            for n in problem.networks
        ],
        "workers": problem.workers,
        "clients": [
            {"name": c.name, "rate_rps": c.rate_rps, "slo_ms": c.slo_ms, "bandwidth_bps": c.bandwidth_bps}
            for c in problem.clients
        ],
        "seed": problem.seed,
        "time_limit_s": problem.time_limit_s,
    }
    if problem.previous:
        document["previous"] = list(problem.previous)
    return document if policy is None else {**document, "policy": policy}
