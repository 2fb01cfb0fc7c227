"""Briefing: what a receiver has been told, and what it is to be told next.

A receiver is told of how things stand, not of each change: the next message names what is otherwise than the receiver
knows it. So what waits for a receiver that is slow or away is bounded by the conditions that there are. A condition
that comes and goes is told of at intervals that double.
"""

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

from appliance.domain.health.conditions import Condition, Key, Severity, worst
from appliance.domain.notifications.receivers import Receiver

QUIET_S = 60
"""After a word on a condition, the next one on the same condition comes so much later at least."""
QUIET_S_MAX = 3600
PASSED_MAX = 100
"""Conditions that are remembered although they have ended and nobody was told."""


class Change(StrEnum):
    """What is otherwise than a receiver knows it."""

    BEGAN = "began"
    WORSE = "worse"
    ENDED = "ended"
    PASSED = "passed"
    """The condition began and ended since the message before."""


class News(NamedTuple):
    """A change that a receiver is to be told of."""

    change: Change
    condition: Condition
    """As it stands, or as it stood last."""
    times: int
    """How often the condition began since it was told of."""


class _Quiet(NamedTuple):
    until_s: float
    length_s: float


class Briefing:
    """What one receiver has been told."""

    def __init__(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self._told: dict[Key, Condition] = {}
        """Conditions that stand, as far as the receiver knows."""
        self._standing: Mapping[Key, Condition] = {}
        self._passed: dict[Key, Condition] = {}
        self._begun: dict[Key, int] = {}
        self._quiet: dict[Key, _Quiet] = {}

    def see(self, conditions: Iterable[Condition]) -> None:
        """Take all conditions of the box as they stand now."""
        standing = {one.key: one for one in conditions if self._concerns(one)}
        for key in standing.keys() - self._standing.keys():
            self._begun[key] = self._begun.get(key, 0) + 1
            self._passed.pop(key, None)
        for key in self._standing.keys() - standing.keys() - self._told.keys():
            self._passed[key] = self._standing[key]
        for key in list(self._passed)[:-PASSED_MAX]:
            del self._passed[key]
        self._standing = standing
        known = standing.keys() | self._told.keys() | self._passed.keys()
        self._begun = {key: count for key, count in self._begun.items() if key in known}

    def _concerns(self, one: Condition) -> bool:
        """Whether the receiver is told of a condition; of one that has become less severe until it ends."""
        is_severe = worst([one.severity, self._receiver.severity_min]) is one.severity or one.key in self._told
        return is_severe and one.subject.name != self._receiver.id

    def due(self, now_s: float) -> tuple[News, ...]:
        """Return what the receiver is to be told now, the worst first."""
        known = dict.fromkeys((*self._standing, *self._told, *self._passed))
        calm = (key for key in known if key not in self._quiet or self._quiet[key].until_s <= now_s)
        found = (self._news(key) for key in calm)
        return tuple(sorted((one for one in found if one is not None), key=_place))

    def _news(self, key: Key) -> News | None:
        told, stands = self._told.get(key), self._standing.get(key)
        times = self._begun.get(key, 0)
        if stands is None:
            if told is not None:
                return News(Change.ENDED, told, times)
            return News(Change.PASSED, self._passed[key], times)
        if told is None:
            return News(Change.BEGAN, stands, times)
        is_worse = stands.severity is not told.severity and stands.severity is Severity.BAD
        return News(Change.WORSE, stands, times) if is_worse else None

    def told(self, news: Sequence[News], now_s: float) -> None:
        """The receiver knows these now."""
        # A condition that was left alone for as long again has calmed down.
        self._quiet = {key: one for key, one in self._quiet.items() if now_s < one.until_s + one.length_s}
        for change, condition, _ in news:
            key = condition.key
            self._begun.pop(key, None)
            self._passed.pop(key, None)
            if change in (Change.BEGAN, Change.WORSE):
                self._told[key] = condition
            else:
                self._told.pop(key, None)
            before = self._quiet.get(key)
            length_s = QUIET_S if before is None else min(QUIET_S_MAX, 2 * before.length_s)
            self._quiet[key] = _Quiet(now_s + length_s, length_s)


def concerning(tenant: str | None, conditions: Iterable[Condition]) -> Iterable[Condition]:
    """Yield the conditions that a receiver is told of, as it may know them; None: all of the box."""
    for one in conditions:
        seen = one if tenant is None else one.as_seen_by(tenant)
        if seen is not None:
            yield seen


def _place(one: News) -> tuple[bool, bool, str]:
    is_over = one.change in (Change.ENDED, Change.PASSED)
    return is_over, one.condition.severity is not Severity.BAD, one.condition.since.isoformat()
