"""Who changed what on the box, and with which key."""

import datetime
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from appliance.domain.access import Role


class AuditOutcome(StrEnum):
    """What came of it."""

    DONE = "done"
    REFUSED = "refused"
    """Of a sign-in with a key that opens nothing."""


@dataclass(frozen=True, slots=True)
class Actor:
    """Whose key it was, as of then: keys are revoked, and labels forgotten with them."""

    tenant: str
    role: Role
    key_id: str
    label: str = ""


@dataclass(frozen=True, slots=True)
class AuditRecord:
    """One change, or several refused sign-ins from one address."""

    at: datetime.datetime
    tenant: str
    """Whose things it concerned; empty: the box's own."""
    action: str
    """What was done, in words."""
    method: str
    path: str
    subject: str = ""
    """Name or id of what was made, where the path does not name it."""
    change: Mapping[str, Any] | None = None
    """What was sent; None: no JSON, or too much of it."""
    actor: Actor | None = None
    """None: no key was good."""
    address: str = ""
    """Where the request came from; empty: over the box's Unix socket."""
    outcome: AuditOutcome = AuditOutcome.DONE
    times: int = 1
    """How many this one stands for."""
    id: int = 0
    """Grows with time; 0 until it is stored."""
