"""What a frame of a session's stream costs beside `predict` of the same JPEG: processor time of the box, and P50.

Asked: at most 0.3 ms more processor time of the box, and 0.5 ms more at the median; of an application, and of a
pipeline that asks the same network in one stage. A box in a process of its own, the digits model, one client, one frame
at a time over one connection; the ways take turns, so that all see the same machine. Processor time is that of all the
box's threads, as the system counts it.
"""

import argparse
import asyncio
import os
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import cv2
import httpx
import numpy as np
import psutil

from appliance.demo.zoo import toys
from tests.api.stand import furnish
from tests.api.streams.device import Device, opened
from tests.e2e.server import running_server

WARM_UP = 20
TARGETS = (("application", "digits"), ("pipeline", "numbers"))
PIPELINE = {"name": "numbers", "latency_slo_ms": 2000, "stages": [{"name": "read", "application": "digits"}]}


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--frames", type=int, default=100)
    parser.add_argument("--pixels", type=int, default=320, help="longer side of the JPEG")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        keys = asyncio.run(furnish(folder / "state", toys.digits(folder / "digits")))
        with running_server(folder / "state", APPLIANCE_GUARD__ISOLATION="none") as server:
            box = psutil.Process(server.process.pid)
            asyncio.run(_measure(server.url, keys["harbour"], box, _jpeg(asked.pixels), asked.rounds, asked.frames))


def _jpeg(pixels: int) -> bytes:
    noise = np.random.default_rng(1).integers(0, 255, (pixels // 8, pixels // 8, 3), np.uint8)
    picture = cv2.resize(noise, (pixels, pixels), interpolation=cv2.INTER_CUBIC)
    return bytes(cv2.imencode(".jpg", picture)[1])


async def _measure(url: str, key: str, box: psutil.Process, jpeg: bytes, rounds: int, frames: int) -> None:
    headers = {"Authorization": f"Bearer {key}"}
    async with httpx.AsyncClient(base_url=url, headers=headers, timeout=30) as client, AsyncExitStack() as open_:
        defined = await client.post("/v1/pipelines", json=PIPELINE)
        assert defined.status_code == 201, defined.text
        ways = {}
        for kind, name in TARGETS:
            device = await open_.enter_async_context(_joined(client, url, key, {kind: name}))
            ways[f"{kind} predict"] = _predict(client, f"/v1/{kind}s/{name}/predict", jpeg)
            ways[f"{kind} frame"] = _frame(device, jpeg)
        for way in ways.values():
            await _times_ms(way, WARM_UP)
        rows: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
        for _ in range(rounds):
            for name, way in ways.items():
                before = sum(box.cpu_times()[:2])
                times = await _times_ms(way, frames)
                cpu_ms = (sum(box.cpu_times()[:2]) - before) / frames * 1000
                rows[name].append((cpu_ms, statistics.median(times)))
    print(f"JPEG of {len(jpeg)} bytes, {rounds} rounds of {frames}, load {os.getloadavg()[0]:.1f}")
    for name, found in rows.items():
        cpu, p50 = (statistics.median(column) for column in zip(*found, strict=True))
        print(f"{name:20} box CPU {cpu:.2f} ms  P50 {p50:.2f} ms")
    for kind, _ in TARGETS:
        pairs = list(zip(rows[f"{kind} frame"], rows[f"{kind} predict"], strict=True))
        for at, (what, asked) in enumerate((("box CPU", 0.3), ("P50", 0.5))):
            added = sorted(frame[at] - predict[at] for frame, predict in pairs)
            print(
                f"{kind}: frame - predict: {what} {statistics.median(added):+.2f} ms ({added[0]:+.2f} to "
                f"{added[-1]:+.2f}; asked ≤ {asked})"
            )


@asynccontextmanager
async def _joined(client: httpx.AsyncClient, url: str, key: str, target: dict[str, str]) -> AsyncIterator[Device]:
    """A device with a session and its stream."""
    order = {**target, "fps": 1000, "promise": {"kind": "latency", "slo_ms": 2000, "rate_rps": 10}}
    joined = await client.post("/v1/sessions", json=order)
    assert joined.status_code == 201, joined.text
    async with opened(url, key, joined.json()["id"]) as device:
        await device.agree()
        yield device


def _predict(client: httpx.AsyncClient, path: str, jpeg: bytes) -> Callable[[], Awaitable[None]]:
    async def way() -> None:
        answer = await client.post(path, content=jpeg, headers={"Content-Type": "image/jpeg"})
        assert answer.status_code == 200, answer.text

    return way


def _frame(device: Device, jpeg: bytes) -> Callable[[], Awaitable[None]]:
    numbers = iter(range(10**9))

    async def way() -> None:
        result = await device.answered(next(numbers), jpeg)
        assert result.outcome == "answered", result

    return way


async def _times_ms(way: Callable[[], Awaitable[None]], count: int) -> list[float]:
    times = []
    for _ in range(count):
        start = time.perf_counter()
        await way()
        times.append((time.perf_counter() - start) * 1000)
    return times


if __name__ == "__main__":
    main()
