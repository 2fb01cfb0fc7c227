"""Who sends a request: asked once, before anything of its body is kept."""

import socket
from collections.abc import Mapping, MutableMapping
from typing import Any, NamedTuple, Protocol

from appliance.api.auth.keyring import KeyRing, Principal
from appliance.api.http.turns import STRANGER

CONNECTION = "appliance.connection"
"""Place of the `Connection` in a scope, where the server offers one."""


class Shown(NamedTuple):
    """A header `Authorization` that was good on a connection, while no key has come or gone."""

    authorization: bytes | None
    changes: int
    principal: Principal


class Connection(Protocol):
    """What carries requests."""

    shown: Shown | None
    """The last good one; another connection's says nothing here, so a guess that is compared with it leaks nothing."""

    tenant: str | None
    """For whom it counts; None: no good key was shown on it."""

    @property
    def owner(self) -> str:
        """The owner that work for the connection counts for (`Turns`): its tenant, else its address."""
        ...

    def duplicate(self) -> socket.socket | None:
        """Return a socket of the caller's own at the same connection; None: it is closed already, or is a proxy's."""
        ...

    def known(self, tenant: str) -> None:
        """Count for a tenant from now on. Raises: TooManyConnections."""
        ...


def owner_of(scope: Mapping[str, Any]) -> str:
    """Return the owner that work for a request counts for, before its key is looked at."""
    connection: Connection | None = scope.get(CONNECTION)
    return STRANGER if connection is None else connection.owner


def caller_of(keyring: KeyRing, scope: MutableMapping[str, Any], headers: Mapping[bytes, bytes]) -> Principal:
    """Whoever sent a good key; the connection counts for their tenant from now on.

    The key that a connection showed last is not looked up again.

    Raises: MissingKey, WrongKey, TooManyFailedKeys, Forbidden, UnknownTenant, TooManyConnections.
    """
    authorization, x_tenant = headers.get(b"authorization"), headers.get(b"x-tenant")
    connection: Connection | None = scope.get(CONNECTION)
    shown = None if connection is None or x_tenant is not None else connection.shown
    if shown is not None and shown.authorization == authorization and shown.changes == keyring.changes:
        return shown.principal
    client = scope.get("client")
    principal = keyring.authenticate(authorization, x_tenant, client[0] if client else "")
    if connection is not None:
        if connection.tenant != principal.tenant:
            connection.known(principal.tenant)
        lasts = x_tenant is None and principal.expires_at is None
        connection.shown = Shown(authorization, keyring.changes, principal) if lasts else None
    return principal
