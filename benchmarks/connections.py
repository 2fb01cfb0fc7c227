"""Another tenant's requests beside 1,000 hostile connections: refusals, longest wait and memory, against no attack.

The connections are silent, slow, endless, send bodies without an end or ask without a pause.
Asked: no request refused, no wait above 100 ms, at most 64 MB more. The attack is a process of its own that keeps its
connections open from one address, each made anew a second after the box has closed it. Beside it a tenant asks ten
times a second, in turns on a connection of its own and on a fresh one, health and an infer of a tiny model; the same is
done before, without an attack. Refused is whatever is not answered 200.
"""

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import closing, suppress
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import uvloop

from benchmarks import _box as boxes
from benchmarks import _results as results
from tests import toys
from tests.attacks.wire import Wire, head

PAUSE_S = 0.1
APPLICATIONS = 900
"""Applications of the tenant whose lists are asked for."""
LISTS = (
    "/v1/audit?limit=500",
    "/v1/applications?limit=500",
    "/v2/models/stats",
    "/v1/memory",
    "/v1/jobs?limit=500",
)
INFER = "/v2/models/add/infer"


def main() -> None:
    """Print a line for each attack."""
    parser = results.parser(__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--connections", type=int, default=1000)
    parser.add_argument("--only", choices=sorted(ATTACKS))
    parser.add_argument("--attack", choices=sorted(ATTACKS), help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--key", default="", help=argparse.SUPPRESS)
    options = results.options(parser)
    if options.attack:
        uvloop.run(_attack(options.attack, options.port, options.key, options.connections, options.seconds))
        return
    with tempfile.TemporaryDirectory() as folder, boxes.box(APPLIANCE_HTTP__CONNECTIONS_MAX="1000") as box:
        keys = _furnish(box, Path(folder))
        quiet = Probe(box, keys["museum"])
        quiet.run(min(options.seconds, 10))
        before_mb = box.pss_mb()
        results.row("no attack", **quiet.figures(), MB=before_mb)
        for name in [options.only] if options.only else ATTACKS:
            if name == "lists":
                _fill(box, keys["harbour"])
            probe = Probe(box, keys["museum"])
            command = [sys.executable, "-m", "benchmarks.connections", "--attack", name, "--key", keys["harbour"]]
            command += ["--port", str(box.port), "--connections", str(options.connections)]
            attack = subprocess.Popen([*command, "--seconds", str(options.seconds)])
            probe.run(options.seconds)
            attack.wait()
            more_mb = probe.most_mb - before_mb
            results.row(name, **probe.figures(), more_MB=more_mb, asked="none refused, ≤ 100 ms, ≤ 64 MB")


def _furnish(box: boxes.LiveBox, folder: Path) -> dict[str, str]:
    """A tiny model that two tenants share; their keys."""
    with box.client() as client, box.http() as http:
        model, keys = toys.tiny_add(folder / "add.onnx"), {}
        job = client.upload_model(model, "add", "tensor", metadata={"precisions": []}, shared=True)
        boxes.await_job(box, job.id)
        for tenant in ("harbour", "museum"):
            http.post("/v1/tenants", json={"name": tenant}).raise_for_status()
            keys[tenant] = http.post(f"/v1/tenants/{tenant}/keys", json={}).raise_for_status().json()["key"]
    return keys


def _fill(box: boxes.LiveBox, key: str) -> None:
    """Give a tenant applications, and more than 2,000 entries of the audit."""
    with box.http() as http:
        http.headers["Authorization"] = f"Bearer {key}"
        for number in range(APPLICATIONS):
            http.post("/v1/applications", json={"name": f"a{number}", "model": "add"}).raise_for_status()
        for number in range(2000 - APPLICATIONS):
            change = {"latency_slo_ms": 50 + number}
            http.patch(f"/v1/applications/a{number % APPLICATIONS}", json=change).raise_for_status()


class Probe:
    """A tenant that asks, and counts."""

    def __init__(self, box: boxes.LiveBox, key: str) -> None:
        self._box = box
        arrays = {name: np.ones((1, 4), np.float32) for name in "AB"}
        self._requests = [head("GET", "/v2/health/ready"), boxes.infer_request("add", key, arrays)]
        self.times_ms: list[float] = []
        self.refused = 0
        self.most_mb = 0.0

    def run(self, seconds: float) -> None:
        with closing(Wire(self._box.url)) as own:
            own.ask(self._requests[1])
            until = time.perf_counter() + seconds
            while time.perf_counter() < until:
                for request in self._requests:
                    self._timed(partial(own.ask, request))
                    self._timed(partial(self._fresh, request))
                self.most_mb = max(self.most_mb, self._box.pss_mb())
                time.sleep(PAUSE_S)

    def figures(self) -> dict[str, Any]:
        counts = {"requests": len(self.times_ms), "refused": self.refused}
        return {**counts, **results.percentiles(self.times_ms, 50, 99), "longest_ms": max(self.times_ms)}

    def _fresh(self, request: bytes) -> int:
        with closing(Wire(self._box.url)) as wire:
            return wire.ask(request)

    def _timed(self, ask: Callable[[], int]) -> None:
        start = time.perf_counter()
        try:
            status = ask()
        except OSError:
            status = 0
        self.times_ms.append((time.perf_counter() - start) * 1e3)
        self.refused += status != 200


# -- the attacks -------------------------------------------------------------------------------------------------------


async def _idle(writer: asyncio.StreamWriter, key: str) -> None:
    await asyncio.sleep(3600)


async def _slow(writer: asyncio.StreamWriter, key: str) -> None:
    writer.write(b"GET /v2/health/live HTTP/1.1\r\nx: ")
    while True:
        writer.write(b"x")
        await asyncio.sleep(1)


async def _endless(writer: asyncio.StreamWriter, key: str) -> None:
    writer.write(b"GET /v2/health/live HTTP/1.1\r\nx: ")
    for _ in range(1000):
        writer.write(b"x" * 16_384)
        await writer.drain()


async def _announcers(writer: asyncio.StreamWriter, key: str) -> None:
    writer.write(head("POST", INFER, key, content_length=60_000_000))
    await asyncio.sleep(3600)


async def _chunked(writer: asyncio.StreamWriter, key: str) -> None:
    writer.write(head("POST", INFER, key, transfer_encoding="chunked"))
    for _ in range(600):
        writer.write(b"186a0\r\n" + b" " * 100_000 + b"\r\n")
        await writer.drain()
        await asyncio.sleep(0.05)


async def _pipelined(writer: asyncio.StreamWriter, key: str) -> None:
    """Thirty-two requests at once, again and again, answered or not."""
    arrays = {name: np.ones((1, 4), np.float32) for name in "AB"}
    requests = head("GET", "/v2/health/live") * 16 + boxes.infer_request("add", key, arrays) * 16
    while True:
        writer.write(requests)
        await writer.drain()
        await asyncio.sleep(0.005)


async def _orders(writer: asyncio.StreamWriter, key: str) -> None:
    """JSON of a megabyte whose fields no order has."""
    body = json.dumps({str(number): number for number in range(60_000)}).encode()
    order = head("POST", "/v1/applications", key, content_type="application/json", content_length=len(body)) + body
    while True:
        writer.write(order)
        await writer.drain()


async def _documents(writer: asyncio.StreamWriter, key: str) -> None:
    while True:
        writer.write(head("GET", "/openapi.json"))
        await writer.drain()
        await asyncio.sleep(0.01)


async def _lists(writer: asyncio.StreamWriter, key: str) -> None:
    """The longest pages of lists, more of them than can be answered."""
    for path in cycle(LISTS):
        writer.write(head("GET", path, key))
        await writer.drain()
        await asyncio.sleep(0.25)


FEW = {"chunked": 16, "pipelined": 64, "orders": 64, "documents": 64, "lists": 64}
"""Attacks of fewer connections than were asked for."""
ATTACKS: dict[str, Callable[[asyncio.StreamWriter, str], Awaitable[None]]] = {
    "idle": _idle,
    "slow": _slow,
    "endless": _endless,
    "announcers": _announcers,
    "chunked": _chunked,
    "pipelined": _pipelined,
    "orders": _orders,
    "documents": _documents,
    "lists": _lists,
}


async def _sent(attack: Awaitable[None]) -> None:
    """Until the box closes the connection."""
    with suppress(OSError):
        await attack


async def _attack(name: str, port: int, key: str, connections: int, seconds: float) -> None:
    count = min(connections, FEW.get(name, connections))

    async def one(index: int) -> None:
        await asyncio.sleep(index / count)  # not all in the same instant
        while True:
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                await asyncio.sleep(1)
                continue
            sending = asyncio.create_task(_sent(ATTACKS[name](writer, key)))
            await asyncio.gather(reader.read(), return_exceptions=True)
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
            writer.close()
            await asyncio.sleep(1)

    tasks = [asyncio.create_task(one(index)) for index in range(count)]
    await asyncio.sleep(seconds)
    for task in tasks:
        task.cancel()


if __name__ == "__main__":
    main()
