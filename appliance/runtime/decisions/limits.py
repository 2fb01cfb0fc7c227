"""Decisions of kinds `admission`, `drop` and `budget`, as facts for the decision log, in the JSON that `appliance plan`
reads and writes.
"""

from collections.abc import Mapping
from typing import Any

from appliance.clock import NS_PER_MS
from appliance.domain.catalogue import Quota
from appliance.domain.errors import DeadlineExceeded, LimitReached, Overloaded, QueueFull, QuotaExceeded
from appliance.domain.request import Request
from appliance.domain.units import BYTES_PER_MB
from appliance.policies.limits.budget import BudgetInput, BudgetPlan
from appliance.policies.limits.requests import CONCURRENT, RATE

_UNCOUNTED = "the bound is none of the figures that `appliance plan` reads"
_NO_DEADLINE = "the request has no deadline of its own"


def admission(request: Request, quota: Quota, error: LimitReached) -> dict[str, object]:
    """Return the facts of a request that was refused at the door."""
    bounds = {"concurrent_requests": quota.concurrent_requests, "requests_per_s": quota.requests_per_s}
    figures = _figures(quota, error) or {"plan": None, "why": _UNCOUNTED}
    return _facts(request, {"kind": "admission", "quotas": bounds, **error.facts(), **figures}, "refused", error)


def _figures(quota: Quota, error: LimitReached) -> Mapping[str, object] | None:
    """Return the bound that is reached and its figure; None: `AdmissionInput` has no such bound."""
    if isinstance(error, QuotaExceeded) and error.quota == CONCURRENT:
        return {"running": error.used, "concurrent_requests": quota.concurrent_requests}
    if isinstance(error, QuotaExceeded) and error.quota == RATE:
        return {"tokens": error.left}
    if isinstance(error, QueueFull) and error.waiting is not None and error.waiting >= error.queue_len_max:
        return {"waiting": error.waiting, "queue_len_max": error.queue_len_max}
    if isinstance(error, Overloaded):
        return {"expected_ms": error.expected_ms, "allowed_ms": error.allowed_ms}
    return None


def drop(request: Request, error: DeadlineExceeded, now_ns: int) -> dict[str, object]:
    """Return the facts of a request that is dropped now."""
    waited_ms = (now_ns - request.arrival_ns) / NS_PER_MS
    problem: dict[str, Any] = {"kind": "drop", **error.facts(), "waited_ms": waited_ms}
    if request.deadline_ns is None:
        problem |= {"plan": None, "why": _NO_DEADLINE}
    else:
        problem["deadline_ms"] = (request.deadline_ns - request.arrival_ns) / NS_PER_MS
    return _facts(request, problem, "dropped", error)


def budget_decision(problem: BudgetInput, plan: BudgetPlan) -> dict[str, object]:
    """Return the facts of a change of the budget, which concerns no application: only operators see it."""
    stalled = problem.stalled_used
    return {
        "application": None,
        "concerned": (),
        "problem": {
            "kind": "budget",
            "before_mb": problem.before / BYTES_PER_MB,
            "most_mb": problem.most / BYTES_PER_MB,
            "reserve_mb": problem.reserve / BYTES_PER_MB,
            "spare_mb": [one / BYTES_PER_MB for one in problem.spare],
            "may_grow": problem.may_grow,
            "stalled_used_mb": None if stalled is None else stalled / BYTES_PER_MB,
        },
        "answer": budget_answer(problem, plan),
    }


def budget_answer(problem: BudgetInput, plan: BudgetPlan) -> dict[str, Any]:
    """Return the answer of `appliance plan`, without the time that it took."""
    outcome = "shrunk" if plan.budget < problem.before else "grown" if plan.budget > problem.before else "kept"
    return {"outcome": outcome, "budget_mb": plan.budget / BYTES_PER_MB, "actions": [], "reason": plan.reason}


def _facts(request: Request, problem: dict[str, Any], outcome: str, error: Exception) -> dict[str, object]:
    problem |= {"request": request.application_id, "tenant": request.tenant, "variant": request.variant}
    return {
        "asker": request.tenant,
        "key": (request.application_id, request.tenant, getattr(error, "quota", type(error).__name__)),
        "application": request.application_id,
        "concerned": ((request.application_id, request.tenant),),
        "problem": problem,
        "answer": {"outcome": outcome, "actions": [], "reason": str(error)},
    }
