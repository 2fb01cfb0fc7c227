"""Where a receiver is, and how it does."""

import datetime
from dataclasses import replace

import pytest

from appliance.domain.errors import BadReceiver
from appliance.domain.health.conditions import Severity
from appliance.domain.notifications.receivers import (
    FAILING_FROM,
    GIVEN_UP_FROM,
    DeliveryStatus,
    Destination,
    Outcome,
    Receiver,
    ReceiverKind,
    ReceiverState,
    SendResult,
    checked,
    destination_of,
)

NOW = datetime.datetime(2026, 3, 1, 12, tzinfo=datetime.UTC)
SECRET = "https://hooks.example.org/T0-secret?key=secret"
RECEIVER = Receiver("7c2e", "harbour", "phone", ReceiverKind.WEBHOOK, SECRET, "secret-token", Severity.WARN, NOW)


@pytest.mark.parametrize(
    ("url", "destination", "origin"),
    [
        ("https://ntfy.sh/topic", Destination(True, "ntfy.sh", 443, "/topic"), "https://ntfy.sh"),
        ("http://192.168.7.9:8080", Destination(False, "192.168.7.9", 8080, "/"), "http://192.168.7.9:8080"),
        ("https://[2606::1]:8443/a?b=c", Destination(True, "2606::1", 8443, "/a?b=c"), "https://[2606::1]:8443"),
        ("http://bücher.example/x#y", Destination(False, "xn--bcher-kva.example", 80, "/x"), None),
    ],
)
def test_address_of_a_receiver_has_an_origin_without_its_path(
    url: str, destination: Destination, origin: str | None
) -> None:
    found = destination_of(url)
    assert found == destination
    assert found.origin == (origin or "http://xn--bcher-kva.example")


@pytest.mark.parametrize(
    "url",
    [
        "ftp://example.org/x",
        "file:///etc/passwd",
        "example.org/x",
        "https:///x",
        "https://user:word@example.org/",
        "https://@example.org/",
        "https://example.org:99999/",
        "https://[::1/",
        "https://exa mple.org/",
        "https://example.org/a b",
        "https://example.org\\@evil.org/",
        "https://example.org/ä",
        f"https://{'a' * 64}.org/",
    ],
)
def test_address_that_nothing_can_be_sent_to_is_refused(url: str) -> None:
    """With a reason that says nothing of what may be secret in it."""
    with pytest.raises(BadReceiver, match="url") as refused:
        destination_of(url)
    assert url not in str(refused.value)


@pytest.mark.parametrize("token", ["a b", "a\r\nX-Evil: 1", "ä", "x" * 501])
def test_token_that_is_no_header_is_refused(token: str) -> None:
    with pytest.raises(BadReceiver, match="token"):
        checked(replace(RECEIVER, token=token))


def test_gotify_without_token_is_refused_and_others_need_none() -> None:
    bare = replace(RECEIVER, token="")
    assert checked(bare) == bare
    with pytest.raises(BadReceiver, match="Gotify"):
        checked(replace(bare, kind=ReceiverKind.GOTIFY))
    assert (RECEIVER.has_token, bare.has_token) == (True, False)


def test_receiver_in_a_log_shows_neither_address_nor_token() -> None:
    assert "secret" not in repr(RECEIVER)


def test_receiver_fails_step_by_step_and_is_well_after_one_message() -> None:
    refused, taken = SendResult(Outcome.REFUSED, NOW, "no", 500), SendResult(Outcome.DELIVERED, NOW, "yes", 200)
    standing, states = DeliveryStatus(), [DeliveryStatus().state]
    for _ in range(GIVEN_UP_FROM):
        standing = standing.after(refused)
        states.append(standing.state)
    assert states[:2] == [ReceiverState.NEW, ReceiverState.RETRYING]
    assert states[FAILING_FROM - 1 : FAILING_FROM + 1] == [ReceiverState.RETRYING, ReceiverState.FAILING]
    assert states[-2:] == [ReceiverState.FAILING, ReceiverState.GIVEN_UP]
    assert standing.after(taken) == DeliveryStatus(taken, 0)
    assert standing.after(taken).state is ReceiverState.WELL
