"""A device as plain as the page on streams allows: written against the messages, without the SDK."""

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator
from typing import Any

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from appliance.wire.stream import BoxMessage, read_box_message

PATIENCE_S = 120.0
PATIENT: dict[str, Any] = {"open_timeout": PATIENCE_S, "ping_interval": None}
"""How a connection is opened that a busy box may leave alone for long."""
AHEAD_MS = 5_000_000.0
"""Its clock is not the box's."""


class Device:
    """One open stream."""

    def __init__(self, socket: ClientConnection, session: str) -> None:
        self.socket = socket
        self.session = session
        self.heard: list[BoxMessage] = []

    def now_ms(self) -> float:
        return time.monotonic() * 1000.0 + AHEAD_MS  # noqa: TID251 - the device's own clock

    async def say(self, **message: Any) -> None:
        await self.socket.send(json.dumps(message))

    async def head(self, frame: int, count: int, **fields: Any) -> None:
        await self.say(**{"type": "frame", "frame": frame, "captured_ms": self.now_ms(), "bytes": count} | fields)

    async def send(self, frame: int, body: bytes, **fields: Any) -> None:
        """A whole frame."""
        await self.head(frame, len(body), **fields)
        await self.socket.send(body)

    async def next(self) -> BoxMessage:
        """The next message; those of a newer box are no messages."""
        while True:
            async with asyncio.timeout(PATIENCE_S):
                text = await self.socket.recv(decode=False)
            message = read_box_message(text)
            if message is not None:
                self.heard.append(message)
                return message

    async def until(self, type: str, **fields: Any) -> Any:
        """The first message of a type, with these fields, of those that come."""
        while True:
            message: Any = await self.next()
            if message.type == type and all(getattr(message, name) == value for name, value in fields.items()):
                return message

    async def answered(self, frame: int, body: bytes, **fields: Any) -> Any:
        """Send a frame and wait for its end."""
        await self.send(frame, body, **fields)
        return await self.until("result", frame=frame)

    async def ended(self) -> int | None:
        """Hear what still comes; the code that the box closes with, None where the line just broke."""
        try:
            while True:
                await self.next()
        except ConnectionClosed as closed:
            return None if closed.rcvd is None else closed.rcvd.code

    async def agree(self) -> None:
        """Exchange clocks until the box knows this one."""
        await self.say(type="clock", sent_ms=self.now_ms())
        clock = await self.until("clock")
        came_ms = self.now_ms()
        await self.say(type="clock", sent_ms=self.now_ms(), of_ms=clock.sent_ms, of_came_ms=came_ms)
        await self.until("clock")


@contextlib.asynccontextmanager
async def opened(url: str, key: str, session: str, query: str = "", **headers: str) -> AsyncIterator[Device]:
    """A stream of a session."""
    address = f"{url.replace('http', 'ws', 1)}/v1/sessions/{session}/stream{query}"
    sent = {"Authorization": f"Bearer {key}"} | headers
    plain: dict[str, Any] = {"compression": None, "max_size": None, "proxy": None}
    async with connect(address, additional_headers=sent, **plain, **PATIENT) as socket:
        yield Device(socket, session)
