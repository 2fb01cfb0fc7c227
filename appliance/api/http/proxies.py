"""Reverse proxies in front of the box, and what their headers `X-Forwarded-*` say of a request.

The headers are read where a named proxy has sent the request; any other caller can write what it likes into them. Of
`-Proto`, `-Host` and `-Prefix` the last value counts, because a proxy appends its own to those of its caller. In
`X-Forwarded-For` the caller is the last address that is no named proxy.
"""

import re
from collections.abc import Iterable, MutableMapping, Sequence
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Any

UNIX = "unix"
"""Names the callers of the box's Unix socket among the proxies."""
PREFIX = "appliance.prefix"
"""Place in a scope of the path below which a proxy shows the box, without a slash at its end."""
_PREFIX = re.compile(r"(/(?!\.{1,2}(/|$))[A-Za-z0-9._~-]+)+", re.ASCII)
_HOST = re.compile(rb"[A-Za-z0-9._:\[\]-]{1,255}")
_SCHEMES = {b"http": "http", b"https": "https"}
_START = b"x-forwarded-"
Address = IPv4Address | IPv6Address


class Proxies:
    """The proxies whose headers the box believes."""

    def __init__(self, named: Iterable[str] = ()) -> None:
        """`named`: addresses, networks such as `10.0.0.0/8`, or `UNIX`. Raises: ValueError for anything else."""
        self._has_unix = UNIX in (named := tuple(named))
        self._networks = [ip_network(one, strict=False) for one in named if one != UNIX]

    def read(self, scope: MutableMapping[str, Any]) -> None:
        """Set `client`, `scheme`, the header `host` and `PREFIX` of a request to what its proxy says of them."""
        if not self.have(scope["client"]):
            return
        said: dict[bytes, list[bytes]] = {}
        for name, value in scope["headers"]:
            if name.startswith(_START):
                said.setdefault(name[len(_START) :], []).extend(part.strip() for part in value.split(b","))
        caller = self._caller(said.get(b"for", ()))
        if caller is not None:
            scope["client"] = (str(caller), 0)
        scope["scheme"] = _SCHEMES.get(said.get(b"proto", [b""])[-1].lower(), scope["scheme"])
        host = said.get(b"host", [b""])[-1]
        if _HOST.fullmatch(host):
            headers: list[tuple[bytes, bytes]] = scope["headers"]
            headers[:] = [(b"host", host), *(one for one in headers if one[0] != b"host")]
        prefix = said.get(b"prefix", [b""])[-1].decode("latin-1").rstrip("/")
        if len(prefix) <= 255 and _PREFIX.fullmatch(prefix):
            scope[PREFIX] = prefix

    def have(self, client: tuple[str, int] | None) -> bool:
        """Return whether a connection is that of a proxy; `client` is None at the Unix socket."""
        return self._has_unix if client is None else bool(self._networks) and self._has(_address(client[0]))

    def _caller(self, chain: Sequence[bytes]) -> Address | None:
        """Return the last address that is no named proxy; where all are, the first.

        What stands before a value that is no address may be forged: the address behind it is returned then. None: the
        last value is no address, or there is none.
        """
        caller = None
        for value in reversed(chain):
            address = _address(value.decode("latin-1"))
            caller = address or caller
            if not self._has(address):
                break
        return caller

    def _has(self, address: Address | None) -> bool:
        return address is not None and any(address in network for network in self._networks)


def _address(text: str) -> Address | None:
    """Return the address in what the system or a proxy writes; None: there is none.

    It may have a zone, a port or brackets. An address of IPv6 that stands for one of IPv4 is read as that one.
    """
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        address = ip_address(text.partition("%")[0])
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address
