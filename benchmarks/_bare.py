"""A bare server for benchmarks: the same session, options and event loop as the box; no routes, no keys, no checks.

It receives a request of a known length where it stays, runs the session on its tensor, and writes the answer: on its
event loop, or on so many threads. What a request costs here, 600 kB over TCP and Python cost by themselves.
Run as a program in a process of its own: `python -m benchmarks._bare PORT MODEL REQUEST_BYTES THREADS`.
"""

import asyncio
import queue
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import uvloop

from appliance.domain.hardware import PreparedForm
from appliance.runtime.processors.cpu.heap import set_up
from appliance.runtime.processors.cpu.session import OnnxSessions
from appliance.runtime.processors.cpu.subnormals import flush_subnormals
from benchmarks import _subjects as subjects


class BareServer(NamedTuple):
    """One that listens."""

    port: int
    pid: int


@contextmanager
def bare(model: Path, request_bytes: int, threads: int = 0) -> Iterator[BareServer]:
    """A server of its own process for requests of that length; 0 threads: it computes on its event loop."""
    port = subjects.free_port()
    order = [sys.executable, "-m", "benchmarks._bare", str(port), str(model), str(request_bytes), str(threads)]
    process = subprocess.Popen(order)
    try:
        for _ in range(200):
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                break
            except OSError:
                time.sleep(0.05)
        yield BareServer(port, process.pid)
    finally:
        process.terminate()
        process.wait()


async def _serve(port: int, model: str, request_bytes: int, threads: int) -> None:
    set_up()
    flush_subnormals()
    sessions = OnnxSessions(1)
    loaded = sessions.load(PreparedForm("bare", model, 0, optimised=True))
    loop = asyncio.get_running_loop()
    hand_over = _Threads(loop, threads).submit if threads else _at_once
    made = lambda: _Connection(sessions, loaded, request_bytes, hand_over)  # noqa: E731
    server = await loop.create_server(made, "127.0.0.1", port)
    await server.serve_forever()


def _at_once(run: Callable[[], bytes], answer: Callable[[bytes], None]) -> None:
    answer(run())


class _Threads:
    """Threads over one queue: whichever ends a run takes the next one without a turn of the event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, count: int) -> None:
        self._loop = loop
        self._calls: queue.SimpleQueue[tuple[Callable[[], bytes], Callable[[bytes], None]]] = queue.SimpleQueue()
        for _ in range(count):
            threading.Thread(target=self._work, daemon=True).start()

    def submit(self, run: Callable[[], bytes], answer: Callable[[bytes], None]) -> None:
        self._calls.put((run, answer))

    def _work(self) -> None:
        flush_subnormals()
        while True:
            run, answer = self._calls.get()
            self._loop.call_soon_threadsafe(answer, run())


class _Connection(asyncio.BufferedProtocol):
    """Requests of one caller, who waits for each answer: what is received next is the next request."""

    def __init__(
        self,
        sessions: OnnxSessions,
        loaded: Any,
        request_bytes: int,
        hand_over: Callable[[Callable[[], bytes], Callable[[bytes], None]], None],
    ) -> None:
        self._sessions = sessions
        self._loaded = loaded
        self._hand_over = hand_over
        name, shape = next((i.name, i.shape) for i in loaded.session.get_inputs())
        shape = [side if isinstance(side, int) and side > 0 else 1 for side in shape]
        tensor_bytes = int(np.prod(shape)) * 4
        room = np.empty(request_bytes + 128, np.uint8)
        start = -(room.__array_interface__["data"][0] + request_bytes - tensor_bytes) % 64
        room = room[start : start + request_bytes]
        self._inputs = {name: room[request_bytes - tensor_bytes :].view(np.float32).reshape(shape)}
        self._view = room.data
        self._filled = 0

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._view[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        self._filled += nbytes
        if self._filled == len(self._view):
            self._filled = 0
            self._hand_over(self._run, self._transport.write)

    def _run(self) -> bytes:
        """A whole answer."""
        outputs = self._sessions.run(self._loaded, self._inputs, None)
        body = b"".join(array.tobytes() for array in outputs.values())
        return b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(body) + body


if __name__ == "__main__":
    port, model, *counts = sys.argv[1:]
    uvloop.run(_serve(int(port), model, *map(int, counts)))
