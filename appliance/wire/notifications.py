"""Receivers of notifications."""

import datetime
from typing import Literal

from pydantic import ConfigDict, Field

from appliance.domain.notifications.receivers import Outcome, ReceiverKind, ReceiverState
from appliance.wire.fields import Flag, Text
from appliance.wire.shape import Order, Shape


class ReceiverOrder(Order):
    """A new receiver."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"name": "the harbour's phone", "kind": "ntfy", "url": "https://ntfy.example.org/harbour-7Qm2"}
            ]
        }
    )

    name: Text = Field(min_length=1, max_length=60, examples=["the harbour's phone"])
    """Name for people, such as the person who reads the messages."""
    kind: ReceiverKind
    """`webhook` (a JSON document), `ntfy` (text to a topic) or `gotify`."""
    url: Text = Field(max_length=2000, examples=["https://ntfy.example.org/harbour-7Qm2"])
    """Address of the webhook, of the ntfy topic or of the Gotify server. It may be secret, and is not shown again."""
    token: Text = Field("", max_length=500)
    """Sent as `Authorization: Bearer`, to Gotify as `X-Gotify-Key`. It is not shown again."""
    severity_min: Literal["warn", "bad"] = "warn"
    """`bad`: send only conditions on which a person should act now."""
    of_box: Flag = False
    """Send conditions of the box and of all tenants; needs an admin key."""


class SentShape(Shape):
    """Result of a message."""

    outcome: Outcome
    """`delivered`, or the reason why the message did not arrive."""
    status: int | None = Field(examples=[200])
    """HTTP status of the receiver's answer; null: there was none."""
    detail: str = Field(examples=["it took the message (HTTP 200)"])
    at: datetime.datetime


class ReceiverShape(Shape):
    """A receiver, without what may be secret."""

    id: str = Field(examples=["7c2e91a04bd8"])
    tenant: str | None = Field(examples=["harbour"])
    """Tenant whose conditions are sent; null: those of the box and of all tenants."""
    name: str = Field(examples=["the harbour's phone"])
    kind: ReceiverKind
    origin: str = Field(examples=["https://ntfy.example.org"])
    """Address without the path."""
    has_token: bool
    severity_min: Literal["warn", "bad"]
    created_at: datetime.datetime
    state: ReceiverState = ReceiverState.NEW
    """`new`: no message since the start; `well`; `retrying`, `failing` or `given-up` where messages do not arrive."""
    last: SentShape | None = None
    """The latest message; null: none since the start."""
    failures: int = Field(0, examples=[0])
    """Messages in a row that did not arrive."""
