"""A session's frames on a stage of their own: what a run takes, and when it ends, is the test's to say."""

import datetime
from collections.abc import Awaitable, Callable

from appliance.clock import NS_PER_MS
from appliance.domain.errors import (
    ApplianceError,
)
from appliance.domain.session import FrameHead, LatencyPromise, Session
from appliance.domain.slots import NO_SLOT
from appliance.domain.states import SessionState
from appliance.runtime.engine.portions import Portions
from appliance.runtime.sessions.answers import KeptAnswers
from appliance.runtime.sessions.frame import Frame, FrameCall, FrameResult
from appliance.runtime.sessions.live import LiveSession
from appliance.tasks.base import Media
from tests.fakes.hand_clock import HandClock

BEGAN = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
SESSION = Session("s", "harbour", "harbour/gate", "cam", 30.0, LatencyPromise(100.0, 15.0), "key", BEGAN)


async def never(live: LiveSession, frame: Frame, media: Media, request_id: str) -> bytes:
    raise AssertionError("frames are run by the test")


class Stage:
    """A session that is served, and what it told of frames that ended."""

    def __init__(self, session: Session = SESSION) -> None:
        self.clock = HandClock()
        self.ended: list[FrameResult] = []
        self.has_room = True
        self.room = Portions(1000)
        """Bytes of answers that the session keeps."""
        self.live = LiveSession(
            self.clock,
            session,
            credit=2,
            predict=never,
            slot=lambda live, frame: NO_SLOT,
            has_room=lambda live: self.has_room,
            on_received=lambda live: None,
            on_ended=lambda live, frame, result: self.ended.append(result),
            answers=KeptAnswers(self.room, "harbour"),
        )
        self.live.become(SessionState.SERVED)

    def frame(self, number: int, body: bytes = b"body") -> Frame:
        """Return a frame whose body has come whole."""
        frame = self.live.begin(self.head(number))
        frame.received(body)
        return frame

    def head(self, number: int, age_ms: float = 5.0) -> FrameHead:
        return FrameHead(number, self.clock.now_ns(), self.clock.now_ns() - int(age_ms * NS_PER_MS), 1000)


def running(error: ApplianceError | None) -> Callable[[FrameCall], Awaitable[bytes]]:
    """Return a run that fails with `error`, or answers where there is none."""

    async def work(call: FrameCall) -> bytes:
        if error is not None:
            raise error
        return b"{}"

    return work
