"""How long a connection may take for what it is doing. Looked at once a second, so that a request costs nothing."""

from dataclasses import dataclass
from enum import Enum, auto


class Phase(Enum):
    """What a connection is waiting for."""

    HEAD = auto()
    """The (rest of the) head of a request."""
    IDLE = auto()
    """The next request, of which nothing has come."""
    BODY = auto()
    """More of a body, and nothing keeps the caller from sending it."""
    READING = auto()
    """The caller, to take more of an answer."""
    ENDING = auto()
    """The caller, to see that it was answered: what it still sends is dropped."""
    OURS = auto()
    """The box."""


@dataclass(frozen=True, slots=True)
class Pace:
    """Bounds, in seconds and bytes."""

    head_s: float
    keep_alive_s: float
    body_s: float
    body_bytes_per_s_min: float
    ending_s: float = 2.0
    """How long nothing of a body that is dropped may come."""
    ending_s_max: float = 60.0
    """How long one may be dropped."""

    def limit_s(self, phase: Phase) -> float | None:
        """How long a phase may last, or how long it may make too little progress; None: for ever."""
        return {
            Phase.HEAD: self.head_s,
            Phase.IDLE: self.keep_alive_s,
            Phase.BODY: self.body_s,
            Phase.READING: self.body_s,
            Phase.ENDING: self.ending_s,
        }.get(phase)


_MOVING = (Phase.BODY, Phase.READING, Phase.ENDING)
"""Phases that last as long as enough bytes move."""


class Watch:
    """What was seen of one connection."""

    __slots__ = ("_began_s", "_bytes", "_phase", "_request", "_since_s")

    def __init__(self) -> None:
        self._phase = Phase.OURS
        self._request = 0
        self._bytes = 0
        self._since_s = self._began_s = 0.0
        """Of the present measurement; of the phase."""

    def is_too_slow(self, pace: Pace, phase: Phase, request: int, moved_bytes: int, now_s: float) -> bool:
        """Whether the phase has lasted too long by now.

        `request` counts the connection's requests: the same phase of another request begins anew. `moved_bytes` counts
        what has come or gone; while a body comes or is dropped, or an answer goes, enough of them begin a new
        measurement.
        """
        limit_s = pace.limit_s(phase)
        if phase is not self._phase or request != self._request or limit_s is None:
            self._begin(phase, request, moved_bytes, now_s)
            self._began_s = now_s
            return False
        if phase is Phase.ENDING and now_s - self._began_s >= pace.ending_s_max:
            return True
        passed_s = now_s - self._since_s
        if passed_s < limit_s:
            return False
        if phase in _MOVING and moved_bytes - self._bytes >= passed_s * pace.body_bytes_per_s_min:
            self._begin(phase, request, moved_bytes, now_s)
            return False
        return True

    def _begin(self, phase: Phase, request: int, moved_bytes: int, now_s: float) -> None:
        self._phase, self._request, self._bytes, self._since_s = phase, request, moved_bytes, now_s
