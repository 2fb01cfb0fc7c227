"""Who sends a request: asked once, before anything of its body is kept."""

import socket
from collections.abc import Mapping, MutableMapping
from typing import Any, Protocol

from appliance.api.auth.keyring import KeyRing, Principal

CONNECTION = "appliance.connection"
"""Place of the `Connection` in a scope, where the server offers one."""


class Connection(Protocol):
    """What carries requests."""

    tenant: str | None
    """For whom it counts; None: no good key was shown on it."""

    def duplicate(self) -> socket.socket | None:
        """A socket of the caller's own at the same connection; None: it is closed already."""
        ...

    def known(self, tenant: str) -> None:
        """Count for a tenant from now on. Raises: TooManyConnections."""
        ...


def caller_of(keyring: KeyRing, scope: MutableMapping[str, Any], headers: Mapping[bytes, bytes]) -> Principal:
    """Whoever sent a good key; the connection counts for their tenant from now on.

    Raises: MissingKey, WrongKey, TooManyFailedKeys, Forbidden, UnknownTenant, TooManyConnections.
    """
    client = scope.get("client")
    principal = keyring.authenticate(
        headers.get(b"authorization"), headers.get(b"x-tenant"), client[0] if client else ""
    )
    connection: Connection | None = scope.get(CONNECTION)
    if connection is not None and connection.tenant != principal.tenant:
        connection.known(principal.tenant)
    return principal
