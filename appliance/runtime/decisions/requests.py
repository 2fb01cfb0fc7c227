"""Decisions on requests, as facts for the decision log: who was not let in, and what was dropped because it could no
longer be in time.
"""

from typing import Any

from appliance.clock import NS_PER_MS
from appliance.domain.catalogue import Quota
from appliance.domain.errors import DeadlineExceeded, LimitReached
from appliance.domain.request import Request

_ADMISSION = "a request is counted against a quota or a bound: no policy was asked"
_DROP = "a request that can no longer be in time is dropped by the clock: no policy was asked"


def admission(request: Request, quota: Quota, error: LimitReached) -> dict[str, object]:
    """A request that was refused at the door, of kind `admission`."""
    bounds = {"concurrent_requests": quota.concurrent_requests, "requests_per_s": quota.requests_per_s}
    problem = {"kind": "admission", "plan": None, "why": _ADMISSION, "quotas": bounds, **error.facts()}
    return _facts(request, problem, "refused", error)


def drop(request: Request, error: DeadlineExceeded) -> dict[str, object]:
    """A request that was dropped, of kind `drop`."""
    allowed = None if request.deadline_ns is None else (request.deadline_ns - request.arrival_ns) / NS_PER_MS
    problem = {"kind": "drop", "plan": None, "why": _DROP, "deadline_ms": allowed, **error.facts()}
    return _facts(request, problem, "dropped", error)


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
