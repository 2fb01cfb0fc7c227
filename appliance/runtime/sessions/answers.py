"""Answers of frames that have ended, for devices that ask again or come back: each for two seconds at most, and those
of all sessions together within one limit, which tenants share.

Where there is no room the session's own older ones go first, and then the new one is not kept: it was said once, or is
about to be.
"""

from collections import deque
from dataclasses import replace

from appliance.clock import NS_PER_S
from appliance.runtime.engine.portions import Portions
from appliance.runtime.sessions.frame import Frame

RESULTS_NS = 2 * NS_PER_S
"""So long a result can be asked for again."""


class KeptAnswers:
    """Of one session. Event-loop thread only."""

    def __init__(self, room: Portions, tenant: str) -> None:
        """`room`: bytes of the answers of all sessions."""
        self._room = room
        self._tenant = tenant
        self._frames: deque[Frame] = deque()
        """That have an answer, in the order in which they ended."""

    def put(self, frame: Frame, *, is_asked_for: bool = True) -> None:
        """A frame has ended; its answer is kept, or left out of its result. Not `is_asked_for`: nobody can ask for it
        again.
        """
        count = _bytes_of(frame)
        if not count:
            return
        if not is_asked_for:
            _leave_out(frame)
            return
        while count <= self._room.limit and not self._room.has_room(self._tenant, count) and self._frames:
            self._forget_first()
        if count <= self._room.limit and self._room.take(self._tenant, count):
            self._frames.append(frame)
        else:
            _leave_out(frame)

    def forget(self, now_ns: int) -> None:
        """Those that ended too long ago."""
        while self._frames and now_ns - self._ended_ns > RESULTS_NS:
            self._forget_first()

    def clear(self) -> None:
        """Nobody can ask for them any more."""
        while self._frames:
            self._forget_first()

    @property
    def _ended_ns(self) -> int:
        result = self._frames[0].result
        assert result is not None, "it has ended"
        return result.ended_ns

    def _forget_first(self) -> None:
        frame = self._frames.popleft()
        self._room.give(self._tenant, _bytes_of(frame))
        _leave_out(frame)


def _bytes_of(frame: Frame) -> int:
    return 0 if frame.result is None or frame.result.body is None else len(frame.result.body)


def _leave_out(frame: Frame) -> None:
    """Its answer; how it ended stays known."""
    assert frame.result is not None
    frame.result = replace(frame.result, body=None)
