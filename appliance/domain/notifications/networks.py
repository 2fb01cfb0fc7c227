"""Networks: whether the box may send a notification to an address."""

from collections.abc import Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import TypeAlias

Address: TypeAlias = IPv4Address | IPv6Address
Network: TypeAlias = IPv4Network | IPv6Network
_GLOBAL_UNICAST = IPv6Network("2000::/3")
_NAT64 = IPv6Network("64:ff9b::/96")


def is_permitted(text: str, private: Sequence[Network]) -> bool:
    """Whether an address is one of the public internet, or in a private network that the operator permits.

    An address of IPv6 that stands for one of IPv4 is judged as that one.
    """
    address = _meant(ip_address(text.partition("%")[0]))
    return any(address in one for one in private if one.version == address.version) or _is_public(address)


def _is_public(address: Address) -> bool:
    """Beyond what Python calls global: multicast is not public, nor a tunnel, nor a prefix that nobody was given."""
    if address.is_multicast or not address.is_global:
        return False
    if isinstance(address, IPv4Address):
        return True
    return address in _GLOBAL_UNICAST and address.sixtofour is None and address.teredo is None


def _meant(address: Address) -> Address:
    """Return the address of IPv4 that one of IPv6 is mapped or translated to."""
    if isinstance(address, IPv4Address):
        return address
    if address in _NAT64:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address
