"""Streams for minutes: devices of the SDK come, lose their lines, pause and go, and every frame is accounted for.

What must hold all the time: captured = sent + skipped and sent = answered + late + dropped + lost, on both sides; no
more frames remembered than belong to 2 s; memory, threads and files of the box as at the beginning. Prints a line a
minute, and what was broken; the exit status says whether anything was.
"""

import argparse
import asyncio
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil

from appliance.client.device import Accuracy, Box, Device, Latency
from appliance.demo.zoo import toys
from appliance.domain.session import FrameEnd
from benchmarks._crowd import Crowd, crowd
from benchmarks._subjects import free_port
from tests.api.stand import furnish
from tests.e2e.server import Server, running_server

FPS = 5.0
GROWTH_MB = 30.0


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--devices", type=int, default=12)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="stream-soak-") as name:
        folder = Path(name)
        keys = asyncio.run(furnish(folder / "state", toys.digits(folder / "digits")))
        with running_server(folder / "state", free_port(), APPLIANCE_GUARD__ISOLATION="none") as server:
            broken = _soak(server, keys["device"], options)
    for one in broken:
        print(f"broken: {one}")
    sys.exit(1 if broken else 0)


def _soak(server: Server, key: str, options: argparse.Namespace) -> list[str]:
    chance, broken = random.Random(options.seed), list[str]()
    promises = [Accuracy(0.3) if number % 3 == 0 else Latency(1000.0, FPS) for number in range(options.devices)]
    box, process = Box(server.url, key), psutil.Process(server.process.pid)
    totals: dict[str, int] = {}
    with crowd(box, "digits", promises, FPS) as devices:
        time.sleep(20)
        first = _sizes(process)
        end_s = time.monotonic() + 60 * options.minutes
        said_s = time.monotonic()
        while time.monotonic() < end_s:
            time.sleep(chance.uniform(0.2, 1.5))
            _disturb(devices, box, chance, totals, broken)
            if time.monotonic() - said_s >= 60 or time.monotonic() >= end_s:
                said_s = time.monotonic()
                now = _sizes(process)
                answered = sum(devices.answered()) + totals.get("answered", 0)
                print(
                    f"{options.minutes * 60 - (end_s - said_s):6.0f} s  {answered} answered, {totals}  box: {now}",
                    flush=True,
                )
        for device in devices.devices:
            _check(device, broken)
        last = _sizes(process)
        if last["mb"] > first["mb"] + GROWTH_MB:
            broken.append(f"the box has grown from {first['mb']:.0f} to {last['mb']:.0f} MB")
        if last["files"] > first["files"] + 5 or last["threads"] > first["threads"] + 5:
            broken.append(f"files and threads: {first} at first, {last} at the end")
    return broken


def _disturb(devices: Crowd, box: Box, chance: random.Random, totals: dict[str, int], broken: list[str]) -> None:
    """Something happens to one of the devices."""
    at = chance.randrange(len(devices.devices))
    device, what = devices.devices[at], chance.random()
    if what < 0.5:  # its line breaks
        assert device._line is not None
        line = device._line
        line._loop.call_soon_threadsafe(_break, line)
        totals["cut"] = totals.get("cut", 0) + 1
    elif what < 0.75:  # it leaves, and another one comes
        other = Device(box, "digits", fps=FPS, promise=device._promise, name=f"d-{chance.randrange(10**6)}", wait=True)
        other.join()
        devices.devices[at] = other
        time.sleep(0.3)
        _check(device, broken)
        totals["answered"] = totals.get("answered", 0) + device.counts.ends[FrameEnd.ANSWERED]
        totals["left"] = totals.get("left", 0) + 1
        device.leave()


def _break(line: Any) -> None:
    """In its own thread: the connection is closed as a broken network does."""
    for task in list(asyncio.all_tasks(line._loop)):
        if getattr(task.get_coro(), "__qualname__", "") == "Line._receive":
            task.cancel()


def _check(device: Device, broken: list[str]) -> None:
    """Both sides count the same way."""
    counts = device.counts
    if counts.captured - counts.sent - counts.skipped not in (0, 1, 2):
        broken.append(f"a device: captured {counts.captured}, sent {counts.sent}, skipped {counts.skipped}")
    if counts.sent != sum(counts.ends.values()) + device.under_way:
        broken.append(f"a device: sent {counts.sent}, ended {dict(counts.ends)}, under way {device.under_way}")
    said = device.box_says()
    under_way = said["sent"] - said["answered"] - said["late"] - said["dropped"] - said["lost"]
    if not 0 <= under_way <= 4:
        broken.append(f"the box: {under_way} under way of {said}")
    if said["captured"] != said["sent"] + said["skipped"]:
        broken.append(f"the box: captured is not sent + skipped: {said}")


def _sizes(process: psutil.Process) -> dict[str, float]:
    return {"mb": process.memory_info().rss / 1e6, "threads": process.num_threads(), "files": process.num_fds()}


if __name__ == "__main__":
    main()
