"""How often each group was changed of late: one that is changed again and again is left alone until it calms down."""

from collections import Counter, deque

from appliance.clock import NS_PER_S, Clock
from appliance.domain.events import EventSink

_PER_MINUTE_NS = 60 * NS_PER_S
_CHANGES_MAX = 1000


class Reloads:
    """Loads of groups' variants, those for requests too."""

    def __init__(self, clock: Clock, events: EventSink, per_min_max: int) -> None:
        """A group that was changed `per_min_max` times in a minute thrashes."""
        self._clock = clock
        self._events = events
        self.per_min_max = per_min_max
        self._changes: dict[str, deque[int]] = {}
        self._thrashing: set[str] = set()
        self._thrashes: Counter[str] = Counter()

    def note(self, group: str) -> None:
        """It is changed now."""
        self._changes.setdefault(group, deque(maxlen=_CHANGES_MAX)).append(self._clock.now_ns())

    def per_min(self, group: str) -> int:
        """In the last minute."""
        changes, now_ns = self._changes.get(group), self._clock.now_ns()
        if changes is None:
            return 0
        while changes and now_ns - changes[0] > _PER_MINUTE_NS:
            changes.popleft()
        return len(changes)

    def all_per_min(self) -> dict[str, int]:
        """Return the changes of each group in the last minute, where there were any."""
        counts = ((group, self.per_min(group)) for group in self._changes)
        return {group: count for group, count in counts if count}

    def is_thrashing(self, group: str) -> bool:
        """Whether it changed too often in the last minute to be changed again without need."""
        count = self.per_min(group)
        if count < self.per_min_max:
            self._thrashing.discard(group)
            return False
        if group not in self._thrashing:
            self._thrashing.add(group)
            self._thrashes[group] += 1
            self._events.emit("residency thrashes", application=group, changes_per_min=count)
        return True

    def thrashes(self, group: str) -> int:
        """How often it began to thrash."""
        return self._thrashes[group]

    def forget(self, group: str) -> None:
        """There is no such group any more."""
        self._changes.pop(group, None)
        self._thrashes.pop(group, None)
        self._thrashing.discard(group)
