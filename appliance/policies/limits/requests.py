"""Admission of requests, and the rule that gives up a request that would be too late (Scrooge, section 3.6)."""

from dataclasses import dataclass

CONCURRENT = "concurrent requests"
RATE = "requests per second"
QUEUE = "waiting requests"
WAIT = "expected wait"


@dataclass(frozen=True, slots=True)
class AdmissionInput:
    """A figure and its bound each; a bound of None does not hold."""

    running: int = 0
    """Requests of the tenant under way."""
    concurrent_requests: int | None = None
    tokens: float | None = None
    """Requests that the tenant has left in this second; None: no rate is bound."""
    waiting: int = 0
    """Requests of the tenant that wait for the application."""
    queue_len_max: int | None = None
    expected_ms: float = 0.0
    """Time until the answer."""
    allowed_ms: float | None = None


def refused_by(problem: AdmissionInput) -> str | None:
    """Return the first bound that refuses the request; None: it is let in."""
    if problem.concurrent_requests is not None and problem.running >= problem.concurrent_requests:
        return CONCURRENT
    if problem.tokens is not None and problem.tokens < 1:
        return RATE
    if problem.queue_len_max is not None and problem.waiting >= problem.queue_len_max:
        return QUEUE
    if problem.allowed_ms is not None and problem.expected_ms > problem.allowed_ms:
        return WAIT
    return None


def is_too_late(now: float, expected: float | None, deadline: float) -> bool:
    """Return whether a run that begins now ends after the deadline; `expected` None: nothing is known of it. All in one
    unit of time.
    """
    return now + (expected or 0) > deadline
