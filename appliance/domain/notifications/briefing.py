"""Briefing: what a receiver has been told, and what it is to be told next.

The next message to a receiver names the differences between the present conditions and those of its earlier messages.
So what waits for a slow receiver is bounded by the number of conditions. Messages on a condition that comes and goes
are sent at intervals that double.
"""

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

from appliance.domain.health.conditions import Condition, Key, Severity, worst
from appliance.domain.notifications.receivers import Receiver

QUIET_S = 60
"""Least time between two messages on the same condition; doubles while the condition comes and goes."""
QUIET_S_MAX = 3600
PASSED_MAX = 100
"""Number of ended conditions that are kept for the next message although no message named them."""


class ChangeKind(StrEnum):
    """Kinds of differences between the present conditions and those that a receiver knows."""

    BEGAN = "began"
    WORSE = "worse"
    ENDED = "ended"
    PASSED = "passed"
    """The condition began and ended after the latest message."""


class ConditionChange(NamedTuple):
    """A difference that the next message names."""

    kind: ChangeKind
    condition: Condition
    """Present condition; the latest one where it has ended."""
    times: int
    """Number of times that the condition began after the latest message on it."""


class _Quiet(NamedTuple):
    until_s: float
    length_s: float


class Briefing:
    """Conditions that one receiver knows, and those that the next message is to name."""

    def __init__(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self._reported: dict[Key, Condition] = {}
        """Conditions that began, and did not end, in the messages so far."""
        self._standing: Mapping[Key, Condition] = {}
        self._passed: dict[Key, Condition] = {}
        self._begun: dict[Key, int] = {}
        self._quiet: dict[Key, _Quiet] = {}

    def update(self, conditions: Iterable[Condition]) -> None:
        """Take the present conditions that the receiver may know."""
        standing = {one.key: one for one in conditions if self._is_wanted(one)}
        for key in standing.keys() - self._standing.keys():
            self._begun[key] = self._begun.get(key, 0) + 1
            self._passed.pop(key, None)
        for key in self._standing.keys() - standing.keys() - self._reported.keys():
            self._passed[key] = self._standing[key]
        for key in list(self._passed)[:-PASSED_MAX]:
            del self._passed[key]
        self._standing = standing
        known = standing.keys() | self._reported.keys() | self._passed.keys()
        self._begun = {key: count for key, count in self._begun.items() if key in known}

    def _is_wanted(self, one: Condition) -> bool:
        """Return whether messages name a condition: it is severe enough, or an earlier message named it."""
        is_severe = worst([one.severity, self._receiver.severity_min]) is one.severity or one.key in self._reported
        return is_severe and one.subject.name != self._receiver.id

    def due(self, now_s: float) -> tuple[ConditionChange, ...]:
        """Return the differences to send now, the worst first."""
        known = dict.fromkeys((*self._standing, *self._reported, *self._passed))
        calm = (key for key in known if key not in self._quiet or self._quiet[key].until_s <= now_s)
        found = (self._change(key) for key in calm)
        return tuple(sorted((one for one in found if one is not None), key=_place))

    def _change(self, key: Key) -> ConditionChange | None:
        told, stands = self._reported.get(key), self._standing.get(key)
        times = self._begun.get(key, 0)
        if stands is None:
            if told is not None:
                return ConditionChange(ChangeKind.ENDED, told, times)
            return ConditionChange(ChangeKind.PASSED, self._passed[key], times)
        if told is None:
            return ConditionChange(ChangeKind.BEGAN, stands, times)
        is_worse = stands.severity is not told.severity and stands.severity is Severity.BAD
        return ConditionChange(ChangeKind.WORSE, stands, times) if is_worse else None

    def note_sent(self, changes: Sequence[ConditionChange], now_s: float) -> None:
        """Note that a message with these differences has arrived."""
        # The interval begins anew for a condition without a message during one more interval.
        self._quiet = {key: one for key, one in self._quiet.items() if now_s < one.until_s + one.length_s}
        for change, condition, _ in changes:
            key = condition.key
            self._begun.pop(key, None)
            self._passed.pop(key, None)
            if change in (ChangeKind.BEGAN, ChangeKind.WORSE):
                self._reported[key] = condition
            else:
                self._reported.pop(key, None)
            before = self._quiet.get(key)
            length_s = QUIET_S if before is None else min(QUIET_S_MAX, 2 * before.length_s)
            self._quiet[key] = _Quiet(now_s + length_s, length_s)


def visible_to(tenant: str | None, conditions: Iterable[Condition]) -> Iterable[Condition]:
    """Yield the conditions that a tenant may see, in the form that it may see; None: all conditions."""
    for one in conditions:
        seen = one if tenant is None else one.as_seen_by(tenant)
        if seen is not None:
            yield seen


def _place(one: ConditionChange) -> tuple[bool, bool, bool, str]:
    """Conditions of the box come before those of tenants: a message names the first few, and no tenant fills it."""
    is_over, is_bad = one.kind in (ChangeKind.ENDED, ChangeKind.PASSED), one.condition.severity is Severity.BAD
    return is_over, not is_bad, one.condition.subject.tenant is not None, one.condition.since.isoformat()
