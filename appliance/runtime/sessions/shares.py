"""Whose share of the processors is what, among the tenants that want some now, and which sessions are beyond it."""

import datetime
from collections.abc import Callable, Mapping

from appliance.clock import NS_PER_MS, Clock
from appliance.domain.session import Cause
from appliance.domain.states import SessionState
from appliance.runtime.sessions.ledger import ProcessorLedger
from appliance.runtime.sessions.live import LiveSession
from appliance.runtime.sessions.pools import PoolKey

SNAPSHOT_NS = 50 * NS_PER_MS
"""So long is gone by who wants some of the processors before that is looked at again."""

TOLERANCE = 0.005
"""Share of all workers by which estimates move from one moment to the next."""


class Shares:
    """Of all tenants. Event-loop thread only."""

    def __init__(
        self,
        clock: Clock,
        ledger: ProcessorLedger,
        sessions: Mapping[str, LiveSession],
        weights: Callable[[], Mapping[str, float]],
        least: Callable[[LiveSession], float],
    ) -> None:
        """`weights` of the tenants that want some now; `least`: share of all workers that a promise takes at least."""
        self._clock = clock
        self._ledger = ledger
        self._sessions = sessions
        self._ask_weights = weights
        self._least = least
        self._wanting: tuple[int, Mapping[str, float]] = (0, {})
        """The weights, and until when they hold."""

    def forget(self) -> None:
        """Somebody has come or gone."""
        self._wanting = (0, {})

    def for_admission(self, key: PoolKey) -> float:
        """The most that a pool can get: what others do not need for their promises."""
        return self._ledger.for_admission(key, key.tenant, self._weights())

    def is_left(self, key: PoolKey, share: float) -> bool:
        """Whether a pool can still get what it could when somebody asked."""
        return self.for_admission(key) >= share - TOLERANCE

    def for_plan(self, key: PoolKey) -> float:
        """What a pool is planned with: what it needs, and its part of the rest."""
        return self._ledger.for_plan(key, key.tenant, self._weights())

    def is_within(self, live: LiveSession, own: float = 0.0) -> bool:
        """Whether its tenant has its share of the processors at most, with this one, and without `own`."""
        tenant = live.session.tenant
        planned = self._ledger.planned_of(tenant) - own
        planned += 0.0 if live.state is SessionState.SERVED else self._least(live)
        return planned <= self._ledger.share_of(tenant, {tenant: 1.0, **self._weights()}) + 1e-9

    def cause(self, live: LiveSession) -> Cause:
        """Of there being no processor for it: whether its tenant has its part, and others have theirs."""
        is_shared = any(tenant != live.session.tenant for tenant in self._weights())
        return Cause.SHARE if is_shared and not self.is_within(live) else Cause.PROCESSOR

    def beyond(self, tenant: str) -> list[LiveSession]:
        """Sessions of other tenants beyond their shares, those of least weight first, the newest of equals."""
        found = [
            live
            for live in self._sessions.values()
            if live.beyond_share and live.session.tenant != tenant and live.state is SessionState.SERVED
        ]
        return sorted(found, key=order, reverse=True)

    def mark(self) -> None:
        """Which sessions are beyond their tenants' shares as these are now: of each tenant those of least weight, the
        newest of equals.
        """
        weights = self._weights()
        taken: dict[str, float] = {}
        for live in sorted(self._sessions.values(), key=order):
            if live.state is not SessionState.SERVED:
                live.beyond_share = False
                continue
            tenant = live.session.tenant
            taken[tenant] = taken.get(tenant, 0.0) + self._least(live)
            live.beyond_share = taken[tenant] > self._ledger.share_of(tenant, {tenant: 1.0, **weights}) + 1e-9

    def _weights(self) -> Mapping[str, float]:
        """Of the tenants that want some of the processors, as of a moment ago."""
        until_ns, weights = self._wanting
        now_ns = self._clock.now_ns()
        if now_ns >= until_ns:
            weights = self._ask_weights()
            self._wanting = (now_ns + SNAPSHOT_NS, weights)
        return weights


def order(live: LiveSession) -> tuple[float, datetime.datetime, str]:
    """Of sessions that there is not room for: who weighs most, and came first of equals, goes before the others."""
    return -live.session.weight, live.session.began_at, live.id
