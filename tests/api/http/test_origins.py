"""Which pages of other origins may read answers."""

from typing import Any

import pytest

from appliance.api.http.origins import Origins


def scope(method: str, **headers: str) -> dict[str, Any]:
    fields = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return {"method": method, "headers": [(b"host", b"inner"), *fields]}


def test_pages_of_named_origins_may_read_answers() -> None:
    origins = Origins(["https://App.example.org/"])
    headers = dict(origins.headers(scope("GET", origin="https://app.example.org")))
    assert headers[b"access-control-allow-origin"] == b"https://app.example.org"
    assert headers[b"vary"] == b"Origin"
    assert b"access-control-allow-credentials" not in headers


@pytest.mark.parametrize("origin", ["https://app.example.org.evil.org", "http://app.example.org", "null", ""])
def test_pages_of_other_origins_may_not_read_answers(origin: str) -> None:
    origins = Origins(["https://app.example.org"])
    assert origins.headers(scope("GET", origin=origin)) == []
    asked = scope("OPTIONS", origin=origin, access_control_request_method="POST")
    assert origins.preflight(asked) is None


def test_star_lets_pages_of_every_origin_read_answers_without_cookie() -> None:
    headers = dict(Origins(["*"]).headers(scope("GET", origin="https://any.example")))
    assert headers[b"access-control-allow-origin"] == b"*"
    assert b"access-control-allow-credentials" not in headers


def test_only_options_with_a_requested_method_is_answered_as_a_preflight() -> None:
    origins = Origins(["*"])
    asked = {"origin": "https://any.example", "access_control_request_method": "POST"}
    assert origins.preflight(scope("OPTIONS", **asked)) is not None
    assert origins.preflight(scope("OPTIONS", origin="https://any.example")) is None
    assert origins.preflight(scope("POST", **asked)) is None
