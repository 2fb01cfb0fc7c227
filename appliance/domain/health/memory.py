"""Memory of health: the conditions that stood at the last look, and what was counted since the looks before."""

from collections.abc import Hashable, Iterator, Mapping

from appliance.domain.health.conditions import Check, Condition, Key
from appliance.domain.health.facts import BoxFacts
from appliance.domain.health.judging import judged
from appliance.domain.health.recent import RecentCounts, Share


class HealthMemory:
    """What makes a look at a box differ from the first one."""

    def __init__(self) -> None:
        self._standing: Mapping[Key, Condition] = {}
        self._recent: dict[Hashable, RecentCounts] = {}

    def lately(self, what: Hashable, now_s: int, totals: Share) -> Share:
        """Return the counts of late of something that has these totals now."""
        return self._recent.setdefault(what, RecentCounts()).look(now_s, totals)

    def forget_but(self, known: set[Hashable]) -> None:
        """Drop the counts of all that is gone."""
        self._recent = {what: recent for what, recent in self._recent.items() if what in known}

    def judged(self, facts: BoxFacts) -> tuple[tuple[Check, ...], list[tuple[str, Condition]]]:
        """Return the checks, and what has changed since the last look: names of events with their conditions."""
        checks = judged(facts, self._standing)
        before = self._standing
        self._standing = now = {one.key: one for check in checks for one in check.conditions}
        return checks, list(_changes(before, now))


def _changes(before: Mapping[Key, Condition], now: Mapping[Key, Condition]) -> Iterator[tuple[str, Condition]]:
    for key, condition in now.items():
        if key not in before:
            yield "condition began", condition
    for key, condition in before.items():
        if key not in now:
            yield "condition ended", condition
