"""Variants in use, those next to them by size, and those that would do in their place, as wishes to the residency loop
(JF-19, X-04, X-05)."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from appliance.clock import NS_PER_S
from appliance.domain.states import SessionState
from appliance.policies.residency.base import IN_USE, PROMISED, Wish
from appliance.runtime.sessions.environment import SessionEnvironment
from appliance.runtime.sessions.live import LiveSession
from appliance.runtime.sessions.pools import Pool, key_of

WISHED_NS = 5 * NS_PER_S
HELD = IN_USE - 1
"""Priority of a variant that devices send for until the one of their plan is in memory."""


class Wishes:
    """What was wished for each application. Event-loop thread only."""

    def __init__(self, environment: SessionEnvironment) -> None:
        self._environment = environment
        self._wished: dict[str, tuple[_Wanted, int]] = {}
        """Application → what was wished for it, and when."""

    def tell(
        self, sessions: Mapping[str, LiveSession], pools: Iterable[Pool], needed: Mapping[str, Collection[str]]
    ) -> None:
        """Of all sessions' plans as they are now: what has changed, and what lapses soon. `needed`: by application, the
        variants that promises need.
        """
        now_ns = self._environment.clock.now_ns()
        all_wanted = _wanted(sessions, list(pools))
        for application, names in needed.items():
            if application in all_wanted:
                all_wanted[application].promised.update(names)
        for application in [*self._wished, *(one for one in all_wanted if one not in self._wished)]:
            wanted = all_wanted.get(application, _NOTHING)
            before, at_ns = self._wished.get(application, (_NOTHING, 0))
            if wanted == before and now_ns - at_ns < WISHED_NS // 2:
                continue
            self._environment.wish(application, wanted.wishes(now_ns + WISHED_NS))
            self._wished[application] = wanted, now_ns
        self._wished = {application: kept for application, kept in self._wished.items() if kept[0].in_use}


@dataclass(frozen=True, slots=True)
class _Wanted:
    """Of one application, by variant."""

    in_use: dict[str, int] = field(default_factory=dict)
    """Priorities."""
    near: dict[str, int] = field(default_factory=dict)
    """Distances, of those that are not in use."""
    enough: set[str] = field(default_factory=set)
    """Variants good enough, each alone, for all promises of a pool."""
    promised: set[str] = field(default_factory=set)
    """Variants needed to keep promises, in use or not."""

    def wishes(self, until_ns: int) -> tuple[Wish, ...]:
        return (
            *(Wish(name, until_ns, priority) for name, priority in self.in_use.items()),
            *(Wish(name, until_ns, PROMISED) for name in sorted(self.promised)),
            *(Wish(name, until_ns, 0, distance) for name, distance in self.near.items() if name not in self.in_use),
            *(Wish(name, until_ns, is_substitute=True) for name in sorted(self.enough.difference(self.in_use))),
        )


_NOTHING = _Wanted()


def _wanted(sessions: Mapping[str, LiveSession], pools: Iterable[Pool]) -> dict[str, _Wanted]:
    """By application. The planned sends of a session are for the variant of its plan, so that is wished for as long as
    there is a plan: no forecast of its frames could say more (and none is made, `Request.is_frame`)."""
    found: dict[str, _Wanted] = {}
    planned = {pool.key: pool.wanted for pool in pools}
    for live in sessions.values():
        if live.plan is None or live.state is SessionState.WAITING:
            continue
        in_use = found.setdefault(live.session.application_id, _Wanted()).in_use
        name, wanted = live.plan.variant, planned.get(key_of(live, live.lane), ())
        priority = HELD if wanted and name not in wanted else IN_USE
        in_use[name] = max(priority, in_use.get(name, priority))
    for pool in pools:
        own = found.get(pool.key.application_id)
        if own is not None:
            own.in_use.update(dict.fromkeys(pool.wanted, IN_USE))
            own.enough.update(pool.enough)
            for distance, name in enumerate(pool.prefetch, 1):
                own.near[name] = min(distance, own.near.get(name, distance))
    return found
