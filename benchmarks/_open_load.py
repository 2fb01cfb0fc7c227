"""An open-loop HTTP/1.1 load generator for loopback: requests come at a fixed mean rate, whatever becomes of others.

Arrivals are a Poisson process. Each takes an idle connection, or a new one. Time counts from the arrival, so that a
generator that falls behind counts against what it measures.

Run as a program in a process of its own: `python -m benchmarks._open_load` with one JSON order on standard input:
{"port", "request": base64, "rate", "seconds", "deadline_ms", "connections", "seed"}; prints {"offered", "unsent",
"unanswered", "in_time", "statuses", "processor_s", "seconds", "p50_ms", "p99_ms"}.
"""

import asyncio
import base64
import json
import random
import resource
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import uvloop

CONNECTIONS_MAX = 1000
PATIENCE_S = 5.0
"""After the last arrival, for answers that are still to come."""


def offer(
    port: int,
    request: bytes,
    rate: float,
    seconds: float,
    deadline_ms: float,
) -> dict[str, Any]:
    """Send `rate` requests a second from a process of its own; returns what that process prints."""
    order = {"port": port, "request": base64.b64encode(request).decode(), "rate": rate, "seconds": seconds}
    order |= {"deadline_ms": deadline_ms, "connections": CONNECTIONS_MAX, "seed": 1}
    command = [sys.executable, "-m", "benchmarks._open_load"]
    done = subprocess.run(command, input=json.dumps(order).encode(), stdout=subprocess.PIPE, check=True)
    result: dict[str, Any] = json.loads(done.stdout)
    return result


class Connection(asyncio.Protocol):
    """Sends one request at a time."""

    def __init__(self, done: Callable[["Connection", int], None]) -> None:
        self._done = done
        self._buffer = b""
        self.body = b""
        """Of the latest answer."""
        self.unasked = 0
        """Answers beyond one to each request."""
        self.arrived = 0.0
        self.is_waiting = False
        self.is_open = True

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def ask(self, request: bytes, arrived: float) -> None:
        """Send it; `done` is called with the status, 0 for a connection that broke."""
        self.arrived = arrived
        self.is_waiting = True
        self.transport.write(request)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while (head := self._buffer.find(b"\r\n\r\n")) >= 0:
            lower = self._buffer[:head].lower()
            at = lower.find(b"\r\ncontent-length:") + 2  # not that of inference-header-content-length
            length = int(lower[at + 15 : lower.find(b"\r", at) if lower.find(b"\r", at) > 0 else head])
            if len(self._buffer) < head + 4 + length:
                return
            status = int(lower[9:12])
            self.body = self._buffer[head + 4 : head + 4 + length]
            self._buffer = self._buffer[head + 4 + length :]
            self.is_open = self.is_open and b"connection: close" not in lower
            if not self.is_waiting:
                self.unasked += 1
                continue
            self.is_waiting = False
            self._done(self, status)

    def connection_lost(self, exc: BaseException | None) -> None:
        self.is_open = False
        if self.is_waiting:
            self.is_waiting = False
            self._done(self, 0)


class Generator:
    """Carries out an order."""

    def __init__(self, order: dict[str, Any]) -> None:
        self._order = order
        self._request = base64.b64decode(order["request"])
        self._idle: list[Connection] = []
        self._connections = self._waiting = 0
        self.statuses: Counter[int] = Counter()
        self.in_time = self.offered = self.unsent = 0
        self.times_s: list[float] = []

    async def run(self) -> None:
        """Offer for so long, then wait for what is out."""
        chance = random.Random(self._order["seed"])
        at = start = time.perf_counter()
        tasks = set()
        while (at := at + chance.expovariate(self._order["rate"])) < start + self._order["seconds"]:
            if (delay := at - time.perf_counter()) > 0:
                await asyncio.sleep(delay)
            elif self.offered % 16 == 0:
                await asyncio.sleep(0)
            self.offered += 1
            if self._idle:
                self._waiting += 1
                self._idle.pop().ask(self._request, at)
            elif self._connections < self._order["connections"]:
                self._waiting += 1
                self._connections += 1
                task = asyncio.create_task(self._connect(at))
                tasks.add(task)
                task.add_done_callback(tasks.discard)
            else:
                self.unsent += 1
        for _ in range(int(PATIENCE_S / 0.05)):
            if not self._waiting:
                break
            await asyncio.sleep(0.05)

    async def _connect(self, at: float) -> None:
        try:
            _, connection = await asyncio.get_running_loop().create_connection(
                lambda: Connection(self._done), "127.0.0.1", self._order["port"]
            )
        except OSError:
            self._connections -= 1
            self._waiting -= 1
            self.statuses[0] += 1
            return
        connection.ask(self._request, at)

    def _done(self, connection: Connection, status: int) -> None:
        self._waiting -= 1
        self.statuses[status] += 1
        took_s = time.perf_counter() - connection.arrived
        self.times_s.append(took_s)
        self.in_time += status == 200 and took_s * 1e3 <= self._order["deadline_ms"]
        if connection.is_open:
            self._idle.append(connection)
        else:
            self._connections -= 1

    def result(self) -> dict[str, Any]:
        used = resource.getrusage(resource.RUSAGE_SELF)
        times_ms = [1e3 * took_s for took_s in sorted(self.times_s)] or [0.0]
        return {
            "offered": self.offered,
            "unsent": self.unsent,
            "unanswered": self._waiting,
            "in_time": self.in_time,
            "statuses": dict(sorted(self.statuses.items())),
            "processor_s": used.ru_utime + used.ru_stime,
            "seconds": self._order["seconds"],
            "p50_ms": times_ms[len(times_ms) // 2],
            "p99_ms": times_ms[len(times_ms) * 99 // 100],
        }


async def _main() -> None:
    generator = Generator(json.loads(sys.stdin.read()))
    await generator.run()
    print(json.dumps(generator.result()))


if __name__ == "__main__":
    uvloop.run(_main())
