"""Bodies that are refused, sent by the client of Python's own library, which sends all of a body before it reads the
answer.
"""

import http.client
import json
from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.e2e.server import Server

pytestmark = pytest.mark.usefixtures("processes", "ports")
MB = 10**6
BODY_BYTES = 100 * MB
"""More than any of these routes takes."""
ROUTES = {
    "/v1/applications/adding/predict": 413,
    "/v1/applications/nothing/predict": 404,
    "/v1/tenants": 413,
    "/v2/models/adding/infer": 413,
    "/v2/models/nothing/infer": 404,
}
FRAMINGS = ("length", "chunked", "expect")


def pieces() -> Iterator[bytes]:
    """A body in a hundred parts."""
    for _ in range(BODY_BYTES // MB):
        yield bytes(MB)


def asked(server: Server, path: str, framing: str, key: str | None) -> tuple[http.client.HTTPResponse, dict[str, str]]:
    """The answer to 100 MB, and what it says in JSON."""
    headers = {"Content-Type": "application/json"}
    if key is not None:
        headers["Authorization"] = f"Bearer {key}"
    if framing == "expect":
        headers["Expect"] = "100-continue"
    with closing(http.client.HTTPConnection(server.url.removeprefix("http://"), timeout=120)) as connection:
        if framing == "chunked":
            connection.request("POST", path, pieces(), headers, encode_chunked=True)
        else:
            connection.request("POST", path, bytes(BODY_BYTES), headers)
        answer = connection.getresponse()
        return answer, json.loads(answer.read())


@pytest.mark.parametrize("path", ROUTES)
@pytest.mark.parametrize("framing", FRAMINGS)
def test_refused_large_body_is_answered_with_a_reason_and_close(
    furnished_server: Server, path: str, framing: str
) -> None:
    """Whatever the route and the framing."""
    answer, told = asked(furnished_server, path, framing, furnished_server.admin_key)
    assert (answer.status, answer.getheader("connection")) == (ROUTES[path], "close")
    assert told.get("detail") or told["error"]


@pytest.mark.parametrize("path", ["/v1/uploads", "/v2/models/adding/infer"])
@pytest.mark.parametrize("framing", ["length", "chunked"])
def test_large_body_with_a_wrong_key_is_answered_401(furnished_server: Server, path: str, framing: str) -> None:
    answer, _ = asked(furnished_server, path, framing, "ea_wrong")
    assert (answer.status, answer.getheader("connection")) == (401, "close")


@pytest.mark.parametrize("path", ["/v1/applications/nothing/predict", "/v2/models/nothing/infer"])
def test_refused_body_of_known_length_keeps_the_connection_open(furnished_server: Server, path: str) -> None:
    """Where the body is not too large to be dropped: the next request comes behind it."""
    headers = {"Authorization": f"Bearer {furnished_server.admin_key}"}
    with closing(http.client.HTTPConnection(furnished_server.url.removeprefix("http://"), timeout=120)) as connection:
        for _ in range(3):
            connection.request("POST", path, bytes(20 * MB), headers)
            answer = connection.getresponse()
            assert (answer.status, answer.getheader("connection")) == (404, None)
            answer.read()
            assert connection.sock is not None
