"""Whether a session's device is there: its streams, its silence, and how long its capacity is kept without it."""

from collections.abc import Iterator
from contextlib import contextmanager

from appliance.clock import NS_PER_S, Clock
from appliance.domain.states import SessionState
from appliance.runtime.sessions.live import LiveSession
from appliance.runtime.sessions.services import Services

HOLD_NS = 2 * NS_PER_S
"""So long the capacity of a session without a link is kept."""
RESTORED_HOLD_NS = 10 * NS_PER_S
"""The same after a restart of the box: devices take a moment to notice."""
SILENT_NS = 10 * NS_PER_S
"""A session that only posts has no link when nothing has come for so long."""
PAUSED_NS = 24 * 3600 * NS_PER_S
"""A paused session of which nothing was heard for so long ends."""


class Presence:
    """Of all sessions. Event-loop thread only."""

    def __init__(self, clock: Clock, services: Services, idle_ns: int) -> None:
        """`idle_ns`: a session of which nothing was heard for so long ends."""
        self._clock = clock
        self._services = services
        self._idle_ns = idle_ns
        self._joining: set[str] = set()
        """Sessions whose join is not answered yet: their devices are silent until then."""

    @contextmanager
    def joining(self, live: LiveSession) -> Iterator[None]:
        """While the answer to a join is made, which may take longer than a device may be silent."""
        self._joining.add(live.id)
        try:
            yield
        finally:
            self._joining.discard(live.id)
            live.last_heard_ns = self._clock.now_ns()

    @contextmanager
    def attached(self, live: LiveSession) -> Iterator[None]:
        """As of `Sessions`. Raises: UnknownSession where it has ended."""
        live.check_alive()
        live.streams += 1
        live.link.reset()
        self.heard(live)
        try:
            yield
        finally:
            live.streams -= 1
            live.last_heard_ns = self._clock.now_ns()
            if live.streams == 0 and live.state is SessionState.SERVED:
                self._suspend(live)

    def heard(self, live: LiveSession) -> None:
        """Its device is there: what was suspended goes on where its capacity was kept, and else is tried."""
        now_ns = live.last_heard_ns = self._clock.now_ns()
        if live.state is not SessionState.SUSPENDED or live.session.is_paused:
            return
        is_kept = now_ns < live.holds_until_ns
        live.become(SessionState.SERVED if is_kept else SessionState.WAITING)
        self._services.plan_soon()

    def restored(self, live: LiveSession) -> None:
        """It was there before the restart of the box."""
        live.reason = "paused" if live.session.is_paused else "the box was started again"
        live.holds_until_ns = self._clock.now_ns() + RESTORED_HOLD_NS

    def look(self, live: LiveSession, now_ns: int) -> bool:
        """What silence brings about; False: so much of it that the session has to end."""
        if live.id in self._joining:
            return True
        silent_ns = now_ns - live.last_heard_ns
        if live.state is SessionState.SERVED and live.streams == 0 and silent_ns > SILENT_NS:
            self._suspend(live)
        if live.state is SessionState.SUSPENDED and now_ns >= live.holds_until_ns:
            live.load = 0.0
        return live.streams > 0 or silent_ns <= (PAUSED_NS if live.session.is_paused else self._idle_ns)

    def _suspend(self, live: LiveSession) -> None:
        live.holds_until_ns = self._clock.now_ns() + HOLD_NS
        live.become(SessionState.SUSPENDED, "its link is gone")
        self._services.plan_soon()
