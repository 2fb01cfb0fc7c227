"""Who holds the box's connections, and who gives way when there is no room for one more.

A connection counts against its address until it has shown a good key, and against that key's tenant from then on. No
clock and no sockets: the protocol tells what happens and closes whom it is told to.
"""

from collections.abc import Iterable
from ipaddress import IPv6Address
from typing import Generic, Protocol, TypeVar

from appliance.domain.errors import Busy, TooManyConnections


class Holder(Protocol):
    """What of a connection is needed here."""

    @property
    def is_idle(self) -> bool:
        """Whether all that was asked is answered: closing it loses nothing."""
        ...


class Counted(Holder, Protocol):
    """A connection that can be closed for another."""

    def give_way(self) -> None:
        """Close at once."""
        ...


C = TypeVar("C", bound=Holder)
_Group = dict[C, None]
"""Connections, the oldest first."""


class Connections(Generic[C]):
    """All open connections, at most `connections_max`; `reserved` of them are never one tenant's."""

    def __init__(self, connections_max: int, reserved: int) -> None:
        self._max = connections_max
        self._tenant_max = max(1, connections_max - reserved)
        self._strangers_kept = min(reserved, connections_max)
        self._strangers: dict[str, _Group[C]] = {}
        self._tenants: dict[str, _Group[C]] = {}
        self._places: dict[C, tuple[dict[str, _Group[C]], str]] = {}
        self._strangers_count = 0

    def __len__(self) -> int:
        return len(self._places)

    def enter(self, connection: C, address: str) -> C | None:
        """Count a new one; returns the one that is to be closed for it, which counts no more.

        Raises: Busy when nobody gives way.
        """
        gone = None
        if len(self._places) >= self._max:
            gone = self._giving_way()
            if gone is None:
                raise Busy()
            self.leave(gone)
        self._put(connection, self._strangers, group_of(address))
        return gone

    def show(self, connection: C, tenant: str) -> C | None:
        """A connection has shown a good key; returns an idle one of the tenant that is to be closed for it.

        Raises: TooManyConnections when the tenant has as many as it may, all of them busy.
        """
        if connection not in self._places:  # closed in the meantime
            return None
        gone = None
        held = self._tenants.get(tenant, {})
        if len(held) >= self._tenant_max and connection not in held:
            gone = _oldest_idle(held)
            if gone is None:
                raise TooManyConnections(tenant=tenant, connections_max=self._tenant_max)
            self.leave(gone)
        self.leave(connection)
        self._put(connection, self._tenants, tenant)
        return gone

    def leave(self, connection: C) -> None:
        """It is closed; one that does not count any more is no error."""
        place = self._places.pop(connection, None)
        if place is None:
            return
        groups, name = place
        del groups[name][connection]
        if not groups[name]:
            del groups[name]
        if groups is self._strangers:
            self._strangers_count -= 1

    def _put(self, connection: C, groups: dict[str, _Group[C]], name: str) -> None:
        groups.setdefault(name, {})[connection] = None
        self._places[connection] = groups, name
        self._strangers_count += groups is self._strangers

    def _giving_way(self) -> C | None:
        """The oldest of the address that has most, while strangers hold more than what is kept for them; then an idle
        one of a tenant that has more than an equal part; then a stranger again.

        The age of a stranger is that of its connection: one that sends a little now and then stays no longer for it.
        """
        if self._strangers_count <= self._strangers_kept:
            for held in sorted(self._tenants.values(), key=len, reverse=True):
                if len(held) * (len(self._tenants) + 1) <= self._max:
                    break
                idle = _oldest_idle(held)
                if idle is not None:
                    return idle
        if not self._strangers:
            return None
        busiest = max(self._strangers.values(), key=len)
        return next(iter(busiest))


def _oldest_idle(held: Iterable[C]) -> C | None:
    return next((connection for connection in held if connection.is_idle), None)


def group_of(address: str) -> str:
    """What counts as one address: of IPv6 the network of 64 bits, since whoever has one has all of it."""
    if ":" not in address:
        return address
    parsed = IPv6Address(address.partition("%")[0])
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return parsed.packed[:8].hex()
