"""Variants in use, and those next to them by size, as wishes to the residency loop (JF-19, X-04)."""

from collections.abc import Iterable, Mapping

from appliance.clock import NS_PER_S
from appliance.domain.states import SessionState
from appliance.policies.residency.base import Wish
from appliance.runtime.sessions.environment import SessionEnvironment
from appliance.runtime.sessions.live import LiveSession
from appliance.runtime.sessions.pools import Pool

WISHED_NS = 5 * NS_PER_S
USED, NEIGHBOUR = 2, 1
"""Priorities."""


class Wishes:
    """What was wished for each application. Event-loop thread only."""

    def __init__(self, environment: SessionEnvironment) -> None:
        self._environment = environment
        self._wished: dict[str, tuple[tuple[str, ...], int]] = {}
        """Application → what was wished for it, and when."""

    def tell(self, sessions: Mapping[str, LiveSession], pools: Iterable[Pool]) -> None:
        """Of all sessions' plans as they are now: what has changed, and what lapses soon."""
        now_ns = self._environment.clock.now_ns()
        wanted = _wanted(sessions, pools)
        for application in [*self._wished, *(one for one in wanted if one not in self._wished)]:
            names = tuple(f"{p}{n}" for n, p in sorted(wanted.get(application, {}).items()))
            before, at_ns = self._wished.get(application, ((), 0))
            if names == before and now_ns - at_ns < WISHED_NS // 2:
                continue
            until_ns = now_ns + WISHED_NS
            wishes = tuple(Wish(name, until_ns, priority) for name, priority in wanted.get(application, {}).items())
            self._environment.wish(application, wishes)
            self._wished[application] = names, now_ns
        self._wished = {application: kept for application, kept in self._wished.items() if kept[0]}


def _wanted(sessions: Mapping[str, LiveSession], pools: Iterable[Pool]) -> dict[str, dict[str, int]]:
    """Priorities of variants, by application."""
    wanted: dict[str, dict[str, int]] = {}
    for live in sessions.values():
        if live.plan is not None and live.state is not SessionState.WAITING:
            wanted.setdefault(live.session.application_id, {})[live.plan.variant] = USED
    for pool in pools:
        own = wanted.get(pool.key.application_id)
        if own is not None:
            own.update(dict.fromkeys(pool.wanted, USED))
            for name in pool.prefetch:
                own.setdefault(name, NEIGHBOUR)
    return wanted
