"""Receivers of notifications, and results of messages to them."""

import datetime
import re
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple
from urllib.parse import urlsplit

from appliance.domain.errors import BadReceiver
from appliance.domain.health.conditions import Severity

FAILING_FROM = 3
"""Number of failed messages in a row from which a receiver is failing."""
GIVEN_UP_FROM = 30
"""Number of failed messages in a row after which nothing is sent; they take about a day."""
_TOKEN = re.compile("[!-~]{1,500}")
_PATH = re.compile("[!-~]*")
_SEPARATORS = re.compile(r"[\s\\]")


class ReceiverKind(StrEnum):
    """Services that messages are sent to."""

    WEBHOOK = "webhook"
    """A JSON document; the token goes as `Authorization: Bearer`."""
    NTFY = "ntfy"
    """Text to the address of a topic; the token goes as `Authorization: Bearer`."""
    GOTIFY = "gotify"
    """A message of Gotify; the token is that of an application."""


class Destination(NamedTuple):
    """The parts of the address of a receiver."""

    is_tls: bool
    host: str
    port: int
    path: str
    """Path and query."""

    @property
    def origin(self) -> str:
        """Return scheme, host and port, without the path, which may be secret."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        usual = 443 if self.is_tls else 80
        return f"{'https' if self.is_tls else 'http'}://{host}{'' if self.port == usual else f':{self.port}'}"


@dataclass(frozen=True, slots=True)
class Receiver:
    """An address to which messages on conditions are sent."""

    id: str
    tenant: str | None
    """Tenant whose conditions are sent; None: those of the box and of all tenants."""
    name: str
    kind: ReceiverKind
    url: str = field(repr=False)
    token: str = field(repr=False)
    severity_min: Severity
    created_at: datetime.datetime

    @property
    def destination(self) -> Destination:
        """Raises: BadReceiver."""
        return destination_of(self.url)

    @property
    def has_token(self) -> bool:
        return bool(self.token)


def checked(receiver: Receiver) -> Receiver:
    """Return the receiver if messages can be sent to it. Raises: BadReceiver."""
    destination_of(receiver.url)
    if receiver.token and not _TOKEN.fullmatch(receiver.token):
        raise BadReceiver(reason="token: use 1 to 500 printable characters of ASCII without spaces")
    if receiver.kind is ReceiverKind.GOTIFY and not receiver.token:
        raise BadReceiver(reason="token: Gotify needs the token of an application")
    return receiver


def destination_of(url: str) -> Destination:
    """Return the parts of an address. Raises: BadReceiver."""
    try:
        parts = urlsplit(url)
        host, port = (parts.hostname or "").encode("idna").decode(), parts.port
    except ValueError:  # UnicodeError is one
        raise BadReceiver(reason="url: this is no address") from None
    if parts.scheme not in ("http", "https") or not host or _SEPARATORS.search(url):
        raise BadReceiver(reason="url: say http:// or https://, a host and a path, without spaces")
    if "@" in parts.netloc:
        raise BadReceiver(reason="url: name and password do not belong into it; send a token in its own field")
    if not _PATH.fullmatch(path := f"{parts.path or '/'}{f'?{parts.query}' if parts.query else ''}"):
        raise BadReceiver(reason="url: percent-encode what is no printable character of ASCII")
    is_tls = parts.scheme == "https"
    return Destination(is_tls, host, port or (443 if is_tls else 80), path)


class Outcome(StrEnum):
    """Outcomes of sending a message."""

    DELIVERED = "delivered"
    REFUSED = "refused"
    """The receiver answered with a status other than 2xx."""
    REDIRECTED = "redirected"
    """The receiver answered with a redirect, which the box does not follow."""
    NOT_PERMITTED = "not-permitted"
    """The host name has only private addresses."""
    UNREACHABLE = "unreachable"
    """The host name is unknown, or no HTTP server answers at its addresses."""
    NOT_TRUSTED = "not-trusted"
    """The certificate of the receiver cannot be verified."""
    TIMED_OUT = "timed-out"
    """The receiver did not answer in time."""


@dataclass(frozen=True, slots=True)
class SendResult:
    """Result of sending a message."""

    outcome: Outcome
    at: datetime.datetime
    detail: str
    """A sentence for a person."""
    status: int | None = None
    """HTTP status of the answer; None: there was none."""

    @property
    def is_delivered(self) -> bool:
        return self.outcome is Outcome.DELIVERED


class ReceiverState(StrEnum):
    """States of a receiver, by its latest messages."""

    NEW = "new"
    """Nothing was sent to it since the box started."""
    WELL = "well"
    """The latest message arrived."""
    RETRYING = "retrying"
    """The latest message did not arrive; it is sent again."""
    FAILING = "failing"
    """Several messages in a row did not arrive; they are sent again, at most an hour apart."""
    GIVEN_UP = "given-up"
    """No message arrived for a day. Nothing is sent until a test message arrives, or the box starts again."""


@dataclass(frozen=True, slots=True)
class DeliveryStatus:
    """The latest message to a receiver, and how many in a row did not arrive."""

    last: SendResult | None = None
    failures: int = 0

    def after(self, sent: SendResult) -> "DeliveryStatus":
        """Return the status after one more message."""
        return DeliveryStatus(sent, 0 if sent.is_delivered else self.failures + 1)

    @property
    def state(self) -> ReceiverState:
        if self.last is None:
            return ReceiverState.NEW
        for state, least in ((ReceiverState.GIVEN_UP, GIVEN_UP_FROM), (ReceiverState.FAILING, FAILING_FROM)):
            if self.failures >= least:
                return state
        return ReceiverState.RETRYING if self.failures else ReceiverState.WELL
