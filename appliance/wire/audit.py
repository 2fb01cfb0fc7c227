"""Who changed what, and with which key."""

import datetime
from typing import Any

from pydantic import Field

from appliance.domain.access import Role
from appliance.domain.audit import AuditOutcome
from appliance.wire.shape import Shape


class ActorShape(Shape):
    """Whose key it was, as of then."""

    tenant: str = Field(examples=["harbour"])
    role: Role
    key_id: str | None = Field(examples=["5f1c0a9be2d4"])
    """Null to a tenant where it was an admin's."""
    label: str = Field(examples=["laptop of the developer"])


class AuditShape(Shape):
    """One change that was made, or refused sign-ins from one address."""

    id: int = Field(examples=[4711])
    at: datetime.datetime
    tenant: str = Field(examples=["harbour"])
    """Whose things it concerned; empty: the box's own."""
    action: str = Field(examples=["Make a key"])
    method: str = Field(examples=["POST"])
    path: str = Field(examples=["/v1/tenants/harbour/keys"])
    subject: str = Field(examples=["5f1c0a9be2d4"])
    """Name or id of what was made; empty where the path names it."""
    change: dict[str, Any] | None = Field(examples=[{"role": "device", "applications": ["signs"]}])
    """What was sent as JSON; null where it was none, too much, or a key."""
    actor: ActorShape | None
    """Null: no key was good."""
    address: str | None = Field(examples=["192.168.1.20"])
    """Where the request came from; empty: over the box's Unix socket; null to a tenant where it was an admin's."""
    outcome: AuditOutcome
    times: int = 1
    """How many it stands for: refused sign-ins of one address are counted for a minute."""
