"""Reverse proxies in front of the box: what their headers `X-Forwarded-*` say of a request, and pages of other origins.

The headers are read where a named proxy has sent the request; any other caller can write what it likes into them. Of
a header with several values the last one counts, for a proxy appends to what its own caller has sent. Of the addresses
in `X-Forwarded-For` the last one counts that is no named proxy.
"""

import re
from collections.abc import Collection, Iterable, MutableMapping
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
_EXPOSED = b"location, retry-after, x-request-id, inference-header-content-length"
_PREFLIGHT = (
    (b"access-control-allow-methods", b"GET, HEAD, POST, PATCH, PUT, DELETE"),
    (b"access-control-allow-headers", b"*, authorization"),
    (b"access-control-max-age", b"600"),
)
Scope = MutableMapping[str, Any]
Headers = list[tuple[bytes, bytes]]


class Proxies:
    """The proxies that are believed."""

    def __init__(self, named: Iterable[str] = ()) -> None:
        """`named`: addresses, networks such as `10.0.0.0/8`, or `UNIX`. Raises: ValueError for anything else."""
        self._has_unix = UNIX in (named := tuple(named))
        self._networks = [ip_network(one, strict=False) for one in named if one != UNIX]

    def read(self, scope: Scope) -> None:
        """Make `client`, `scheme`, the header `host` and the prefix of a request what its proxy says of them."""
        if not self.have(scope["client"]):
            return
        said: dict[bytes, list[bytes]] = {}
        for name, value in scope["headers"]:
            if name.startswith(_START):
                said.setdefault(name[len(_START) :], []).extend(part.strip() for part in value.split(b","))
        address = self._caller(said.get(b"for", ()))
        if address is not None:
            scope["client"] = (str(address), 0)
        scope["scheme"] = _SCHEMES.get(said.get(b"proto", [b""])[-1].lower(), scope["scheme"])
        host = said.get(b"host", [b""])[-1]
        if _HOST.fullmatch(host):
            headers: Headers = scope["headers"]
            headers[:] = [(b"host", host), *(one for one in headers if one[0] != b"host")]
        prefix = said.get(b"prefix", [b""])[-1].decode("latin-1").rstrip("/")
        if len(prefix) <= 255 and _PREFIX.fullmatch(prefix):
            scope[PREFIX] = prefix

    def have(self, client: tuple[str, int] | None) -> bool:
        """Whether a connection is that of a proxy; `client` is None at the Unix socket."""
        return self._has_unix if client is None else bool(self._networks) and self._has(_address(client[0]))

    def _caller(self, named: Collection[bytes]) -> IPv4Address | IPv6Address | None:
        """The last address that is no named proxy; None: there is none, or what stands there is no address."""
        for one in reversed(tuple(named)):
            address = _address(one.decode("latin-1"))
            if address is None or not self._has(address):
                return address
        return None

    def _has(self, address: IPv4Address | IPv6Address | None) -> bool:
        return address is not None and any(address in network for network in self._networks)


def _address(text: str) -> IPv4Address | IPv6Address | None:
    """An address as the system or a proxy writes it: with a zone, a port, brackets, or as one of IPv6 that means one of
    IPv4.
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


class Origins:
    """Origins whose pages may read the box's answers (CORS). They send a key; cookies stay with the box's own pages."""

    def __init__(self, named: Iterable[str] = ()) -> None:
        """`named`: such as `https://app.example.org`, or `*` for all."""
        self._named = frozenset(one.lower().rstrip("/").encode() for one in named)

    def headers(self, scope: Scope) -> Headers:
        """Headers for the answer to a request; none where it comes from no page, or from one of another origin."""
        origin = _first(scope, b"origin") if self._named else b""
        if not origin or not (b"*" in self._named or origin.lower() in self._named):
            return []
        allowed = b"*" if b"*" in self._named else origin
        return [
            (b"access-control-allow-origin", allowed),
            (b"access-control-expose-headers", _EXPOSED),
            (b"vary", b"Origin"),
        ]

    def preflight(self, scope: Scope) -> Headers | None:
        """Headers for the answer to a browser that asks whether a page may send a request; None: nobody asks that, or
        the page may not. Those of `headers` come beside them.
        """
        is_asked = scope["method"] == "OPTIONS" and _first(scope, b"access-control-request-method")
        return list(_PREFLIGHT) if is_asked and self.headers(scope) else None


def _first(scope: Scope, wanted: bytes) -> bytes:
    return next((bytes(value) for name, value in scope["headers"] if name == wanted), b"")
