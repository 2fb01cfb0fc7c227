"""The same head again needs no parser, whatever stands behind it; any other head has one."""

from typing import Any

import pytest

from appliance.api.http.known_head import KNOWN_BYTES_MAX, KnownHead, head_of
from tests.api.http.exchanges import connect, head
from tests.api.http.receiving import Application, received, sent
from tests.fakes.clock import settle, story


class _NoParser:
    """A parser that may not be asked."""

    def should_upgrade(self) -> bool:
        return False


@pytest.mark.parametrize("how", ["read", "refuse"])
@pytest.mark.parametrize("size", [5, 100_000])
@story
async def test_parser_is_skipped_for_a_repeated_head(size: int, how: str) -> None:
    """Not even a body reaches the parser; a request with another head afterwards is parsed again."""
    protocol, transport = connect(Application())
    for _ in range(3):  # the first one makes the caller known
        await received(transport, protocol, sent(size, how, 1), (300, [300_000]))
    parser, protocol.parser = protocol.parser, _NoParser()  # type: ignore[assignment]
    for number in (7, 8):
        protocol.data_received(sent(size, how, number))
        await settle()
    protocol.parser = parser
    protocol.data_received(sent(4, "read", 9))
    await settle()
    last = [b"refused"] * 2 if how == "refuse" else [b"%d 7" % size, b"%d 8" % size]
    assert [answer.rpartition(b"\r\n")[2] for answer in transport.written[-3:]] == [*last, b"4 9"]


@pytest.mark.parametrize("ahead", ["3", "99999999", "x", "-1", "20000"])
@story
async def test_known_head_with_odd_json_length_hands_over_the_whole_body(ahead: str) -> None:
    protocol, transport = connect(Application())
    request = head(20_000, f"inference-header-content-length: {ahead}") + bytes(20_000)
    for _ in range(4):
        protocol.data_received(request)
        await settle()
    assert [answer.rpartition(b"\r\n")[2] for answer in transport.written] == [b"20000 0"] * 4


@story
async def test_request_behind_a_refused_request_in_a_packet_has_its_own_head() -> None:
    """Also when the first head comes again later."""
    protocol, transport = connect(Application())
    two = sent(20_000, "refuse", 1) + sent(30_000, "read", 2)
    for _ in range(4):
        protocol.data_received(two)
        await settle()
    answers = [answer.rpartition(b"\r\n")[2] for answer in transport.written]
    assert answers == [b"refused", b"30000 2"] * 4


@pytest.mark.parametrize("size", [9_000, 30_000])
@pytest.mark.parametrize("more", ["x-a: 1", "x-a: 22"])
@story
async def test_request_begun_in_the_packet_of_another_keeps_its_own_head(size: int, more: str) -> None:
    """A known head, and behind its body the beginning of a longer request: later requests with the known head have the
    body and scope of that head.
    """
    protocol, transport = connect(Application())
    known = head(5, "x-a: 1") + bytes(5)
    longer = head(size, more) + bytes(size)
    for data in (known, known, known + longer[:-3_000], longer[-3_000:], known * 150, known, known):
        protocol.data_received(data)
        await settle()
    answers = [answer.rpartition(b"\r\n")[2] for answer in transport.written]
    assert answers == [b"5 0"] * 3 + [b"%d 0" % size] + [b"5 0"] * 152


def _known(raw: bytes, headers: list[tuple[bytes, bytes]], target: bytes = b"/v2/", query: bytes = b"") -> KnownHead:
    scope: dict[str, Any] = {"type": "http", "raw_path": target, "query_string": query, "headers": headers}
    return KnownHead(raw, {**scope, "appliance.exchange": object()})


SIZE, AHEAD = b"content-length", b"inference-header-content-length"
LENGTH = [(SIZE, b"5")]


@pytest.mark.parametrize(
    ("raw", "headers"),
    [
        (b"POST /v2/ HTTP/1.1\r\n\r\n", []),
        (b"POST /v2/ HTTP/1.1\r\ncontent-length: x\r\n\r\n", [(b"content-length", b"x")]),
        (b"POST /v2/ HTTP/1.1\r\ncontent-length: 99\r\n\r\n", [(b"content-length", b"99")]),
        (b"POST /v2/ HTTP/1.1\ncontent-length: 5\r\n\r\n", LENGTH),
        (b"POST /v2/ HTTP/1.1\r\ncontent-length: 5\n\nabc\r\n\r\n", LENGTH),
        (b"POST /v2/ HTTP/1.1\r\ncontent-length: 5\r\n more\r\n\r\n", LENGTH),
        *(
            (b"POST /v2/ HTTP/1.1\r\n%b: 5\r\n%b: %b\r\n\r\n" % (SIZE, AHEAD, n), [*LENGTH, (AHEAD, n)])
            for n in (b"6", b"x")
        ),
        (b"POST /v2/ HTTP/1.1\r\ncontent-length: 5\r\nexpect: 100-continue\r\n\r\n", [*LENGTH, (b"expect", b"")]),
        (b"POST /v2/ HTTP/1.1\r\ncontent-length: 5\r\nupgrade: h2c\r\n\r\n", [*LENGTH, (b"upgrade", b"h2c")]),
        (b"POST /v2/ HTTP/1.0\r\ncontent-length: 5\r\n\r\n", LENGTH),
        (b"POST /v2/ HTTP/1.1\r\ncontent-length: 4\r\n\r\n", LENGTH),
        (b"POST /v2/ HTTP/1.1\r\ncontent-type: 5\r\n\r\n", LENGTH),
        (b"POST /v2/? HTTP/1.1\r\ncontent-length: 5\r\n\r\n", LENGTH),
        (b"POST /v2/a HTTP/1.1\r\ncontent-length: 5\r\n\r\n", LENGTH),
    ],
)
def test_heads_that_the_parser_must_read_are_not_repeatable(raw: bytes, headers: list[tuple[bytes, bytes]]) -> None:
    """No body of a known length, a large one, line ends that the parser may read in another way, a question first, or
    a scope that is another head's.
    """
    assert not _known(raw, headers).is_repeatable(10)


def test_plain_head_is_known_by_its_body_size_and_scope() -> None:
    """The scope that is kept has nothing of one request."""
    raw = b"POST /v2/a?b=c HTTP/1.1\r\nContent-Length: \t 5 \r\n\r\n"
    known = _known(raw, LENGTH, b"/v2/a", b"b=c")
    assert known.is_repeatable(5)
    assert (known.size, known.length, known.headers) == (5, len(raw), dict(LENGTH))
    assert "appliance.exchange" not in known.scope
    assert known.begins(raw + b"abc")
    assert not known.begins(raw[:-1])


@pytest.mark.parametrize(
    "data", [b"", b"\r\n\r\nPOST /v2/", b"GET /v2/ HTTP/1.1\r\n\r\n", b"POST /v1/x HTTP/1.1\r\n\r\n"]
)
def test_known_head_is_looked_for_in_short_heads_of_v2_only(data: bytes) -> None:
    """And from the first byte of a request on."""
    assert head_of(data) == b""
    assert head_of(b"POST /v2/" + bytes(KNOWN_BYTES_MAX) + b"\r\n\r\n") == b""
