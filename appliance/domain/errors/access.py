"""Callers who may not do what they ask for."""

from dataclasses import dataclass

from appliance.domain.errors.root import ApplianceError


class NotAllowed(ApplianceError):
    """The caller may not do this."""

    def message(self) -> str:
        return "this is not allowed"


class MissingKey(NotAllowed):
    def message(self) -> str:
        return "send a key: 'Authorization: Bearer KEY'"


class WrongKey(NotAllowed):
    def message(self) -> str:
        return "the key is unknown, expired or revoked"


@dataclass(kw_only=True, eq=False)
class Forbidden(NotAllowed):
    action: str

    def message(self) -> str:
        return f"this key may not {self.action}"


class NotOnBox(NotAllowed):
    """Shared memory is that of processes on the box itself."""

    def message(self) -> str:
        return (
            "shared memory is registered over a connection from the box itself, by its loopback address or Unix socket"
        )
