"""How much of one session's pictures is in memory, however often its device connects anew."""

import asyncio
import json
from collections.abc import Sequence
from typing import Any, cast

import pytest

from appliance.api.http.limits import InFlight
from appliance.api.http.websocket import WebSocket
from appliance.api.streams.stream import Stream
from appliance.api.streams.welcome import Welcome
from tests.api.stand import Stand
from tests.api.v1.test_sessions import LATENCY, joined

pytestmark = pytest.mark.anyio

FRAME_BYTES = 100_000


class Socket:
    """A connection on which the box speaks; what it says is kept."""

    message_bytes_max = 0
    is_open = True
    is_congested = False

    def __init__(self) -> None:
        self.said: list[dict[str, Any]] = []

    def send_text(self, message: bytes) -> None:
        self.said.append(json.loads(message))

    def close(self, code: int, reason: str = "") -> None:
        self.is_open = False


def _stream(stand: Stand, live: Any, in_flight: InFlight, before: Stream | None = None) -> tuple[Stream, Socket]:
    box, socket = stand.appliance.running(), Socket()
    stream = Stream(
        stand.appliance.clock,
        box.sessions,
        live,
        cast(WebSocket, socket),
        in_flight=in_flight,
        frame_bytes_max=FRAME_BYTES,
        accept="",
        welcome=cast(Welcome, None),  # nobody asks within a second
        present=lambda: stream,
        before=before,
    )
    return stream, socket


def _send(stream: Stream, numbers: Sequence[int]) -> None:
    for number in numbers:
        head = {"type": "frame", "frame": number, "captured_ms": 1.0, "bytes": FRAME_BYTES}
        stream.text(json.dumps(head).encode())
        stream.binary(bytes(FRAME_BYTES))
        stream.turn_ended()


async def test_frames_of_earlier_connections_count(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two of the largest wait for their answers, and the line breaks. On the next one there is room for none until one
    of them is answered, on whichever line that is."""
    live = await joined(stand, LATENCY)
    answers = asyncio.Event()

    async def predict(*_: object) -> bytes:
        await answers.wait()
        return b"{}"

    monkeypatch.setattr(live, "predict", predict)
    in_flight = InFlight(100 * FRAME_BYTES)
    first, one = _stream(stand, live, in_flight)
    _send(first, (0, 1))
    assert [said["type"] for said in one.said] == ["ack", "ack"]
    second, other = _stream(stand, live, in_flight, first)
    _send(second, (2,))
    assert [(said["outcome"], said["cause"]) for said in other.said] == [("dropped", "limit")]
    assert in_flight.bytes == 2 * FRAME_BYTES
    answers.set()
    await asyncio.gather(*first._answering)
    third, last = _stream(stand, live, in_flight, second)
    _send(third, (3,))
    assert [said["type"] for said in last.said] == ["ack"]
    await asyncio.gather(*third._answering)
    assert in_flight.bytes == 0
