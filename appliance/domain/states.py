"""Every state machine of the box as one enum and one table of legal moves.

A move goes through `move`, which refuses what the table does not list: an illegal move is our own mistake, never a
caller's.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import TypeVar


class RequestState(StrEnum):
    """Where a request is on its way."""

    ADMITTED = "admitted"
    """Accepted; its variant is being made resident."""
    QUEUED = "queued"
    """Its variant is resident and pinned; waits for a worker."""
    RUNNING = "running"
    """A processor computes it."""
    DONE = "done"
    """Answered with a result."""
    EXPIRED = "expired"
    """Its deadline passed before it ran; answered with an error."""
    REJECTED = "rejected"
    """Never accepted: quota, bound or bad input."""
    FAILED = "failed"
    """Answered with an error."""


class ResidencyState(StrEnum):
    """Where a build is with respect to memory."""

    ABSENT = "absent"
    """Not in memory."""
    LOADING = "loading"
    """Memory is reserved and a loader thread works; of a build that was asleep: it wakes."""
    RESIDENT = "resident"
    """Loaded; may be pinned by requests."""
    DRAINING = "draining"
    """No new pins; unloaded when the last pin goes."""
    UNLOADING = "unloading"
    """Its memory is being returned; still counted. It may keep its session, and is asleep then."""
    ASLEEP = "asleep"
    """Its session is there, the pages of its weights are not: in memory again in milliseconds."""
    FAILED = "failed"
    """The last load failed; the next request tries again."""


class VariantState(StrEnum):
    """Where a variant is in its life in the store."""

    MAKING = "making"
    """Being converted, measured or profiled; not servable."""
    READY = "ready"
    """Servable, worth choosing."""
    EXCLUDED = "excluded"
    """Servable when named, but of no use by itself; `reason` says why."""
    QUARANTINED = "quarantined"
    """Crashed or overran its guard again and again: not servable until it is released; `reason` says why."""
    FAILED = "failed"
    """Could not be made; `reason` says why."""


class JobState(StrEnum):
    """Where an import job is."""

    QUEUED = "queued"
    """Waits for its turn."""
    RUNNING = "running"
    """A stage is under way."""
    DONE = "done"
    """All stages finished; single variants may have failed."""
    FAILED = "failed"
    """No variant could be made; the error says why."""
    CANCELLED = "cancelled"
    """Stopped because its model was deleted."""


class ProcessorState(StrEnum):
    """Whether a processor takes runs."""

    NOT_RUN = "not-run"
    """Nothing has run on it yet on this machine, not even its probe."""
    SERVING = "serving"
    """It takes runs."""
    THROTTLED = "throttled"
    """It serves, but more slowly than it could: too hot, or short of power, as sensors say. To whoever drives it, it is
    `SERVING` all the same.
    """
    LOST = "lost"
    """It, or what drives it, no longer answers: it takes none, and is probed until it is back."""
    UNFIT = "unfit"
    """Its probe failed, or ran elsewhere."""


class SessionState(StrEnum):
    """Where a device's session is."""

    WAITING = "waiting"
    """No promise can be kept now; it is tried again whenever there may be room."""
    SERVED = "served"
    """Its frames are answered as promised."""
    SUSPENDED = "suspended"
    """Its link is gone, or it is paused."""
    ENDED = "ended"
    """It left, was ended, or was silent for too long."""


_State = TypeVar("_State", RequestState, ResidencyState, VariantState, JobState, ProcessorState, SessionState)

R, B, V, J, P, S = RequestState, ResidencyState, VariantState, JobState, ProcessorState, SessionState

REQUEST_MOVES: Mapping[RequestState, frozenset[RequestState]] = {
    R.ADMITTED: frozenset({R.QUEUED, R.EXPIRED, R.FAILED}),
    R.QUEUED: frozenset({R.RUNNING, R.EXPIRED, R.FAILED}),
    R.RUNNING: frozenset({R.DONE, R.FAILED}),
    R.DONE: frozenset(),
    R.EXPIRED: frozenset(),
    R.REJECTED: frozenset(),
    R.FAILED: frozenset(),
}
RESIDENCY_MOVES: Mapping[ResidencyState, frozenset[ResidencyState]] = {
    B.ABSENT: frozenset({B.LOADING}),
    B.LOADING: frozenset({B.RESIDENT, B.FAILED, B.ABSENT, B.ASLEEP}),
    B.RESIDENT: frozenset({B.DRAINING, B.UNLOADING}),
    B.DRAINING: frozenset({B.UNLOADING}),
    B.UNLOADING: frozenset({B.ABSENT, B.ASLEEP}),
    B.ASLEEP: frozenset({B.LOADING, B.UNLOADING}),
    B.FAILED: frozenset({B.LOADING, B.ABSENT}),
}
VARIANT_MOVES: Mapping[VariantState, frozenset[VariantState]] = {
    V.MAKING: frozenset({V.READY, V.EXCLUDED, V.FAILED}),
    V.READY: frozenset({V.EXCLUDED, V.QUARANTINED, V.FAILED}),
    V.EXCLUDED: frozenset({V.READY, V.QUARANTINED, V.FAILED}),
    V.QUARANTINED: frozenset({V.READY, V.EXCLUDED, V.FAILED}),
    V.FAILED: frozenset({V.MAKING}),
}
JOB_MOVES: Mapping[JobState, frozenset[JobState]] = {
    J.QUEUED: frozenset({J.RUNNING, J.CANCELLED, J.FAILED}),
    J.RUNNING: frozenset({J.DONE, J.FAILED, J.CANCELLED, J.QUEUED}),
    J.DONE: frozenset(),
    J.FAILED: frozenset(),
    J.CANCELLED: frozenset(),
}
PROCESSOR_MOVES: Mapping[ProcessorState, frozenset[ProcessorState]] = {
    P.NOT_RUN: frozenset({P.SERVING, P.UNFIT}),
    P.SERVING: frozenset({P.THROTTLED, P.LOST}),
    P.THROTTLED: frozenset({P.SERVING, P.LOST}),
    P.LOST: frozenset({P.SERVING}),
    P.UNFIT: frozenset({P.SERVING}),
}
SESSION_MOVES: Mapping[SessionState, frozenset[SessionState]] = {
    S.WAITING: frozenset({S.SERVED, S.SUSPENDED, S.ENDED}),
    S.SERVED: frozenset({S.WAITING, S.SUSPENDED, S.ENDED}),
    S.SUSPENDED: frozenset({S.SERVED, S.WAITING, S.ENDED}),
    S.ENDED: frozenset(),
}


def move(table: Mapping[_State, frozenset[_State]], old: _State, new: _State) -> _State:
    """Return `new`; asserts that `table` allows the step from `old`."""
    assert new in table[old], f"illegal move {old} -> {new}"
    return new
