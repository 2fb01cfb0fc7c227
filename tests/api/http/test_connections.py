"""Who gives way when there is no room for one more connection."""

from dataclasses import dataclass

import pytest

from appliance.api.http.connections import Connections, group_of
from appliance.domain.errors import Busy, TooManyConnections


@dataclass(eq=False)
class Line:
    """A connection."""

    name: str
    is_idle: bool = True


def filled(connections: Connections[Line], address: str, count: int) -> list[Line]:
    lines = [Line(f"{address}-{number}") for number in range(count)]
    for line in lines:
        assert connections.enter(line, address) is None
    return lines


def test_oldest_connection_of_the_busiest_address_is_closed_at_the_bound() -> None:
    """And no connection of an address that has few."""
    connections = Connections[Line](6, 1)
    few = filled(connections, "10.0.0.1", 2)
    many = filled(connections, "10.0.0.2", 4)
    assert connections.enter(Line("new"), "10.0.0.3") is many[0]
    assert connections.enter(Line("newer"), "10.0.0.3") is many[1]
    connections.leave(few[0])
    assert connections.enter(Line("newest"), "10.0.0.3") is None


def test_keyless_connections_are_closed_before_a_connection_with_a_key() -> None:
    """While connections without a key hold more than the number kept for them."""
    connections = Connections[Line](4, 1)
    first, *strangers = filled(connections, "a", 4)
    assert connections.show(first, "t") is None
    assert [connections.enter(Line("new"), "a") for _ in range(3)] == strangers


def test_idle_connection_of_largest_tenant_is_closed_for_a_keyless_caller() -> None:
    """So tenants cannot keep new callers from showing their keys; busy connections stay, and then there is no room."""
    connections = Connections[Line](4, 1)
    small, *large = filled(connections, "a", 4)
    connections.show(small, "small")
    for line in large:
        connections.show(line, "large")
        line.is_idle = line is large[1]
    small.is_idle = False
    assert connections.enter(Line("new", is_idle=False), "b") is large[1]
    newer = Line("newer")
    assert connections.enter(newer, "b") is not None  # the stranger before it
    connections.show(newer, "small")
    newer.is_idle = False
    with pytest.raises(Busy):
        connections.enter(Line("none"), "b")
    assert len(connections) == 4


def test_tenant_at_its_connection_bound_loses_an_idle_connection() -> None:
    """With all its connections busy the new one is refused, and counts as before."""
    connections = Connections[Line](4, 2)
    first, second, third, _ = filled(connections, "a", 4)
    assert connections.show(first, "t") is None
    assert connections.show(second, "t") is None
    assert connections.show(second, "t") is None
    first.is_idle = second.is_idle = False
    with pytest.raises(TooManyConnections):
        connections.show(third, "t")
    second.is_idle = True
    assert connections.show(third, "t") is second
    assert len(connections) == 3
    assert connections.show(second, "t") is None  # closed already: counts no more
    assert len(connections) == 3


@pytest.mark.parametrize(
    ("one", "other", "are_one"),
    [
        ("10.0.0.1", "10.0.0.2", False),
        ("::ffff:10.0.0.1", "10.0.0.1", True),
        ("2001:db8::1", "2001:db8::ffff:2", True),
        ("2001:db8:0:1::1", "2001:db8:0:2::1", False),
        ("fe80::1%eth0", "fe80::2%eth0", True),
    ],
)
def test_addresses_of_an_ipv6_network_count_as_one_address(one: str, other: str, are_one: bool) -> None:
    """A network of 64 bits."""
    assert (group_of(one) == group_of(other)) is are_one
