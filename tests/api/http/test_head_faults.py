"""Heads that HTTP does not allow are refused with a problem, and the connection ends."""

import json

import pytest

from tests.api.http.exchanges import connect, head
from tests.api.http.receiving import Application
from tests.fakes.clock import settle, story

POST, GET = "POST /v2/models/m/infer", "GET /v2/health/live"
HOST, CHUNKED, BODY = "host: box", "transfer-encoding: chunked", "1\r\nx\r\n0\r\n\r\n"
REFUSED = {
    "expectation of something else": ([f"{GET} HTTP/1.1", HOST, "expect: 200-maybe"], 417, "expectation-failed"),
    "no host": ([f"{GET} HTTP/1.1"], 400, "bad-request"),
    "two hosts": ([f"{GET} HTTP/1.1", HOST, HOST], 400, "bad-request"),
    "two hosts over HTTP/1.0": ([f"{GET} HTTP/1.0", HOST, HOST], 400, "bad-request"),
    "no version": ([GET], 400, "bad-request"),
    "version 0.9": ([f"{GET} HTTP/0.9", HOST], 400, "bad-request"),
    "version 2.0": ([f"{GET} HTTP/2.0", HOST], 400, "bad-request"),
    "no HTTP": (["\x16\x03\x01"], 400, "bad-request"),
    "packed pieces": ([f"{POST} HTTP/1.1", HOST, "transfer-encoding: gzip, chunked"], 501, "not-implemented"),
    "packed pieces, in two": ([f"{POST} HTTP/1.1", HOST, "transfer-encoding: gzip", CHUNKED], 501, "not-implemented"),
}
ANSWERED = {
    "no host over HTTP/1.0": [f"{GET} HTTP/1.0"],
    "expectation over HTTP/1.0": [f"{GET} HTTP/1.0", "expect: 200-maybe"],
    "pieces in other letters": [f"{POST} HTTP/1.1", HOST, "transfer-encoding: Chunked"],
}


def raw(lines: list[str]) -> bytes:
    text = "\r\n".join([*lines, "", ""])
    return (text + BODY if "chunked" in text.lower() else text).encode("latin-1")


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("is_next", [False, True], ids=["first", "next"])
@story
async def test_request_with_a_head_that_http_forbids_is_refused(name: str, is_next: bool) -> None:
    lines, status, slug = REFUSED[name]
    protocol, transport = connect(Application())
    if is_next:
        protocol.data_received(head(0))
        await settle()
        transport.written.clear()
    protocol.data_received(raw(lines))
    await settle()
    (answer,) = transport.written
    start, _, body = answer.partition(b"\r\n\r\n")
    assert start.startswith(b"HTTP/1.1 %d " % status)
    assert answer.count(b"HTTP/1.1 ") == 1
    assert b"connection: close" in start
    assert json.loads(body)["type"] == f"/problems/{slug}"
    assert transport.is_half_closed


@pytest.mark.parametrize("name", ANSWERED)
@story
async def test_request_with_an_unusual_head_that_http_allows_is_answered(name: str) -> None:
    protocol, transport = connect(Application())
    protocol.data_received(raw(ANSWERED[name]))
    await settle()
    assert transport.written[-1].startswith(b"HTTP/1.1 200 ")
