"""Decisions on pipelines, as facts for the decision log and as the JSON that `appliance plan` reads.

What other pipelines take of a worker bears no name: they may be other tenants'.
"""

import datetime
from collections.abc import Iterable, Mapping
from typing import Any

from appliance.domain.decisions import DecisionRecord
from appliance.policies.allocation.base import AllocationInput, AllocationPlan, Module, WorkerType

OTHER = "other"
HOST = "host"
"""The worker type of CPU stages."""


def pipeline(
    pipeline_id: str,
    tenant: str,
    application_ids: Iterable[str],
    problem: AllocationInput,
    plan: AllocationPlan,
    policy: str,
    outcome: str,
    because: str,
) -> dict[str, object]:
    """How a pipeline is served, of kind `pipeline`; `because`: what it was planned for (SC-17)."""
    refused = {"key": (pipeline_id, tenant, outcome)} if outcome == "refused" else {}
    return {
        "asker": tenant,
        **refused,
        "pipeline": pipeline_id,
        "concerned": tuple((id, tenant) for id in sorted(application_ids)),
        "problem": problem,
        "plan": plan,
        "policy": policy,
        "outcome": outcome,
        "because": because,
    }


def pipeline_record(at: datetime.datetime, facts: Mapping[str, Any]) -> DecisionRecord:
    """The whole record of one decision."""
    return DecisionRecord(
        at,
        "pipeline",
        None,
        facts["concerned"],
        {**pipeline_problem_json(facts["problem"]), "policy": facts["policy"]},
        {
            "outcome": facts["outcome"],
            "pipeline": facts["pipeline"],
            "because": facts["because"],
            "actions": [],
            **pipeline_answer_json(facts["plan"], facts["problem"].cost_by),
        },
    )


def pipeline_problem_json(problem: AllocationInput) -> dict[str, Any]:
    """As `appliance plan` reads it."""
    return {
        "kind": "pipeline",
        "slo_ms": problem.slo_ms,
        "workers": [_worker(worker) for worker in problem.workers],
        "modules": [_module(module) for module in problem.modules],
        "edges": [list(edge) for edge in problem.edges],
        "existing": _existing(problem),
        "cost_by": problem.cost_by.value,
        "batch_wait": problem.batch_wait.value,
    }


def pipeline_answer_json(plan: AllocationPlan, cost_by: str) -> dict[str, Any]:
    """As `appliance plan` answers, without the time it took."""
    return {
        "feasible": plan.feasible,
        "cost": plan.cost,
        "cost_by": str(cost_by),
        "latency_ms": plan.latency_ms,
        "allocations": [
            {
                "module": a.module,
                "worker": a.worker,
                "batch": a.batch,
                "concurrency": a.concurrency,
                "rate_rps": a.rate_rps,
                "instances": a.instances,
                "worst_latency_ms": a.worst_latency_ms,
            }
            for a in plan.allocations
        ],
        "placement": [
            {
                "worker": placed.worker,
                "index": placed.index,
                "parts": [{"module": part.module, "share": part.share} for part in placed.parts],
                "new": placed.is_new,
            }
            for placed in plan.placement
        ],
        "reason": plan.reason,
        **plan.facts,
    }


def _existing(problem: AllocationInput) -> list[dict[str, Any]]:
    """What others take. Single calls may have come to take more since the pipelines were planned: more than a worker is
    all of it.
    """
    pools = {worker.name: worker.pool for worker in problem.workers}
    left: dict[tuple[str, int], float] = {}
    found = []
    for one in problem.existing:
        at = pools.get(one.worker, one.worker), one.index
        parts = []
        for part in one.parts:
            share = min(part.share, left.setdefault(at, 1.0))
            left[at] -= share
            parts.append({"module": OTHER, "share": share})
        found.append({"worker": one.worker, "index": one.index, "parts": parts, "loaded": list(one.loaded)})
    return found


def _worker(worker: WorkerType) -> dict[str, Any]:
    group = {} if worker.group is None else {"group": worker.group}
    kind = {"kind": "cpu"} if worker.name == HOST else {}
    return {"name": worker.name, "cost": worker.cost, "available": worker.available, **group, **kind}


def _module(module: Module) -> dict[str, Any]:
    return {
        "name": module.name,
        "rate_rps": module.rate_rps,
        "ballooning": module.ballooning,
        "profiles": [
            {
                "worker": one.worker,
                "batch": one.batch,
                "concurrency": one.concurrency,
                "latency_ms": one.latency_ms,
                **({} if one.throughput_rps is None else {"throughput_rps": one.throughput_rps}),
                **({} if one.power_w is None else {"power_w": one.power_w}),
                **({"draws": [{"worker": d.worker, "share": d.share} for d in one.draws]} if one.draws else {}),
            }
            for one in module.profiles
        ],
    }
