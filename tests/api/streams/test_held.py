"""How much of one session's pictures is in memory, however often its device connects anew."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from typing import Any, cast

import httpx
import pytest

from appliance.api.http.limits import InFlight
from appliance.api.http.websocket import WebSocket
from appliance.api.streams.stream import Stream
from appliance.api.streams.welcome import Welcome
from appliance.domain.session import DropCause
from appliance.runtime.sessions.live import LiveSession
from tests.api.stand import Stand, refusal
from tests.api.v1.joining import LATENCY, joined
from tests.fakes.waiting import until

pytestmark = pytest.mark.anyio

FRAME_BYTES = 100_000


class Socket:
    """A connection on which the box speaks; what it says is kept."""

    message_bytes_max = 0
    is_open = True
    is_congested = False

    def __init__(self) -> None:
        self.said: list[dict[str, Any]] = []
        self.closed = asyncio.Event()

    def send_text(self, message: bytes) -> None:
        self.said.append(json.loads(message))

    def close(self, code: int, reason: str = "") -> None:
        self.is_open = False
        self.closed.set()


def _stream(
    stand: Stand, live: LiveSession, in_flight: InFlight, frame_bytes_max: int = FRAME_BYTES
) -> tuple[Stream, Socket]:
    box, socket = stand.appliance.running(), Socket()
    stream = Stream(
        stand.appliance.clock,
        box.sessions,
        live,
        cast(WebSocket, socket),
        in_flight=in_flight,
        wall=box.wall,
        frame_bytes_max=frame_bytes_max,
        accept="",
        welcome=cast(Welcome, None),  # nobody asks within a second
        present=lambda: stream,
    )
    return stream, socket


def _announce(stream: Stream, number: int, count: int) -> None:
    stream.text(json.dumps({"type": "frame", "frame": number, "captured_ms": 1.0, "bytes": count}).encode())


def _send(stream: Stream, numbers: Sequence[int], count: int = FRAME_BYTES) -> None:
    for number in numbers:
        _announce(stream, number, count)
        stream.binary(bytes(count))
        stream.turn_ended()


def held_up(live: LiveSession, monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Frames of the session are answered once this is set."""
    answers = asyncio.Event()

    async def predict(*_: object) -> bytes:
        await answers.wait()
        return b"{}"

    monkeypatch.setattr(live, "predict", predict)
    return answers


async def test_frames_of_an_earlier_connection_count_against_the_session(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two frames of the largest size wait for their answers, and the connection breaks. On the next connection there is
    room for no frame until one of the two is answered, on whichever connection that is.
    """
    live = await joined(stand, LATENCY)
    answers = held_up(live, monkeypatch)
    in_flight = InFlight(100 * FRAME_BYTES)
    first, one = _stream(stand, live, in_flight)
    _send(first, (0, 1))
    assert [said["type"] for said in one.said] == ["ack", "ack"]
    second, other = _stream(stand, live, in_flight)
    _send(second, (2,))
    assert [(said["outcome"], said["cause"]) for said in other.said] == [("dropped", "limit")]
    assert in_flight.bytes == 2 * FRAME_BYTES
    answers.set()
    await until(lambda: in_flight.bytes == 0)
    third, last = _stream(stand, live, in_flight)
    _send(third, (3,))
    assert [said["type"] for said in last.said] == ["ack"]
    await until(lambda: in_flight.bytes == 0)


async def test_posted_frames_of_a_session_are_two_at_most(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the largest size, repeats counted. A third frame is refused before its body is read, and counted like a frame
    beyond the credit of a stream; a repeat that finds no room is refused as well, but counted nowhere, and has its
    answer later. Pictures that came on a stream count with the posted frames.
    """
    live = await joined(stand, LATENCY)
    answers = held_up(live, monkeypatch)
    box, device = stand.appliance.running(), stand.client("device")
    largest = bytes(box.frame_bytes_max)

    async def post(
        number: int, content: bytes = largest, path: str = f"/v1/sessions/{live.id}/frames"
    ) -> httpx.Response:
        headers = {"X-Frame": str(number), "X-Session": live.id}
        return await device.post(path, content=content, headers=headers)

    waiting = [asyncio.create_task(post(number)) for number in (0, 1)]
    await until(lambda: min(live.holding.bytes, box.in_flight.bytes) >= 2 * len(largest))
    for number, path in ((2, f"/v1/sessions/{live.id}/frames"), (3, "/v1/applications/digits/predict")):
        assert refusal(await post(number, b"x", path)) == (429, "credit-exceeded")
    assert (await post(0)).status_code == 429
    assert live.counts.drops == {DropCause.CREDIT: 2}
    stream, socket = _stream(stand, live, box.in_flight)
    _send(stream, (4,))
    assert [said["type"] for said in socket.said] == ["result"]
    answers.set()
    assert [(await one).status_code for one in waiting] == [200, 200]
    assert live.holding.bytes == 0
    assert (await post(0)).content == b"{}"
    assert (await post(5, b"x")).status_code == 200
    assert (await post(6, largest + b"x", "/v1/applications/digits/predict")).status_code == 413
    assert (live.counts.answered, live.counts.under_way) == (3, 0)


async def test_announced_frame_counts_as_held_before_its_picture_has_come(stand: Stand) -> None:
    """Beside the announced picture one frame of the largest size may be posted, and no second one, until the picture
    does not come after all. A picture whose frame was dropped counts as it comes, and where there is no room for it the
    connection is closed.
    """
    live = await joined(stand, LATENCY)
    box = stand.appliance.running()
    largest = box.frame_bytes_max
    stream, socket = _stream(stand, live, InFlight(100 * largest), largest)
    _announce(stream, 0, largest)
    with live.holding.posted(largest):
        assert live.holding.bytes == 2 * largest
        refused = await stand.client("device").post(
            f"/v1/sessions/{live.id}/frames", content=b"x", headers={"X-Frame": "1"}
        )
        assert refused.status_code == 429
        assert stream.gathered(largest - 1)
        assert live.holding.bytes == 2 * largest
        assert stream.gathered(0)
        with live.holding.posted(largest):
            _announce(stream, 2, largest)
            assert [(said["outcome"], said["cause"]) for said in socket.said] == [("dropped", "limit")]
            assert live.holding.bytes == 2 * largest
            assert not stream.gathered(largest // 2)
            socket.close(1000)
            await stream.run(None)
    assert live.holding.bytes == 0
    assert (live.counts.lost, live.counts.drops) == (1, {DropCause.CREDIT: 1, DropCause.LIMIT: 1})


async def test_announced_frame_is_lost_when_its_stream_closes(stand: Stand) -> None:
    """Its picture can come no more, and the frame is no longer under way."""
    live = await joined(stand, LATENCY)
    stream, socket = _stream(stand, live, InFlight(FRAME_BYTES))
    _announce(stream, 0, FRAME_BYTES)
    assert (live.counts.under_way, live.holding.bytes) == (1, FRAME_BYTES)
    socket.close(1000)
    await stream.run(None)
    assert (live.counts.lost, live.counts.under_way, live.holding.bytes) == (1, 0, 0)


async def test_chunked_tensors_of_a_frame_count_as_the_largest_frame(stand: Stand) -> None:
    """A chunked body may become as large as any; what is counted for it is given back, whatever comes of it."""
    live = await joined(stand, LATENCY)
    box, device = stand.appliance.running(), stand.client("device")
    counted: list[int] = []

    async def chunks() -> AsyncIterator[bytes]:
        counted.append(live.holding.bytes)
        yield b'{"inputs": []}'

    for number in range(3):
        headers = {"X-Frame": str(number), "X-Session": live.id}
        assert (await device.post("/v2/models/digits/infer", content=chunks(), headers=headers)).status_code == 400
    assert counted == [box.frame_bytes_max] * 3
    assert live.holding.bytes == 0
