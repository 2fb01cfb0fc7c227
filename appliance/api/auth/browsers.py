"""Browsers: which of them may use a cookie, and who is signed in with it. For `/v1` and `/metrics`, never for `/v2`.

A cookie is sent by the browser, not by a page, so it must be shown that a page of the box asks: `SameSite=Strict` keeps
other sites out, `Sec-Fetch-Site` and `Origin` other ports of the same host, and the name in `Host` pages whose name was
made to lead to the box later (DNS rebinding).
"""

import asyncio
import ipaddress
import socket
from collections.abc import Callable, Collection, Iterable, Mapping, MutableMapping
from dataclasses import dataclass, field
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import urlsplit

from appliance.api.auth.callers import CONNECTION, Connection, caller_of
from appliance.api.auth.keyring import KeyRing, Principal
from appliance.api.auth.sign_ins import AGE_MAX, SignIn, SignIns
from appliance.api.http.proxies import PREFIX
from appliance.domain.errors import ForeignOrigin, TlsRequired

_READS = frozenset({"GET", "HEAD"})


@dataclass(frozen=True, slots=True)
class Browsers:
    """What decides whether a browser may be signed in, and as whom."""

    keyring: KeyRing
    sign_ins: SignIns
    names: Collection[str]
    """Of the box, in lower case, beside addresses."""
    without_tls: bool
    """Whether browsers of other machines may use plain HTTP."""
    write: Callable[[Iterable[SignIn]], None]
    """Writes the file of sign-ins; blocks."""
    _saving: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def save(self) -> None:
        """Write the file where it lacks something; one after another, so that the last one stays."""
        async with self._saving:
            unsaved = self.sign_ins.unsaved()
            if unsaved is not None:
                await asyncio.to_thread(self.write, unsaved)

    def require_own_page(self, scope: Mapping[str, Any], headers: Mapping[bytes, bytes]) -> None:
        """Raises: TlsRequired; ForeignOrigin for what does not come from a page of the box."""
        if scope["scheme"] != "https" and not self.without_tls and not _is_local(scope.get("client")):
            raise TlsRequired
        host = headers.get(b"host", b"").decode("latin-1").lower()
        if not self._is_own(host):
            raise ForeignOrigin(reason=f"'{host[:80]}' is no name or address of this box")
        site = headers.get(b"sec-fetch-site", b"").decode("latin-1")
        origin = headers.get(b"origin", b"").decode("latin-1").lower()
        is_read = scope["method"] in _READS
        # `none`: a person typed the address. That may read, as any page of the box may.
        if site not in ("", "same-origin", "none" if is_read else "same-origin"):
            raise ForeignOrigin(reason=f"the request comes from a {site} page")
        if origin and origin != f"{scope['scheme']}://{host}":
            raise ForeignOrigin(reason=f"the request comes from a page of '{origin[:80]}'")
        # Every browser names the origin of what changes something.
        if not is_read and not origin and not site:
            raise ForeignOrigin(reason="the request names no origin")

    def caller(self, scope: MutableMapping[str, Any]) -> Principal:
        """Whoever sent a good key, else whoever is signed in.

        Raises: as `caller_of` and `require_own_page`.
        """
        headers: dict[bytes, bytes] = dict(scope["headers"])
        cookie = None if b"authorization" in headers else cookie_of(scope, headers)
        if cookie is None:
            return caller_of(self.keyring, scope, headers)
        self.require_own_page(scope, headers)
        principal = self.keyring.principal(self.sign_ins.key_of(cookie), headers.get(b"x-tenant"), _address(scope))
        connection: Connection | None = scope.get(CONNECTION)
        if connection is not None and connection.tenant != principal.tenant:
            connection.known(principal.tenant)
        return principal

    def _is_own(self, host: str) -> bool:
        """Whether the name in `Host` is the box's. An address is: whoever asks there has looked up no name."""
        try:
            name = urlsplit(f"//{host}").hostname if _is_sane(host) else None
        except ValueError:  # half an address, as in `[`
            return False
        return name is not None and (name.rstrip(".") in self.names or _is_address(name))


def own_names(listens_at: str, others: Collection[str]) -> frozenset[str]:
    """Names of this machine, as a browser beside it may know it, and `others`."""
    machine = socket.gethostname()
    names = {"localhost", machine, machine.partition(".")[0], f"{machine.partition('.')[0]}.local", listens_at, *others}
    return frozenset(name.lower().rstrip(".") for name in names if name)


def cookie_name(scope: Mapping[str, Any]) -> str:
    """Return the name of the cookie of a sign-in.

    Under TLS browsers take a cookie of such a name over TLS only. They take one with `__Host-` from the host itself
    only, not from others of its domain, but its path must be `/`: where a proxy shows the box below a path it is
    `__Secure-`.
    """
    if scope["scheme"] != "https":
        return "appliance"
    return "__Secure-appliance" if PREFIX in scope else "__Host-appliance"


def cookie_of(scope: Mapping[str, Any], headers: Mapping[bytes, bytes]) -> str | None:
    """The cookie that a browser sent."""
    try:
        found = SimpleCookie(headers.get(b"cookie", b"").decode("latin-1")).get(cookie_name(scope))
    except CookieError:
        return None
    return found.value if found is not None else None


def set_cookie(scope: Mapping[str, Any], value: str) -> str:
    """A header `Set-Cookie`; an empty value takes the cookie away."""
    age_s = int(AGE_MAX.total_seconds()) if value else 0
    secure = "; Secure" if scope["scheme"] == "https" else ""
    path = f"{scope.get(PREFIX, '')}/"
    return f"{cookie_name(scope)}={value}; Path={path}; Max-Age={age_s}; HttpOnly; SameSite=Strict{secure}"


def _address(scope: Mapping[str, Any]) -> str:
    client = scope.get("client")
    return client[0] if client else ""


def _is_local(client: tuple[str, int] | None) -> bool:
    """Whether the caller is on the box: by its Unix socket, or a loopback address."""
    if not client:
        return True
    try:
        address = ipaddress.ip_address(client[0].partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback


def _is_sane(host: str) -> bool:
    return bool(host) and not any(letter in "/?#@\\" or letter.isspace() for letter in host)


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name.partition("%")[0])
    except ValueError:
        return False
    return True
