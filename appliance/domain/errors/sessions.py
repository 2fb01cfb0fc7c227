"""What goes wrong with sessions and their frames."""

from collections.abc import Mapping
from dataclasses import dataclass

from appliance.domain.errors.conflicts import Conflict
from appliance.domain.errors.limits import LimitReached
from appliance.domain.errors.root import ApplianceError

DROPPED: Mapping[str, str] = {
    "expired": "it was captured too long ago, or in the future",
    "hopeless": "it could no longer be in time",
    "late": "its deadline came while it waited",
    "not-served": "the session waits, or is paused",
    "bad-media": "it is no picture that the application takes",
    "credit": "more frames are under way than the session has credit for",
    "over-rate": "it is beyond the promised rate, and no processor was free",
    "limit": "a quota, or a bound of the box",
    "memory": "its variant found no room",
    "unavailable": "the application is not in service, a processor is lost, or the box stops",
}
"""Causes of drops for a person, by `domain.session.DropCause`."""


@dataclass(kw_only=True, eq=False)
class PromiseNotPossible(Conflict, title="The promise cannot be kept"):
    """The box cannot make this promise now. `name` is the application."""

    cause: str
    """What binds: link, processor, memory or share."""
    offers: tuple[Mapping[str, object], ...] = ()
    """Promises that it could make, each ready to be posted."""
    reason: str = ""

    def message(self) -> str:
        count = len(self.offers)
        offered = f"; {count} other {'promise' if count == 1 else 'promises'} could be kept" if count else ""
        why = f" ({self.reason})" if self.reason else ""
        return f"this promise of {self.name!r} cannot be kept: what binds is the {self.cause}{why}{offered}"


@dataclass(kw_only=True, eq=False)
class FrameMismatch(Conflict, title="The frame does not fit the session"):
    """A frame's number was used for other bytes, or lies far from those that came before. `name` is the frame."""

    reason: str

    def message(self) -> str:
        return f"frame {self.name} is refused: {self.reason}"


@dataclass(kw_only=True, eq=False)
class FrameDropped(ApplianceError, status=504, title="The frame was not run"):
    """The frame is not run; `cause` is one of `domain.session.DropCause`."""

    frame: int
    cause: str
    left_ms: float | None = None
    """Time until the frame's deadline, where the cause is `hopeless`."""
    expected_ms: float | None = None
    """Expected time of the rest of the frame's way and of its run, where the cause is `hopeless`."""

    def answer(self) -> tuple[int, str]:
        return (429, "More frames than were promised") if self.cause == "over-rate" else super().answer()

    def message(self) -> str:
        words = DROPPED.get(self.cause)
        return f"frame {self.frame} was dropped: {self.cause}{(words and f' ({words})') or ''}"


@dataclass(kw_only=True, eq=False)
class CreditExceeded(LimitReached, title="Too many frames are on their way"):
    """More frames under way than the session has credit for: wait for an acknowledgement."""

    credit: int
    frame: int

    def message(self) -> str:
        return f"frame {self.frame} is one more than the {self.credit} that may be on their way without acknowledgement"


@dataclass(kw_only=True, eq=False)
class TooManySessions(LimitReached, title="Too many sessions"):
    """The tenant has as many sessions as one tenant may, or the box as many as it takes."""

    tenant: str
    sessions_max: int
    of: str = "sessions"
    """What there are so many of."""
    of_all: bool = False
    """Whether it is the box that has so many, those of all tenants."""

    def message(self) -> str:
        if self.of_all:
            return f"the box has {self.sessions_max} {self.of}, as many as it takes; one of them has to end first"
        return f"tenant {self.tenant!r} has {self.sessions_max} {self.of}, as many as one tenant may; end one first"
