"""The exchange over uvicorn's own protocol: the body as it was gathered, the answer in one write."""

from typing import Any

import numpy as np
import pytest

from appliance.api.auth.callers import CONNECTION
from appliance.api.http.bounded_protocol import BODY_WATER_BYTES
from appliance.api.http.exchange import EXCHANGE, AlignedBody, HttpExchange
from appliance.api.http.unread import Unread
from tests.api.http.exchanges import connect, head
from tests.fakes.clock import settle, story

OK = [(b"content-length", b"2")]


class Seen:
    """An application that takes the body and answers `ok`."""

    def __init__(self, tenant: str | None = None) -> None:
        self.messages: list[dict[str, Any]] = []
        self._tenant = tenant

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        exchange: HttpExchange = scope.pop(EXCHANGE)
        if self._tenant is not None:
            scope[CONNECTION].known(self._tenant)
        message = await exchange.receive()
        self.messages.append(message)
        if message["type"] == "http.request":
            assert exchange.answer(200, OK, b"ok")


@pytest.mark.parametrize("ahead", [1, 63, 64, 131])
@story
async def test_large_body_in_pieces_arrives_whole_with_aligned_tensors(ahead: int) -> None:
    """The tensors behind the JSON begin at a multiple of 64."""
    seen = Seen(tenant="harbour")
    protocol, transport = connect(seen)
    body = np.random.default_rng(0).bytes(200_000)
    protocol.data_received(head(len(body), f"inference-header-content-length: {ahead}") + body[:1000])
    await settle()
    for at in range(1000, len(body), 65536):
        protocol.data_received(body[at : at + 65536])
        await settle()
    (message,) = seen.messages
    assert isinstance(message["body"], memoryview)
    assert (bytes(message["body"]), message["more_body"]) == (body, False)
    assert np.frombuffer(message["body"], np.uint8, offset=ahead).ctypes.data % 64 == 0
    assert transport.written == [b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"]


@pytest.mark.parametrize("size", [0, 5, BODY_WATER_BYTES + 1])
@pytest.mark.parametrize("ahead", ["3", "99999999", "x", "-1", "²"])
@story
async def test_body_of_any_size_or_odd_json_length_arrives_whole(size: int, ahead: str) -> None:
    seen = Seen()
    protocol, transport = connect(seen)
    protocol.data_received(head(size, f"inference-header-content-length: {ahead}") + bytes(size))
    await settle()
    assert [bytes(m["body"]) for m in seen.messages] == [bytes(size)]
    assert transport.written[-1].endswith(b"\r\n\r\nok")


@story
async def test_requests_of_one_connection_have_their_own_bodies_and_answers() -> None:
    """Also where several come in one packet."""
    seen = Seen()
    protocol, transport = connect(seen)
    protocol.data_received(head(1) + b"a" + head(1) + b"b")
    await settle()
    protocol.data_received(head(1) + b"c")
    await settle()
    assert [bytes(m["body"]) for m in seen.messages] == [b"a", b"b", b"c"]
    assert b"".join(transport.written).count(b"200 OK") == 3


@story
async def test_request_of_a_lost_connection_is_not_begun() -> None:
    """The connection ends inside the body, and nothing is written to the connection."""
    for size in (5_000, 50_000):
        seen = Seen()
        protocol, transport = connect(seen)
        protocol.data_received(head(size, "inference-header-content-length: 9") + bytes(100))
        await settle()
        protocol.connection_lost(None)
        await settle()
        assert seen.messages == []
    assert transport.written == []


@story
async def test_body_of_a_refused_request_is_not_kept_in_memory() -> None:
    """Not on a connection that may be idle for long: neither what came before the answer nor what comes after it."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        assert scope.pop(EXCHANGE).answer(429, OK, b"no")

    protocol, transport = connect(app)
    protocol.data_received(head(500_000, "inference-header-content-length: 9") + bytes(200_000))
    await settle()
    protocol.data_received(bytes(300_000))
    assert transport.written == [b"HTTP/1.1 429 Too Many Requests\r\ncontent-length: 2\r\n\r\nno"]
    assert len(protocol.cycle.body) == 0


@story
async def test_request_with_connection_close_closes_after_the_answer() -> None:
    """A body that waits for `100 Continue` gets it first."""
    seen = Seen()
    protocol, transport = connect(seen)
    protocol.data_received(head(1, "connection: close", "expect: 100-continue"))
    await settle()
    assert transport.written == [b"HTTP/1.1 100 Continue\r\n\r\n"]
    protocol.data_received(b"a")
    await settle()
    assert transport.written[1:] == [b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok"]
    assert transport.is_closed
    assert bytes(seen.messages[0]["body"]) == b"a"


@story
async def test_connection_with_unsent_bytes_is_not_idle() -> None:
    """Little is left, so nothing waits; but to give way at once would cut the answer off."""
    protocol, transport = connect(Seen(tenant="harbour"))
    unsent_bytes = 1000
    transport.get_write_buffer_size = lambda: unsent_bytes  # type: ignore[method-assign]
    protocol.data_received(head(0))
    await settle()
    assert not protocol.is_idle
    unsent_bytes = 0
    assert protocol.is_idle


@story
async def test_congested_connection_answers_by_send_only() -> None:
    """The exchange refuses to write, and the application uses `send`, which waits."""
    answers: list[bool] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        exchange: HttpExchange = scope.pop(EXCHANGE)
        await exchange.receive()
        answers.append(exchange.answer(200, OK, b"ok"))
        await send({"type": "http.response.start", "status": 200, "headers": OK})
        await send({"type": "http.response.body", "body": b"ok"})

    protocol, transport = connect(app)
    protocol.pause_writing()
    protocol.data_received(head(0))
    await settle()
    assert (answers, transport.written) == ([False], [])
    protocol.resume_writing()
    await settle()
    assert b"".join(transport.written).endswith(b"ok")


@story
async def test_exchange_is_given_to_v2_routes_only() -> None:
    """Other routes get plain ASGI: their scope would keep the exchange, and the exchange their scope."""
    scopes: list[dict[str, Any]] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        scopes.append(scope)

    protocol, _ = connect(app)
    protocol.data_received(head(0, path="/v1/models"))
    await settle()
    assert EXCHANGE not in scopes[0]


def test_aligned_body_works_as_a_bytearray_for_uvicorn() -> None:
    """Add, measure, copy."""
    body = AlignedBody(5, 2)
    body += b"abc"
    assert (len(body), bytes(body)) == (3, b"abc")
    body += b"de"
    assert (len(body), bytes(body.view())) == (5, b"abcde")


def test_memory_of_a_body_is_reused_after_its_last_view_is_gone() -> None:
    """Whoever holds the view; a body that was refused unread took none."""

    def place(body: AlignedBody) -> int:
        return int(np.frombuffer(body.missing, np.uint8).ctypes.data)

    body = AlignedBody(700_001, 3)
    first = place(body)
    body.filled(700_001)
    tensor = np.frombuffer(body.view(), np.uint8, offset=3)[5:]
    del body
    second = AlignedBody(700_001, 3)
    assert place(second) != first
    assert len(tensor) == 700_001 - 8
    del tensor
    assert place(AlignedBody(700_001, 3)) == first
    assert AlignedBody(1 << 60, 0).size == 1 << 60


@story
async def test_connection_that_does_not_read_is_closed_when_too_much_is_unread() -> None:
    """A connection that has read in between, or has gone, counts no more."""
    unread = Unread(100)
    (reads, at), (slow, waits), (gone, its), (new, _) = (connect(Seen(), unread) for _ in range(4))
    for protocol, transport in ((reads, at), (gone, its), (slow, waits)):
        transport.unread_bytes = 90
        protocol.pause_writing()
        if protocol is reads:
            protocol.resume_writing()
        if protocol is gone:
            protocol.connection_lost(None)
    new.pause_writing()
    assert (at.is_closed, waits.is_closed, len(unread)) == (False, False, 2)
    waits.unread_bytes = 101
    reads.pause_writing()
    assert (at.is_closed, waits.is_closed, len(unread)) == (False, True, 2)


@story
async def test_answer_that_waits_for_the_one_before_it_is_counted_as_unread() -> None:
    """The caller has not read the first answer: the second is made, and cannot be written."""

    async def answers(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"50")]})
        await send({"type": "http.response.body", "body": bytes(50)})

    unread = Unread(100)
    (slow, transport), (new, _) = connect(answers, unread), connect(Seen(), unread)
    slow.data_received(head(0, path="/v1/models"))
    await settle()
    transport.unread_bytes = 60
    slow.pause_writing()
    slow.data_received(head(0, path="/v1/models"))
    await settle()
    assert unread.bytes == 60 + 50
    new.pause_writing()
    assert transport.is_closed
    await settle()
    assert slow.unread_bytes == 60


@story
async def test_bytes_of_a_body_that_breaks_off_are_received_before_the_disconnect() -> None:
    """However few they are: an upload goes on behind them."""
    seen = list[Any]()

    async def takes(scope: Any, receive: Any, send: Any) -> None:
        while not seen or seen[-1]["type"] != "http.disconnect":
            seen.append(await receive())

    protocol, _ = connect(takes)
    protocol.data_received(head(100, path="/v1/uploads/u") + bytes(30))
    await settle()
    protocol.data_received(bytes(20))
    protocol.connection_lost(None)
    await settle()
    *pieces, end = seen
    assert b"".join(piece["body"] for piece in pieces) == bytes(50)
    assert all(piece["more_body"] for piece in pieces)
    assert end == {"type": "http.disconnect"}
