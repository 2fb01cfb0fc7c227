"""Receivers of notifications at a terminal: `appliance notifications`, over a real port."""

import json

from tests.client.conftest import Port


def test_notifications_commands_add_list_test_and_remove(port: Port) -> None:
    """Neither address nor token is shown again; a message that did not arrive ends with status 1."""
    url = "http://127.0.0.1:9/topic-secret"
    added = port.run("harbour", "notifications", "add", "phone", url, "--kind", "ntfy", "--token", "token-secret")
    [receiver] = json.loads(port.run("harbour", "notifications", "list", "--json"))
    assert receiver["id"] in added
    assert (receiver["name"], receiver["kind"], receiver["state"]) == ("phone", "ntfy", "new")
    failed = port.invoke("harbour", "notifications", "test", receiver["id"])
    assert failed.exit_code != 0
    assert "not-permitted: its address is private" in str(failed.exception)
    shown = port.run("harbour", "notifications", "list")
    assert {"phone", "ntfy", "retrying"} <= set(shown.split())
    assert "secret" not in added + shown
    assert "There is no receiver" in port.invoke("museum", "notifications", "list").output
    assert "is removed" in port.run("harbour", "notifications", "remove", receiver["id"])
    assert json.loads(port.run("harbour", "notifications", "list", "--json")) == []


def test_notifications_add_command_refuses_a_kind_that_there_is_not(port: Port) -> None:
    refused = port.invoke("harbour", "notifications", "add", "phone", "https://example.org/", "--kind", "pigeon")
    assert (refused.exit_code, "kind: Input should be" in refused.stderr) == (2, True)
