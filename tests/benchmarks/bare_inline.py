"""Latency that the box adds to a bare server that receives a body in place and computes on its event loop, P50.

Asked: at most 0.3 ms, ShuffleNet and SqueezeNet with 600 kB of binary tensors, one connection. The bare server has the
same session, options and event loop as the box, no routes, no keys and no checks: what it takes, 600 kB over TCP cost
by themselves. Both are asked by one client in turns of a few requests; the medians of each pair of turns are compared.
With two and four connections the box is compared to one that computes nothing inline, in requests a second.
"""

import asyncio
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import uvloop

from appliance.demo.zoo import toys
from appliance.domain.hardware import PreparedForm
from appliance.runtime.processors.cpu.heap import set_up
from appliance.runtime.processors.cpu.session import OnnxSessions
from appliance.runtime.processors.cpu.subnormals import flush_subnormals
from tests.benchmarks import _subjects as subjects
from tests.benchmarks._steal import undisturbed

PAIRS, REQUESTS, SECONDS, ROUNDS = 30, 10, 1.5, 5
INLINE_MS = "50"
"""Not the default, so that what is measured is the way of a request and not whether a busy machine's profile of it is
below 5 ms.
"""


def main() -> None:
    """Print the table, or with three arguments: be the bare server."""
    if len(sys.argv) == 4:
        uvloop.run(_serve(int(sys.argv[1]), sys.argv[2], int(sys.argv[3])))
        return
    for name in ("shufflenet", "squeezenet"):
        _compare(name)


def _compare(name: str) -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        subjects.box(Path(folder) / "a", APPLIANCE_QUEUES__INLINE_MS_MAX=INLINE_MS) as box,
        subjects.box(Path(folder) / "b", APPLIANCE_QUEUES__INLINE_MS_MAX="0") as before,
    ):
        model: Path = getattr(toys, name)(Path(folder) / f"{name}.onnx")
        for one in (box, before):
            subjects.await_job(one, subjects.upload_large(one, name, model, precisions=["fp32"]))
        with box.http() as http:
            found = http.get(f"/v2/models/{name}").json()["inputs"]
            profile = http.get(f"/v1/models/{name}/variants").json()["items"][0]["profile"]
        print(f"{name}: {profile['latencies'][0]['p50_ms']:.2f} ms as profiled")
        rng = np.random.default_rng(1)
        arrays = {i["name"]: rng.random([max(1, d) for d in i["shape"]], np.float32) for i in found}
        requests = [subjects.infer_request(name, one.key, arrays) for one in (box, before)]
        (prepared,) = (box.state / "prepared").glob("*/*/model.onnx")
        with _bare(prepared, len(requests[0])) as port, _connected(box.port, before.port, port) as lines:
            asked = list(zip(lines, (*requests, requests[0]), strict=True))
            for line, request in asked:
                _turn(line, request)
            rows = undisturbed(lambda: [_turn(line, request) for line, request in asked], PAIRS)
        for place, words in enumerate(("P50", "quickest of a turn")):
            turns = [[times[place] for times in row] for row in rows]
            ours, off, bare = (statistics.median(row[i] for row in turns) for i in range(3))
            added = statistics.median(row[0] - row[2] for row in turns)
            added_off = statistics.median(row[1] - row[2] for row in turns)
            print(f"  {words}: box {ours:.2f} ms, never inline {off:.2f}, bare {bare:.2f}")
            print(f"    added {added:+.2f} ms (asked ≤ 0.30), never inline {added_off:+.2f}", flush=True)
        for connections in (2, 4):

            def pair(connections: int = connections) -> float:
                counts = [
                    subjects.drive(one.port, [request], connections, SECONDS)["count"]
                    for one, request in zip((box, before), requests, strict=True)
                ]
                return float(counts[0] / counts[1])

            ratios = undisturbed(pair, ROUNDS, 60)
            print(f"  {connections} connections: requests/s against never inline {statistics.median(ratios):.2f}")


def _turn(line: socket.socket, request: bytes) -> tuple[float, float]:
    """Median and minimum of a few requests, ms: with neighbours on the machine the quickest says more."""
    times = []
    for _ in range(REQUESTS):
        start = time.perf_counter()
        subjects.ask(line, request)
        times.append((time.perf_counter() - start) * 1e3)
    return statistics.median(times), min(times)


@contextmanager
def _connected(*ports: int) -> Iterator[list[socket.socket]]:
    lines = [socket.create_connection(("127.0.0.1", port)) for port in ports]
    try:
        for line in lines:
            line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield lines
    finally:
        for line in lines:
            line.close()


@contextmanager
def _bare(model: Path, request_bytes: int) -> Iterator[int]:
    port = subjects.free_port()
    order = [sys.executable, "-m", "tests.benchmarks.bare_inline", str(port), str(model), str(request_bytes)]
    process = subprocess.Popen(order)
    try:
        for _ in range(200):
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                break
            except OSError:
                time.sleep(0.05)
        yield port
    finally:
        process.terminate()
        process.wait()


async def _serve(port: int, model: str, request_bytes: int) -> None:
    set_up()
    flush_subnormals()
    sessions = OnnxSessions(1)
    loaded = sessions.load(PreparedForm("bare", model, 0, optimised=True))
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: _Bare(sessions, loaded, request_bytes), "127.0.0.1", port)
    await server.serve_forever()


class _Bare(asyncio.BufferedProtocol):
    """Receives a request of a known length where it stays, runs the session on its tensor, and writes the answer."""

    def __init__(self, sessions: OnnxSessions, loaded: Any, request_bytes: int) -> None:
        self._run = sessions.run
        self._loaded = loaded
        self._name, self._shape = next((i.name, i.shape) for i in loaded.session.get_inputs())
        self._shape = [side if isinstance(side, int) and side > 0 else 1 for side in self._shape]
        self._bytes = int(np.prod(self._shape)) * 4
        room = np.empty(request_bytes + 128, np.uint8)
        start = -(room.__array_interface__["data"][0] + request_bytes - self._bytes) % 64
        self._room = room[start : start + request_bytes]
        self._tensor = self._room[request_bytes - self._bytes :].view(np.float32).reshape(self._shape)
        self._view = self._room.data
        self._filled = 0

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._view[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        self._filled += nbytes
        if self._filled < len(self._view):
            return
        self._filled = 0
        outputs = self._run(self._loaded, {self._name: self._tensor}, None)
        body = b"".join(array.tobytes() for array in outputs.values())
        self._transport.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(body) + body)


if __name__ == "__main__":
    main()
