"""Who sends a request, and on a connection that has shown its key before."""

import datetime
import socket
from collections.abc import Callable
from typing import Any

import pytest

from appliance.api.auth.callers import CONNECTION, Shown, caller_of
from appliance.api.auth.keyring import KeyRing, new_key
from appliance.domain.access import Role
from appliance.domain.errors import MissingKey, WrongKey
from tests.api.auth.keys import record, ring
from tests.fakes.hand_clock import HandClock


class Line:
    """A connection."""

    def __init__(self) -> None:
        self.tenant: str | None = None
        self.shown: Shown | None = None

    def known(self, tenant: str) -> None:
        self.tenant = tenant

    def duplicate(self) -> socket.socket | None:
        return None


def ask(keys: KeyRing, line: Line, key: str, **more: str) -> str:
    headers = {b"authorization": f"Bearer {key}".encode()}
    headers |= {name.replace("_", "-").encode(): value.encode() for name, value in more.items()}
    scope: dict[str, Any] = {"client": ("10.0.0.7", 1), CONNECTION: line}
    return caller_of(keys, scope, headers).tenant


def test_last_key_of_a_connection_is_not_looked_up_again() -> None:
    """Until the connection shows another key; a request without a key is not answered with the last one."""
    key, other, line = new_key(), new_key(), Line()
    keys = ring(record(key), record(other, tenant="museum"))
    assert [ask(keys, line, key) for _ in range(2)] == ["harbour", "harbour"]
    shown = line.shown
    assert ask(keys, line, key) == "harbour"
    assert line.shown is shown  # it was not looked up
    assert (ask(keys, line, other), line.tenant) == ("museum", "museum")
    with pytest.raises(WrongKey):
        ask(keys, line, new_key())
    with pytest.raises(MissingKey):
        caller_of(keys, {CONNECTION: line}, {})


def test_ended_key_is_refused_on_connections_that_have_shown_it() -> None:
    """Revoked, its tenant deleted, replaced by a key of another role, or expired."""
    key, line, clock = new_key(), Line(), HandClock()
    keys = ring(record(key), clock=clock)
    made = record(key)
    ends: list[Callable[[], None]] = [lambda: keys.remove(made.id), lambda: keys.remove_tenant("harbour")]
    for end in ends:
        keys.put(made)
        assert ask(keys, line, key) == "harbour"
        end()
        with pytest.raises(WrongKey):
            ask(keys, line, key)
    keys.put(made)
    assert ask(keys, line, key) == "harbour"
    keys.put(record(key, Role.DEVICE, tenant="museum"))
    assert ask(keys, line, key) == "museum"
    keys.put(record(key, expires_at=clock.wall_now() + datetime.timedelta(hours=1)))
    assert ask(keys, line, key) == "harbour"
    clock.pass_s(2 * 3600)
    with pytest.raises(WrongKey):
        ask(keys, line, key)


def test_admin_key_acts_for_the_tenant_that_each_request_names() -> None:
    """And for its own tenant where a request names none."""
    key, line = new_key(), Line()
    keys = ring(record(key, Role.ADMIN))
    named = [ask(keys, line, key, **more) for more in ({}, {"x_tenant": "museum"}, {}, {"x_tenant": "harbour"}, {})]
    assert named == ["harbour", "museum", "harbour", "harbour", "harbour"]
