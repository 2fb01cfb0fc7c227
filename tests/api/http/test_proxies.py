"""What the box believes of a request that a reverse proxy has sent."""

from typing import Any

import pytest

from appliance.api.http.proxies import PREFIX, Proxies

NAMED = ("127.0.0.1", "10.0.0.0/8", "::1")


def read(client: str | None, *named: str, **said: str) -> tuple[Any, ...]:
    """The address, scheme, host and prefix that the box sees."""
    headers = [(b"host", b"inner"), *((f"x-forwarded-{name}".encode(), value.encode()) for name, value in said.items())]
    scope: dict[str, Any] = {"client": client and (client, 4711), "scheme": "http", "headers": headers}
    Proxies(named or NAMED).read(scope)
    host = dict(scope["headers"])[b"host"].decode()
    return scope["client"] and scope["client"][0], scope["scheme"], host, scope.get(PREFIX, "")


@pytest.mark.parametrize(
    ("chain", "caller"),
    [
        ("203.0.113.7", "203.0.113.7"),
        ("198.51.100.1, 203.0.113.7", "203.0.113.7"),
        ("203.0.113.7, 10.9.9.9", "203.0.113.7"),
        ("203.0.113.7:5000", "203.0.113.7"),
        ("[2001:db8::1]:5000", "2001:db8::1"),
        ("2001:db8::1", "2001:db8::1"),
        ("::ffff:203.0.113.7", "203.0.113.7"),
        ("10.1.1.1", "10.1.1.1"),
        ("10.2.2.2, 10.1.1.1", "10.2.2.2"),
        ("", "127.0.0.1"),
        ("unknown", "127.0.0.1"),
        ("203.0.113.7, unknown", "127.0.0.1"),
        ("203.0.113.7, unknown, 10.1.1.1", "10.1.1.1"),
    ],
)
def test_forwarded_address_is_the_last_that_is_no_named_proxy(chain: str, caller: str) -> None:
    """Where there is none, that of the farthest proxy which the proxies behind it name."""
    assert read("127.0.0.1", **{"for": chain})[0] == caller


@pytest.mark.parametrize("client", ["127.0.0.1", "10.200.0.1", "::1", "::ffff:10.0.0.1"])
def test_named_proxy_tells_scheme_host_and_prefix(client: str) -> None:
    said = {"proto": "https", "host": "box.example.org:8443", "prefix": "/edge/box/"}
    assert read(client, **said)[1:] == ("https", "box.example.org:8443", "/edge/box")


@pytest.mark.parametrize("client", ["127.0.0.2", "192.0.2.1", "2001:db8::1", None])
def test_headers_of_other_callers_are_not_read(client: str | None) -> None:
    said = {"for": "203.0.113.7", "proto": "https", "host": "evil", "prefix": "/evil"}
    assert read(client, **said) == (client, "http", "inner", "")


def test_unix_socket_is_a_proxy_only_where_it_is_named() -> None:
    assert read(None, "unix", **{"for": "203.0.113.7"})[0] == "203.0.113.7"
    assert read(None, "127.0.0.1", **{"for": "203.0.113.7"})[0] is None


@pytest.mark.parametrize(
    "prefix",
    [
        "box",
        "//evil.example.org",
        "/../x",
        "/a/./b",
        "/a//b",
        "/",
        "/a?b",
        "/a b",
        '/a"><script>',
        "/" + "a" * 300,
    ],
)
def test_prefix_that_is_no_plain_path_is_not_taken(prefix: str) -> None:
    assert read("127.0.0.1", prefix=prefix)[3] == ""


@pytest.mark.parametrize("host", ["", "a b", "a/b", "a\r\nx: y", "x" * 300])
def test_host_that_is_no_name_is_not_taken(host: str) -> None:
    assert read("127.0.0.1", host=host)[2] == "inner"


def test_scheme_that_is_not_known_is_not_taken() -> None:
    assert read("127.0.0.1", proto="wss")[1] == "http"
