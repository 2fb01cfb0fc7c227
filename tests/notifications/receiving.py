"""Receivers of notifications on this machine, and a system of names that a test writes."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

TAKEN = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


@dataclass(frozen=True)
class Got:
    """A request that a receiver got."""

    line: str
    headers: Mapping[str, str]
    """By name in lower case."""
    body: bytes

    @property
    def document(self) -> Any:
        return json.loads(self.body)


@dataclass
class Receiving:
    """A receiver that keeps what it gets, and answers with these bytes; None: it takes the request and says nothing."""

    host: str
    port: int = 0
    answer: bytes | None = TAKEN
    got: list[Got] = field(default_factory=list)
    connections: int = 0

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Take one request."""
        self.connections += 1
        try:
            line, *rows = (await reader.readuntil(b"\r\n\r\n")).decode().splitlines()
            headers = {name.lower(): value for name, _, value in (row.partition(": ") for row in rows if row)}
            body = await reader.readexactly(int(headers.get("content-length", 0)))
            self.got.append(Got(line, headers, body))
            if self.answer is not None:
                writer.write(self.answer)
                await writer.drain()
            await reader.read()  # until the box leaves
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def receiving(
    host: str = "127.0.0.1", *, port: int = 0, answer: bytes | None = TAKEN, tls: ssl.SSLContext | None = None
) -> AsyncIterator[Receiving]:
    """A receiver that listens at an address of this machine."""
    one = Receiving(host, answer=answer)
    server = await asyncio.start_server(one.serve, host, port, ssl=tls)
    one.port = server.sockets[0].getsockname()[1]
    try:
        yield one
    finally:
        server.close()
        await server.wait_closed()


@dataclass
class WrittenNames:
    """Answers of the test, one after another; the last one stays. None: no answer comes."""

    answers: list[Sequence[str] | OSError | None]
    asked: list[tuple[str, int]] = field(default_factory=list)

    def look_up(self, host: str, port: int, found: Callable[[Sequence[str] | OSError], None]) -> None:
        self.asked.append((host, port))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if answer is not None:
            found(answer)
