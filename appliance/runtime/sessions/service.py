"""Port of the registry: what serves the frames of a session.

An application, by the planners of sessions, or a pipeline, whose own planning lets clients in.
"""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from appliance.domain.session import Offer, Promise, PromiseKind, Session
from appliance.domain.slots import Slot
from appliance.runtime.sessions.frame import Frame, FrameResult
from appliance.runtime.sessions.live import LiveSession
from appliance.runtime.sessions.verdict import Verdict
from appliance.tasks.base import Media


class Service(Protocol):
    """Of all sessions of its kind. Event-loop thread only."""

    def require(self, session: Session) -> None:
        """Raises: ApplianceError where what its frames go to is not there, or not in service."""
        ...

    def gone(self, live: LiveSession) -> str:
        """Why a session has to end, for a person; empty: what its frames go to is there, and its tenant's to ask."""
        ...

    def check(self, draft: LiveSession) -> None:
        """Raises: TooManySessions, BadInput, for a promise that is none of its own."""
        ...

    def put(self, live: LiveSession) -> None:
        """A session has come, or its promise has changed."""
        ...

    def take(self, live: LiveSession) -> None:
        """A session has gone."""
        ...

    # -- promises ------------------------------------------------------------------------------------------------------

    async def join(self, live: LiveSession) -> Verdict:
        """Serve a session that waits, with a plan, if the box can keep its promise beside all that it keeps."""
        ...

    def alone(self, live: LiveSession, *others: PromiseKind) -> AbstractAsyncContextManager[None]:
        """While no promise is made beside a session's, nor of the other kinds."""
        ...

    async def changed(self, live: LiveSession, draft: LiveSession) -> Verdict:
        """Whether a session that is served, or waits, could have the promise of the draft in the place of its own."""
        ...

    def give_back(self, live: LiveSession, promise: Promise) -> None:
        """A session takes no more what its promise took: it becomes another one."""
        ...

    async def offers(self, asked: Promise, found: Verdict, draft: Callable[[Promise], LiveSession]) -> list[Offer]:
        """Promises that could be kept in the place of one that was refused. `draft`: the session with another one."""
        ...

    # -- frames --------------------------------------------------------------------------------------------------------

    async def predict(self, live: LiveSession, frame: Frame, media: Media, request_id: str) -> bytes:
        """The answer of a frame. Raises: what the engine raises; FrameDropped."""
        ...

    def slot(self, live: LiveSession, frame: Frame) -> Slot:
        """As of a `FrameCall`."""
        ...

    def has_room(self, live: LiveSession) -> bool:
        """Whether a processor is free for a frame that nobody planned."""
        ...

    def received(self, live: LiveSession) -> None:
        """A frame's body is complete: the link's estimate has learnt of it."""
        ...

    def ended(self, live: LiveSession, frame: Frame, result: FrameResult) -> None:
        """A frame has ended."""
        ...
