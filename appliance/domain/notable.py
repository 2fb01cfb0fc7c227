"""Requests worth a look: late, cold, failed, answered by a smaller variant; and now and then one of the others."""

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from appliance.domain.errors import ApplianceError


class Cause(StrEnum):
    """Why a request is worth a look."""

    FAILED = "failed"
    LATE = "late"
    """Not within the SLO of its application, or not within its own deadline."""
    COLD = "cold"
    """No variant was in memory when it came."""
    SMALLER = "smaller"
    """Another variant than the first choice answered, and the caller had named none."""
    SAMPLE = "sample"
    """None of it: one of many, to compare with."""


class Kind(NamedTuple):
    """What makes requests of an application alike."""

    causes: tuple[Cause, ...]
    tenant: str
    """Who asked."""
    variant: str
    """Which answered; of one that failed, which was asked for; empty: none was."""
    best: str
    """The first choice, then; empty: there was none."""
    problem: type[ApplianceError] | None = None
    """Kind of the error; None: it got none, or one that is not the box's."""


class Spent(NamedTuple):
    """Where the time of a request went, in nanoseconds."""

    decode_ns: int = 0
    queue_ns: int = 0
    load_ns: int = 0
    wake_ns: int = 0
    compute_ns: int = 0


@dataclass(slots=True, kw_only=True)
class NotableRequest:
    """What happened to it; nothing of what it carried. Times in nanoseconds, on the clock's monotonic scale."""

    kind: Kind
    application_id: str
    id: str
    """As the caller named it."""
    arrival_ns: int
    ended_ns: int
    slo_ms: float | None
    deadline_ns: int | None
    spent: Spent
    detail: str = ""
    """The error in words."""
    times: int = 1
    """How many alike this one stands for, that came right after it."""
