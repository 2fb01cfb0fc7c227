"""A closed-loop HTTP/1.1 load generator for loopback: prepared bytes out, answers counted and timed.

One request per connection at a time. Several requests are dealt to the connections, which keep to theirs;
with "in_turn" each connection sends all of them, one after the other, and each begins with another one.

Run as a program in a process of its own, so that its work is not the server's: `python -m tests.e2e.load` with
one JSON order on standard input: {"port", "requests": [base64 ...], "connections", "seconds"}, and with "unix_socket"
to that file instead of the port; prints {"count", "errors", "refusal" (the first answer that was none, cut short),
"seconds", "processor_s", "p50_ms", "p99_ms"}, and with "keep_times" also every request's time as "times_ms".
"""

import asyncio
import base64
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import uvloop

from appliance.clock import NS_PER_S, SystemClock

_TOLD = 1000
"""Of an answer that is an error so many bytes."""


def _now_s() -> float:
    return SystemClock().now_ns() / NS_PER_S


class Connection(asyncio.Protocol):
    """Sends its next request as soon as an answer is complete, until told to stop."""

    def __init__(self, requests: Sequence[bytes], until: float, times: list[float]) -> None:
        self._requests = cycle(requests)
        self._until = until
        self._times = times
        self._buffer = b""
        self.errors = 0
        self.refusal = ""
        self.done = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._send()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head = self._buffer.find(b"\r\n\r\n")
        if head < 0:
            return
        lower = self._buffer[:head].lower()
        at = lower.find(b"\r\ncontent-length:") + 2  # not that of inference-header-content-length
        length = int(lower[at + 15 : lower.find(b"\r", at) if lower.find(b"\r", at) > 0 else head])
        if len(self._buffer) < head + 4 + length:
            return
        if not self._buffer.startswith(b"HTTP/1.1 200"):
            self.errors += 1
            self.refusal = self.refusal or self._buffer[:_TOLD].decode(errors="replace")
        self._buffer = b""
        self._times.append(_now_s() - self._started)
        self._send()

    def connection_lost(self, exc: BaseException | None) -> None:
        if not self.done.done():
            self.errors += exc is not None
            self.done.set_result(None)

    def _send(self) -> None:
        self._started = _now_s()
        if self._started > self._until:
            self._transport.close()
            if not self.done.done():
                self.done.set_result(None)
            return
        self._transport.write(next(self._requests))


def drive(
    port: int,
    requests: list[bytes],
    connections: int,
    seconds: float,
    *,
    keep_times: bool = False,
    in_turn: bool = False,
    may_fail: bool = False,
    unix_socket: Path | None = None,
) -> dict[str, Any]:
    """Send load from a process of its own, to a port or a Unix socket; returns what that process prints.

    Raises: RuntimeError where a request was refused, unless requests `may_fail`: a refusal is quicker than a run.
    """
    order = {
        "port": port,
        "requests": [base64.b64encode(request).decode() for request in requests],
        "connections": connections,
        "seconds": seconds,
        "keep_times": keep_times,
        "in_turn": in_turn,
        "unix_socket": None if unix_socket is None else str(unix_socket),
    }
    done = subprocess.run(
        [sys.executable, "-m", "tests.e2e.load"],
        input=json.dumps(order).encode(),
        capture_output=True,
        check=True,
    )
    result: dict[str, Any] = json.loads(done.stdout)
    if result["errors"] and not may_fail:
        raise RuntimeError(f"{result['errors']} of {result['count']} were refused: {result['refusal']}")
    return result


async def driven(order: dict[str, Any]) -> dict[str, Any]:
    """Run one order."""
    loop = asyncio.get_running_loop()
    requests = [base64.b64decode(text) for text in order["requests"]]
    times: list[float] = []
    start, used_s = _now_s(), time.process_time()
    until = start + order["seconds"]
    connections = []
    for index in range(order["connections"]):
        at = index % len(requests)
        own = [*requests[at:], *requests[:at]] if order.get("in_turn") else requests[at : at + 1]
        made = partial(Connection, own, until, times)
        if order.get("unix_socket"):
            _, connection = await loop.create_unix_connection(made, order["unix_socket"])
        else:
            _, connection = await loop.create_connection(made, "127.0.0.1", order["port"])
        connections.append(connection)
    await asyncio.gather(*(c.done for c in connections))
    elapsed = _now_s() - start
    p50, p99 = np.percentile(times, [50, 99]) * 1e3 if times else (0.0, 0.0)
    errors = sum(c.errors for c in connections)
    kept = {"times_ms": [round(time_s * 1e3, 3) for time_s in times]} if order.get("keep_times") else {}
    refusal = next((c.refusal for c in connections if c.refusal), "")
    processor_s = time.process_time() - used_s
    counted = {"count": len(times), "errors": errors, "refusal": refusal, "seconds": elapsed}
    counted["processor_s"] = processor_s
    return counted | {"p50_ms": float(p50), "p99_ms": float(p99)} | kept


if __name__ == "__main__":
    print(json.dumps(uvloop.run(driven(json.loads(sys.stdin.read())))))
