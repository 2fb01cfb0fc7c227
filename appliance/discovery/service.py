"""What a box says of itself on the local network: where it is, its version, and whether it speaks TLS, with the
fingerprint by which it is known again. Nothing of tenants and models.
"""

import ipaddress
import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import psutil

TYPE = "_inference._tcp.local."


@dataclass(frozen=True, slots=True)
class Service:
    """A box as it was announced."""

    name: str
    addresses: tuple[str, ...]
    port: int
    version: str
    tls: bool
    fingerprint: str
    """SHA-256 of the authority that the box has made itself, else of its certificate; empty without TLS."""

    @property
    def url(self) -> str:
        """By its first address."""
        address = self.addresses[0] if self.addresses else self.name
        host = f"[{address}]" if ":" in address else address
        return f"{'https' if self.tls else 'http'}://{host}:{self.port}"

    def properties(self) -> dict[str, str]:
        """As they stand in the TXT record."""
        said = {"version": self.version, "tls": "1" if self.tls else "0"}
        return said | ({"fingerprint": self.fingerprint} if self.fingerprint else {})


def read(name: str, addresses: Iterable[str], port: int, properties: Mapping[str, str | None]) -> Service:
    """As somebody announced it: texts of strangers, cut to what is expected of them."""
    said = {key: "".join(sign for sign in value or "" if sign.isprintable())[:100] for key, value in properties.items()}
    title = "".join(sign for sign in name.removesuffix(f".{TYPE}") if sign.isprintable())
    return Service(
        title[:100],
        tuple(addresses),
        port,
        said.get("version", ""),
        said.get("tls") == "1",
        said.get("fingerprint", ""),
    )


def reachable(host: str) -> tuple[str, ...]:
    """Addresses under which other machines find a box that listens at `host`, version 4 first; none: only this one
    does.
    """
    if host in ("0.0.0.0", "::"):
        found = (one for each in psutil.net_if_addrs().values() for one in each)
        known = {one.address for one in found if one.family in (socket.AF_INET, socket.AF_INET6)}
    else:
        known = {host}
    usable = []
    for text in known:
        try:
            address = ipaddress.ip_address(text)
        except ValueError:  # a name, or an address with a zone
            continue
        if not (address.is_loopback or (address.is_link_local and address.version == 6) or address.is_unspecified):
            usable.append(address)
    return tuple(str(address) for address in sorted(usable, key=lambda each: (each.version, int(each))))
