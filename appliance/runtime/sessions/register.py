"""Who is there: the sessions that have not ended, and those that ended a moment ago."""

import asyncio
from collections.abc import Sequence

from appliance.clock import NS_PER_S
from appliance.domain.errors import TooManySessions, UnknownSession
from appliance.runtime.sessions.limits import Limits
from appliance.runtime.sessions.live import LiveSession
from appliance.runtime.sessions.services import Services

ENDED_NS = 60 * NS_PER_S
"""So long an ended session shows its final counts."""


class Register:
    """Event-loop thread only."""

    def __init__(self, services: Services, limits: Limits) -> None:
        self._services = services
        self.limits = limits
        self.live: dict[str, LiveSession] = {}
        """Those that have not ended, by id."""
        self._ended: dict[str, LiveSession] = {}
        self.some = asyncio.Event()
        """There is a session, or there was one; cleared by who rests while there is none."""

    @property
    def is_empty(self) -> bool:
        """Of those that ended, too."""
        return not self.live and not self._ended

    def get(self, id: str, tenant: str, key_id: str | None = None) -> LiveSession:
        """As of `Sessions`. Raises: UnknownSession."""
        live = self.live.get(id) or self._ended.get(id)
        if live is None or live.session.tenant != tenant or key_id not in (None, live.session.key_id):
            raise UnknownSession(name=id)
        return live

    def list(self, tenant: str | None, key_id: str | None = None) -> Sequence[LiveSession]:
        """As of `Sessions`."""
        found = [
            live
            for live in (*self.live.values(), *self._ended.values())
            if tenant in (None, live.session.tenant) and key_id in (None, live.session.key_id)
        ]
        return sorted(found, key=lambda live: live.id)

    def put(self, live: LiveSession) -> None:
        """A session has come, or has come back."""
        self.live[live.id] = live
        self._services.of(live.session).put(live)
        self.some.set()

    def take(self, live: LiveSession) -> None:
        """It is there no more; again: nothing."""
        if self.live.pop(live.id, None) is not None:
            self._services.of(live.session).take(live)

    def end(self, live: LiveSession) -> None:
        """It is there no more, and shows its counts for a while."""
        self.take(live)
        self._ended[live.id] = live

    def forget(self, now_ns: int) -> None:
        """Those that ended a while ago."""
        self._ended = {id: live for id, live in self._ended.items() if now_ns - (live.ended_ns or now_ns) <= ENDED_NS}

    def forget_tenant(self, tenant: str) -> None:
        """Those that ended, of a tenant that is gone."""
        self._ended = {id: live for id, live in self._ended.items() if live.session.tenant != tenant}

    def check_room(self, tenant: str) -> None:
        """Raises: TooManySessions."""
        own = sum(live.session.tenant == tenant for live in self.live.values())
        if own >= self.limits.per_tenant_max:
            raise TooManySessions(tenant=tenant, sessions_max=self.limits.per_tenant_max)
        if len(self.live) >= self.limits.all_max:
            raise TooManySessions(tenant=tenant, sessions_max=self.limits.all_max, of_all=True)
