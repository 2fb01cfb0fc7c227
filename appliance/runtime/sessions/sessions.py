"""The registry of sessions: what the API asks."""

from collections.abc import AsyncIterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from appliance.domain.catalogue import Application
from appliance.domain.session import DeviceReport, FrameCounts, FrameHead, Notice, Promise, Session, SessionPlan
from appliance.domain.states import SessionState
from appliance.runtime.sessions.frame import Frame, FrameResult


@dataclass(frozen=True, slots=True)
class JoinOrder:
    """What a device asks for. The application was resolved, and may be called by the key."""

    tenant: str
    key_id: str
    application: Application
    fps: float
    promise: Promise
    name: str = ""
    weight: float = 1.0
    wait: bool = False
    rtt_ms: float | None = None
    uplink_bps: float | None = None
    """As the device knows its link; a prior, which frames correct."""


class Live(Protocol):
    """A session as the API reads it."""

    session: Session
    state: SessionState
    plan: SessionPlan | None
    """None while it waits."""
    counts: FrameCounts
    windows: int
    """Windows of its promise that are over: 10 s each for latency, 1 s for accuracy; only while it was served."""
    kept: int
    """Those in which the promise was kept."""
    reason: str
    """Why it is in its state, for a person."""
    beyond_share: bool


class Notices(Protocol):
    """What one session's device is to be told; the newest plan replaces older ones that were not fetched."""

    def __aiter__(self) -> AsyncIterator[Notice]:
        """Ends after `NoticeKind.ENDED`."""
        ...


class Sessions:
    """All sessions of the box. Event-loop thread only."""

    async def join(self, order: JoinOrder) -> Live:
        """A new session: served, or waiting where the order says so.

        Raises: PromiseNotPossible with the cause and offers, TooManySessions, ModelUnavailable, BadInput.
        """
        raise NotImplementedError

    def get(self, id: str, tenant: str, key_id: str | None = None) -> Live:
        """A session of the tenant, with `key_id` only if that key began it (a device's key); also one that ended less
        than 60 s ago.

        Raises: UnknownSession.
        """
        raise NotImplementedError

    def list(self, tenant: str, key_id: str | None = None) -> list[Live]:
        """By id; those that ended less than 60 s ago among them."""
        raise NotImplementedError

    async def change(self, live: Live, *, promise: Promise | None = None, is_paused: bool | None = None) -> Live:
        """Another promise (the old one stays where the new one cannot be kept), or pause and go on.

        Raises: PromiseNotPossible, UnknownSession where it has ended.
        """
        raise NotImplementedError

    async def end(self, live: Live, reason: str = "left") -> None:
        """The session is over; its frames under way end as they would. Again: nothing."""
        raise NotImplementedError

    # -- the stream, and what it says ----------------------------------------------------------------------------------

    def attached(self, live: Live) -> AbstractContextManager[None]:
        """While a stream of the session is open. With the end of the last one its link is gone: capacity is kept for
        2 s, and another stream takes it up. A session that only posts is taken to be there while frames come.
        """
        raise NotImplementedError

    def subscribe(self, live: Live) -> AbstractContextManager[Notices]:
        """Plans and notices from now on, the present plan first."""
        raise NotImplementedError

    def report(self, live: Live, report: DeviceReport) -> None:
        """What the device says of itself outside of a frame's head; clamped."""
        raise NotImplementedError

    # -- frames --------------------------------------------------------------------------------------------------------

    def frame_begins(self, live: Live, head: FrameHead) -> Frame:
        """A frame's head has come; its body need not be read where this raises.

        Raises: FrameDropped (expired, hopeless, not-served: counted), CreditExceeded (counted as dropped),
        FrameMismatch for a number far out of order (not counted), UnknownSession where the session has ended.
        """
        raise NotImplementedError

    def results_since(self, live: Live, frame: int | None) -> list[FrameResult]:
        """Results of the last 2 s of frames after `frame` (None: all of them), in the order in which they ended: what a
        device that comes back has missed.
        """
        raise NotImplementedError
