"""Callers who may not do what they ask for."""

from dataclasses import dataclass

from appliance.domain.errors.root import ApplianceError


class NotAllowed(ApplianceError, status=403, title="Not allowed"):
    """The caller may not do this."""

    def message(self) -> str:
        return "this is not allowed"


class MissingKey(NotAllowed, status=401, title="A key is needed"):
    def message(self) -> str:
        return "send a key: 'Authorization: Bearer KEY'"


class WrongKey(NotAllowed, status=401, title="The key does not open anything"):
    def message(self) -> str:
        return "the key is unknown, expired or revoked"


@dataclass(kw_only=True, eq=False)
class Forbidden(NotAllowed, title="The key may not do this"):
    action: str

    def message(self) -> str:
        return f"this key may not {self.action}"


@dataclass(kw_only=True, eq=False)
class ForeignOrigin(NotAllowed, title="Only for the box's own pages"):
    """A browser's cookie counts for the pages of the box alone, under a name or an address of the box."""

    reason: str

    def message(self) -> str:
        return f"{self.reason}: a signed-in browser is served for the box's own pages only"


class TlsRequired(NotAllowed, title="Signing in needs TLS"):
    """Signing in sends a key, which others on the network could read without TLS."""

    def message(self) -> str:
        return (
            "signing in from another machine needs TLS: set http.tls_self_signed (or http.tls_cert and http.tls_key), "
            "or allow it with security.sign_in_without_tls"
        )


class NotOnBox(NotAllowed, title="Only from the box itself"):
    """Shared memory is that of processes on the box itself."""

    def message(self) -> str:
        return (
            "shared memory is registered over a connection from the box itself, by its loopback address or Unix socket"
        )
