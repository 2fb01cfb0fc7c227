"""Connections of a load generator to a box on loopback, one request at a time on each, and a process of its own."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

Done = Callable[[int, bytes], None]
"""Takes the status of an answer, 0 for a connection that broke, and the body."""


def carried_out(module: str, order: dict[str, Any]) -> dict[str, Any]:
    """Run a generator as a program with the order on its standard input; returns the object that it prints."""
    command = [sys.executable, "-m", module]
    done = subprocess.run(command, input=json.dumps(order).encode(), stdout=subprocess.PIPE, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


class Connections:
    """A request takes an idle connection, or a new one."""

    def __init__(self, port: int, count_max: int | None = None) -> None:
        self._port = port
        self._count_max = count_max
        self._idle: list[Connection] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._count = 0
        self.waiting = 0
        """Requests without an answer so far."""
        self.unasked = 0
        """Answers beyond one to each request."""

    def send(self, request: bytes, done: Done) -> bool:
        """Send it; False where all connections that may be are busy."""
        while self._idle:
            connection = self._idle.pop()
            if connection.is_open:
                self.waiting += 1
                connection.ask(request, done)
                return True
            self._count -= 1
        if self._count == self._count_max:
            return False
        self._count += 1
        self.waiting += 1
        task = asyncio.create_task(self._connect(request, done))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return True

    async def answered(self, patience_s: float) -> None:
        """Wait for the answers that are still to come."""
        for _ in range(int(patience_s / 0.02)):
            if not self.waiting:
                break
            await asyncio.sleep(0.02)

    async def _connect(self, request: bytes, done: Done) -> None:
        try:
            loop = asyncio.get_running_loop()
            _, connection = await loop.create_connection(lambda: Connection(self), "127.0.0.1", self._port)
        except OSError:
            self._count -= 1
            self.waiting -= 1
            done(0, b"")
            return
        connection.ask(request, done)

    def freed(self, connection: "Connection") -> None:
        """Its request has ended."""
        self.waiting -= 1
        self._idle.append(connection)


class Connection(asyncio.Protocol):
    """Sends one request at a time."""

    def __init__(self, pool: Connections) -> None:
        self._pool = pool
        self._buffer = b""
        self._done: Done | None = None
        self.is_open = True

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def ask(self, request: bytes, done: Done) -> None:
        self._done = done
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while (head := self._buffer.find(b"\r\n\r\n")) >= 0:
            lower = self._buffer[:head].lower()
            at = lower.find(b"\r\ncontent-length:") + 2  # not that of inference-header-content-length
            length = int(lower[at + 15 : lower.find(b"\r", at) if lower.find(b"\r", at) > 0 else head])
            if len(self._buffer) < head + 4 + length:
                return
            body = self._buffer[head + 4 : head + 4 + length]
            self._buffer = self._buffer[head + 4 + length :]
            self.is_open = self.is_open and b"connection: close" not in lower
            self._tell(int(lower[9:12]), body)

    def connection_lost(self, exc: BaseException | None) -> None:
        self.is_open = False
        if self._done is not None:
            self._tell(0, b"")

    def _tell(self, status: int, body: bytes) -> None:
        if self._done is None:
            self._pool.unasked += 1
            return
        done, self._done = self._done, None
        self._pool.freed(self)
        done(status, body)
