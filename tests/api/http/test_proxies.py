"""Which requests a reverse proxy speaks for, and which pages of other origins may read answers."""

from typing import Any

import pytest

from appliance.api.http.proxies import PREFIX, Origins, Proxies

NAMED = ("127.0.0.1", "10.0.0.0/8", "::1")


def scope(client: str | None, method: str = "GET", **headers: str) -> dict[str, Any]:
    fields = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    address = None if client is None else (client, 4711)
    return {"client": address, "scheme": "http", "method": method, "headers": [(b"host", b"inner"), *fields]}


def read(client: str | None, *named: str, **said: str) -> tuple[Any, ...]:
    """The address, scheme, host and prefix that the box sees."""
    made = scope(client, **{f"x_forwarded_{name}": value for name, value in said.items()})
    Proxies(named or NAMED).read(made)
    host = dict(made["headers"])[b"host"].decode()
    return made["client"] and made["client"][0], made["scheme"], host, made.get(PREFIX, "")


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
        ("10.1.1.1", "127.0.0.1"),
        ("", "127.0.0.1"),
        ("unknown", "127.0.0.1"),
        ("203.0.113.7, unknown", "127.0.0.1"),
    ],
)
def test_forwarded_address_is_the_last_that_is_no_named_proxy(chain: str, caller: str) -> None:
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


def test_origins_that_are_named_may_read_answers() -> None:
    origins = Origins(["https://App.example.org/"])
    headers = dict(origins.headers(scope("192.0.2.1", origin="https://app.example.org")))
    assert headers[b"access-control-allow-origin"] == b"https://app.example.org"
    assert headers[b"vary"] == b"Origin"
    assert b"access-control-allow-credentials" not in headers


@pytest.mark.parametrize("origin", ["https://app.example.org.evil.org", "http://app.example.org", "null", ""])
def test_other_origins_may_not(origin: str) -> None:
    origins = Origins(["https://app.example.org"])
    assert origins.headers(scope("192.0.2.1", origin=origin)) == []
    asked = scope("192.0.2.1", "OPTIONS", origin=origin, access_control_request_method="POST")
    assert origins.preflight(asked) is None


def test_star_allows_every_origin_and_no_cookie() -> None:
    headers = dict(Origins(["*"]).headers(scope("192.0.2.1", origin="https://any.example")))
    assert headers[b"access-control-allow-origin"] == b"*"
    assert b"access-control-allow-credentials" not in headers


def test_preflight_is_only_the_question_of_a_browser() -> None:
    origins = Origins(["*"])
    asked = {"origin": "https://any.example", "access_control_request_method": "POST"}
    assert origins.preflight(scope("192.0.2.1", "OPTIONS", **asked)) is not None
    assert origins.preflight(scope("192.0.2.1", "OPTIONS", origin="https://any.example")) is None
    assert origins.preflight(scope("192.0.2.1", "POST", **asked)) is None
