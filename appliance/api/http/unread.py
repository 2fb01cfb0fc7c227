"""Answers that callers have yet to read: how many bytes of them wait in memory, of all connections together.

A connection is *congested* from when more of an answer waits than the system takes at once until most of it was read.
Where too much waits, beside the answer that came last, connections are closed: of the tenant of which most waits the
one that has been congested longest. No clock and no sockets.
"""

from collections import Counter
from typing import Protocol


class Congested(Protocol):
    """A connection whose caller does not keep up."""

    tenant: str | None
    """None: no key was shown."""

    @property
    def unread_bytes(self) -> int:
        """What waits for the caller now."""
        ...

    def give_way(self) -> None:
        """Close at once."""
        ...


class Unread:
    """Event-loop thread only."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._congested: dict[Congested, None] = {}
        """Those that have been so longest first."""

    def __len__(self) -> int:
        return len(self._congested)

    @property
    def bytes(self) -> int:
        """That wait now, of those that are congested."""
        return sum(one.unread_bytes for one in self._congested)

    def grew(self, connection: Congested) -> None:
        """A connection has become congested, or has more to be read than before: others may have to give way."""
        self._make_room(connection)
        self._congested.setdefault(connection)

    def end(self, connection: Congested) -> None:
        """Most was read, or it is closed; again: nothing."""
        self._congested.pop(connection, None)

    def _make_room(self, newest: Congested) -> None:
        waits = {one: one.unread_bytes for one in self._congested if one is not newest}
        total = sum(waits.values())
        if total <= self._bytes_max:
            return
        by_tenant: Counter[str | None] = Counter()
        for one, count in waits.items():
            by_tenant[one.tenant] += count
        while total > self._bytes_max:
            most, _ = max(by_tenant.items(), key=lambda own: own[1])
            gone = next(one for one in waits if one.tenant == most)
            count = waits.pop(gone)
            total -= count
            by_tenant[most] -= count
            self.end(gone)
            gone.give_way()
