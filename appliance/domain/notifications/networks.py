"""Decides whether the box may send a notification to an IP address."""

from collections.abc import Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import TypeAlias

Address: TypeAlias = IPv4Address | IPv6Address
Network: TypeAlias = IPv4Network | IPv6Network
_GLOBAL_UNICAST = IPv6Network("2000::/3")
_NAT64 = IPv6Network("64:ff9b::/96")


def is_permitted(text: str, private: Sequence[Network]) -> bool:
    """Return whether an address is public, or lies in a private network that the operator permits.

    An IPv6 address that embeds an IPv4 address is judged by the IPv4 address.
    """
    address = _embedded_ipv4(ip_address(text.partition("%")[0]))
    return any(address in one for one in private if one.version == address.version) or _is_public(address)


def _is_public(address: Address) -> bool:
    """Return whether Python calls an address global, and it is no multicast, tunnel or unassigned prefix."""
    if address.is_multicast or not address.is_global:
        return False
    if isinstance(address, IPv4Address):
        return True
    return address in _GLOBAL_UNICAST and address.sixtofour is None and address.teredo is None


def _embedded_ipv4(address: Address) -> Address:
    """Return the IPv4 address that an IPv6 address embeds; without one, the address itself."""
    if isinstance(address, IPv4Address):
        return address
    if address in _NAT64:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address
