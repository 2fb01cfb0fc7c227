"""WebSockets over real sockets, on the event loop that a box has: messages, their bounds, and how connections end."""

import asyncio
import itertools
import socket
import struct
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvloop
from hypothesis import given
from hypothesis import strategies as st
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from appliance.api.http.websocket import FRAMES_MAX, MESSAGE_S, SILENCE_S, WRITE_BYTES_MAX, Broken, WebSocket
from tests.harness.lanes import examples

pytestmark = [pytest.mark.usefixtures("ports"), pytest.mark.anyio]

LIMIT = 1000
WAIT_S = 120.0


class Echo:
    """Says again what it hears; `grow N` lets the next message have N bytes."""

    def __init__(self, socket: WebSocket) -> None:
        self.socket = socket
        self.heard: list[bytes] = []
        self.bounds: list[Broken] = []
        self.turns = self.seconds = 0
        self.gathering: list[int] = []
        self.room = 1 << 30
        self.is_amid = False

    def text(self, message: bytes) -> None:
        self.heard.append(message)
        self.socket.message_bytes_max = int(message[5:]) if message.startswith(b"grow ") else LIMIT
        if message == b"close":
            self.socket.close(1003)
        self.socket.send_text(message)

    def binary(self, message: bytes) -> None:
        self.heard.append(message)
        self.socket.message_bytes_max = LIMIT
        self.socket.send_binary(message)

    def gathered(self, count: int) -> bool:
        self.gathering.append(count)
        return count <= self.room

    def turn_ended(self) -> None:
        self.turns += 1

    def broken(self, bound: Broken) -> None:
        self.bounds.append(bound)
        self.socket.send_text(bound.name.encode())

    def each_second(self) -> None:
        self.seconds += 1


class Handshake(asyncio.Protocol):
    """An HTTP connection that is nothing but its handshake."""

    def __init__(self, place: "Place") -> None:
        self._place = place
        self._head = b""

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._head += data
        if b"\r\n\r\n" in self._head:
            made = WebSocket(self._transport, self._head, self)
            self._place.sockets.append(made)
            if self._place.refusal:
                made.refuse(*self._place.refusal)
                return
            echo = Echo(made)
            self._place.echoes.append(echo)
            made.accept(echo, LIMIT)

    is_over = False

    def take_turn(self, work: Callable[[], None]) -> None:
        work()

    def refuse_upgrade(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        self._transport.write(f"HTTP/1.1 {status} no\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body)
        self._transport.close()

    def congested(self) -> None:
        self._place.told.append("congested")

    def drained(self) -> None:
        self._place.told.append("drained")

    def connection_lost(self, exc: Exception | None) -> None:
        self._place.lost += 1


class Place:
    """A server with the WebSockets that it has."""

    def __init__(self) -> None:
        self.sockets: list[WebSocket] = []
        self.echoes: list[Echo] = []
        self.refusal: tuple[int, dict[str, str], bytes] | None = None
        self.lost = 0
        self.told: list[str] = []
        """What connections said of callers that do not keep up."""
        self.port = 0

    @property
    def url(self) -> str:
        return f"ws://127.0.0.1:{self.port}/"


@asynccontextmanager
async def serving() -> AsyncIterator[Place]:
    place = Place()
    server = await asyncio.get_running_loop().create_server(lambda: Handshake(place), "127.0.0.1", 0)
    place.port = server.sockets[0].getsockname()[1]
    async with server:
        yield place
        for one in place.sockets:
            one.abort()


def run(story: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """On uvloop, as the box is."""

    async def bounded() -> None:
        async with asyncio.timeout(WAIT_S):
            await story()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(bounded())


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    """uvloop, as the box is on."""
    return "asyncio", {"use_uvloop": True}


@pytest.fixture
async def place() -> AsyncIterator[Place]:
    async with serving() as made:
        yield made


async def ended(client: ClientConnection) -> tuple[list[str | bytes], int | None]:
    """What still comes until the connection is closed, and the code that it is closed with."""
    messages: list[str | bytes] = []
    try:
        while True:
            messages.append(await client.recv())
    except ConnectionClosed as closed:
        return messages, None if closed.rcvd is None else closed.rcvd.code


async def test_websocket_messages_pass_both_ways(place: Place) -> None:
    """Texts, binaries, pieces, empty ones and pings, without compression."""
    async with connect(place.url) as client:
        assert client.protocol.extensions == []
        for message in ("one", b"two", b"", "drei ×"):
            await client.send(message)
            assert await client.recv() == message
        await client.send(["in ", "three ", "pieces"])
        assert await client.recv() == "in three pieces"
        await (await client.ping())
        assert place.echoes[0].bounds == []


async def test_websocket_listener_sets_the_bound_of_the_next_message(place: Place) -> None:
    """Also where both come in one piece; afterwards the old bound holds again, and is told before the end."""
    async with connect(place.url, max_size=None) as client:
        await client.send("grow 300000")
        await client.send(bytes(300_000))
        assert await client.recv() == "grow 300000"
        assert len(await client.recv()) == 300_000
        await client.send(bytes(LIMIT + 1))
        assert await ended(client) == (["TOO_LARGE"], 1009)
        assert place.echoes[0].bounds == [Broken.TOO_LARGE]


async def test_websocket_message_bound_counts_all_fragments(place: Place) -> None:
    """A bound that each piece keeps and the message does not."""
    async with connect(place.url) as client:
        await client.send([b"x" * 600, b"y" * 600])
        assert await ended(client) == (["TOO_LARGE"], 1009)
        assert place.echoes[0].heard == []


async def test_websocket_messages_behind_a_close_are_not_heard(place: Place) -> None:
    """Where they came in the same piece."""
    async with connect(place.url) as client:
        client.protocol.send_text(b"close")
        client.protocol.send_text(b"more")
        client.transport.write(b"".join(client.protocol.data_to_send()))
        assert await ended(client) == ([], 1003)
        assert place.echoes[0].heard == [b"close"]


async def test_refused_websocket_handshake_is_an_http_answer(place: Place) -> None:
    """And a request that is no handshake is refused with 400."""
    place.refusal = (404, {}, b"nothing here")
    with pytest.raises(InvalidStatus) as refused:
        await connect(place.url)
    assert refused.value.response.status_code == 404
    place.refusal = None
    reader, writer = await asyncio.open_connection("127.0.0.1", place.port)
    writer.write(b"GET / HTTP/1.1\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n")
    assert (await reader.read()).startswith(b"HTTP/1.1 400")
    writer.close()


def frame_head(length: int, opcode: int = 2, *, fin: bool = True) -> bytes:
    """Of a masked frame whose mask is zero."""
    assert length < 2**16
    return struct.pack("!BBH4s", opcode | (fin << 7), 0x80 | 126, length, bytes(4))


HANDSHAKE = (
    b"GET / HTTP/1.1\r\nhost: box\r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n"
    b"sec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
)


@asynccontextmanager
async def bare(place: Place) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A connection of which only the handshake is done."""
    reader, writer = await asyncio.open_connection("127.0.0.1", place.port)
    writer.write(HANDSHAKE)
    assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101")
    try:
        yield reader, writer
    finally:
        writer.close()


async def until(check: Callable[[], bool]) -> None:
    while not check():  # noqa: ASYNC110 - another socket works, in real time
        await asyncio.sleep(0.001)  # noqa: TID251 - the same


HALVES = {
    "half a head": b"\x82",
    "a head alone": frame_head(500),
    "half a body": frame_head(500) + bytes(100),
    "a piece of several": frame_head(5, fin=False) + b"12345",
}


@pytest.mark.parametrize("half", HALVES.values(), ids=HALVES)
async def test_websocket_message_that_stays_incomplete_ends_the_connection(place: Place, half: bytes) -> None:
    """Ten seconds after it was first seen, whatever part is missing; a whole message before does not count."""
    async with bare(place) as (reader, writer):
        socket = place.sockets[0]
        writer.write(frame_head(2) + b"ok")
        assert await reader.readexactly(4) == b"\x82\x02ok"
        socket.look(100.0)
        writer.write(half)
        await until(lambda: place.echoes[0].turns == 2)
        socket.look(101.0)
        socket.look(101.0 + MESSAGE_S - 0.1)
        assert socket.is_open
        socket.look(101.0 + MESSAGE_S)
        assert await reader.read() == b"\x81\x08TOO_SLOW\x88\x02\x03\xf0"
        assert place.echoes[0].bounds == [Broken.TOO_SLOW]


async def test_websocket_listener_that_waits_for_a_body_counts_as_incomplete(place: Place) -> None:
    """A head whose body does not come."""
    async with bare(place) as (reader, _):
        place.echoes[0].is_amid = True
        place.sockets[0].look(5.0)
        place.sockets[0].look(5.0 + MESSAGE_S)
        assert (await reader.read()).startswith(b"\x81\x08TOO_SLOW")


async def test_silent_websocket_caller_is_pinged_and_then_closed(place: Place) -> None:
    """A caller that answers the ping stays."""
    async with bare(place) as (reader, writer):
        socket, now_s = place.sockets[0], 7.0
        socket.look(now_s)
        for _ in range(3):
            now_s += SILENCE_S
            socket.look(now_s)
            assert await reader.readexactly(2) == b"\x89\x00"
            turns = place.echoes[0].turns
            writer.write(b"\x8a\x80" + bytes(4))
            await until(lambda before=turns: place.echoes[0].turns > before)  # type: ignore[misc]
            now_s += 1.0
            socket.look(now_s)
        now_s += SILENCE_S
        socket.look(now_s)
        assert await reader.readexactly(2) == b"\x89\x00"
        socket.look(now_s + SILENCE_S)
        await socket.closed.wait()
        assert place.lost == 1


async def test_websocket_caller_that_does_not_read_is_closed(place: Place) -> None:
    """After ten seconds without taking anything, and at once when too much waits."""
    async with bare(place), bare(place):
        slow, flooded = place.sockets
        piece = bytes(64 * 1024)
        while not slow.is_congested:
            slow.send_binary(piece)
        assert set(place.told) == {"congested"}
        slow.look(1.0)
        slow.look(1.0 + MESSAGE_S)
        await slow.closed.wait()
        sent = 0
        while flooded.is_open:
            flooded.send_binary(piece)
            sent += len(piece)
            assert sent < 64 * WRITE_BYTES_MAX
        await flooded.closed.wait()


EMPTY_PING = b"\x89\x80\0\0\0\0"
EMPTY_PIECE = b"\x00\x80\0\0\0\0"


async def test_websocket_message_of_any_size_is_sent_when_nothing_waits(place: Place) -> None:
    async with connect(place.url, compression=None, max_size=None) as client:
        await client.send("hello")
        assert await client.recv() == "hello"
        large = bytes(8 * WRITE_BYTES_MAX)
        place.sockets[0].send_binary(large)
        assert place.sockets[0].is_open
        assert await client.recv() == large


@pytest.mark.parametrize("tiny", [EMPTY_PING, EMPTY_PIECE])
async def test_flood_of_tiny_websocket_frames_ends_the_connection(place: Place, tiny: bytes) -> None:
    """Of many that come at once only so many are parsed; then the connection is closed with the cause."""
    async with bare(place) as (reader, writer):
        if tiny == EMPTY_PIECE:
            writer.write(frame_head(1, fin=False) + b"x")
        writer.write(tiny * (FRAMES_MAX - 1))
        await until(lambda: place.sockets[0].recent_frames >= FRAMES_MAX - 1)
        assert place.sockets[0].is_open
        place.sockets[0].look(1.0)
        writer.write(tiny * 20 * FRAMES_MAX)
        assert b"TOO_MANY\x88\x02\x03\xf0" in await reader.read()
        assert place.echoes[0].bounds == [Broken.TOO_MANY]
        assert place.sockets[0].recent_frames == FRAMES_MAX + 1


async def test_lost_websocket_connection_is_told_to_the_listener(place: Place) -> None:
    """A reset, and an end without a close."""
    async with bare(place) as (_, writer):
        raw = writer.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()
        await place.sockets[0].closed.wait()
    async with bare(place) as (_, writer):
        writer.write_eof()
        await place.sockets[1].closed.wait()
    assert place.lost == 2


MESSAGES = st.lists(
    st.tuples(st.booleans(), st.binary(max_size=300), st.lists(st.integers(1, 299), max_size=3)), min_size=1, max_size=6
)


@examples(gate=30)
@given(MESSAGES, st.lists(st.integers(1, 400), min_size=1, max_size=8))
def test_websocket_messages_cut_anywhere_are_heard_whole_and_in_order(
    messages: list[tuple[bool, bytes, list[int]]], cuts: list[int]
) -> None:
    """However messages are cut into frames, and the bytes into reads."""
    wire, expected = b"", []
    for is_text, body, places in messages:
        body = body.hex().encode()[:300] if is_text else body
        expected.append(body)
        edges = [0, *sorted({place for place in places if place < len(body)}), len(body)]
        for number, (start, end) in enumerate(itertools.pairwise(edges)):
            opcode = 0 if number else (1 if is_text else 2)
            wire += frame_head(end - start, opcode, fin=end == len(body) and number == len(edges) - 2) + body[start:end]

    async def story() -> None:
        async with serving() as place, bare(place) as (_, writer):
            at, echo = 0, place.echoes[0]
            for count in itertools.cycle(cuts):
                writer.write(wire[at : at + count])
                at += count
                if at >= len(wire):
                    break
                turns = echo.turns
                await until(lambda before=turns: echo.turns > before)  # type: ignore[misc]
            await until(lambda: len(echo.heard) == len(expected))
            assert echo.heard == expected
            assert place.sockets[0].is_open

    run(story)


@examples(gate=60)
@given(st.binary(min_size=1, max_size=400))
def test_websocket_bytes_at_random_raise_nothing(noise: bytes) -> None:
    """The listener is told, the connection closed, or more is waited for."""

    async def story() -> None:
        problems: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: problems.append(context))
        async with serving() as place, bare(place) as (reader, writer):
            writer.write(noise)
            writer.write_eof()
            await reader.read()
            await place.sockets[0].closed.wait()
        assert problems == []

    run(story)


async def test_websocket_listener_is_told_how_much_of_a_message_has_come(place: Place) -> None:
    """Whether it comes in pieces or in one frame; where there is no room for it the connection ends."""
    async with connect(place.url) as client:
        echo = await begun(place, client)
        for is_in_pieces in (True, False):
            await client.send("grow 100000")
            await client.recv()
            if is_in_pieces:
                client.transport.write(_frame(2, bytes(60_000), fin=False))
            else:
                client.transport.write(_frame(2, bytes(100_000))[:60_000])
            while echo.gathering[-1] < 60_000:  # noqa: ASYNC110
                await asyncio.sleep(0.001)  # noqa: TID251 - until the other end has read it
            if is_in_pieces:
                client.transport.write(_frame(0, bytes(40_000)))
            else:
                client.transport.write(_frame(2, bytes(100_000))[60_000:])
            assert await client.recv() == bytes(100_000)
            assert echo.gathering[-1] == 0
        echo.room = 50_000
        await client.send("grow 100000")
        await client.recv()
        client.transport.write(_frame(2, bytes(60_000), fin=False))
        assert await ended(client) == (["NO_ROOM"], 1008)


async def test_large_websocket_messages_all_reach_a_slow_reader(place: Place) -> None:
    """More than a connection keeps, at the pace of the reader."""
    size, count = WRITE_BYTES_MAX + 1, 8
    async with connect(place.url, max_size=None) as client:
        echo = await begun(place, client)

        async def send() -> None:
            for number in range(count):
                await echo.socket.drained()
                echo.socket.send_binary(bytes([number]) * size)

        sending = asyncio.create_task(send())
        await asyncio.sleep(0.05)  # noqa: TID251 - a caller that is slow
        for number in range(count):
            message = await client.recv()
            assert (message[0], len(message)) == (number, size)
        await sending


async def begun(place: Place, client: ClientConnection) -> Echo:
    """Who listens at the other end, once it does."""
    await client.send("hello")
    await client.recv()
    return place.echoes[-1]


def _frame(opcode: int, data: bytes, *, fin: bool = True) -> bytes:
    """As a client sends it, with a mask of zeros."""
    return struct.pack("!BBQI", opcode | (0x80 if fin else 0), 0xFF, len(data), 0) + data
