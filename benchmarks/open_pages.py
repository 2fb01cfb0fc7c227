"""Pages that are open: what they cost who asks, and by how much the box grows while they are.

Five tabs of one browser lie on five pages of a box. First `/v2` infer of a tiny model over 16 connections with the tabs
open and on blank pages, in turns; asked: at least 0.95 of the requests per second. Browser and box share the
processors, which a phone elsewhere would not: the ratio by the box's own processor time says what is the box's.
Then the memory of the box (Pss) over some minutes, at least one request a second meanwhile; asked: at most 5 MB in an
hour.
"""

import argparse
import socket
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from appliance.demo.zoo import toys
from benchmarks import _box as boxes
from benchmarks._chromium import chromium
from tests.browser.conftest import sign_in

CONNECTIONS = 16
PATHS = ("/", "/applications/tiny", "/memory", "/tenants", "/box")


def main() -> None:
    """Print both."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=5.0)
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        boxes.box(Path(folder) / "state") as box,
        chromium() as browser,
    ):
        boxes.await_job(box, boxes.upload(box, "tiny", toys.tiny_add(Path(folder) / "tiny.onnx")))
        with box.http() as http:
            inputs = http.get("/v2/models/tiny").json()["inputs"]
        arrays = {one["name"]: np.zeros([max(1, size) for size in one["shape"]], np.float32) for one in inputs}
        request = boxes.infer_request("tiny", box.key, arrays)
        context = browser.new_context()
        tabs = [context.new_page() for _ in PATHS]
        tabs[0].goto(f"http://127.0.0.1:{box.port}/")
        sign_in(tabs[0], box.key)
        rounds = []
        for number in range(options.rounds):
            found = {}
            for is_open in (True, False) if number % 2 else (False, True):
                lie(tabs, box.port, is_open=is_open)
                found[is_open] = boxes.rate(box.port, box.process.pid, request, CONNECTIONS, options.seconds)
            rounds.append((found[True], found[False]))
            (opened, opened_us), (none, none_us) = rounds[-1]
            print(
                f"five {opened:8.0f}/s ({opened_us:4.0f} µs CPU)   none {none:8.0f}/s ({none_us:4.0f} µs)", flush=True
            )
        if rounds:
            ratio = statistics.median(opened / none for (opened, _), (none, _) in rounds)
            by_cpu = statistics.median(none_us / opened_us for (_, opened_us), (_, none_us) in rounds)
            print(f"median ratio {ratio:.3f} (asked ≥ 0.95), by processor time {by_cpu:.3f}")
        grow(tabs, box, request, options.minutes)


def lie(tabs: list[Any], port: int, *, is_open: bool) -> None:
    """Put the tabs on their pages, or on blank ones; settled."""
    for tab, path in zip(tabs, PATHS, strict=True):
        tab.goto(f"http://127.0.0.1:{port}{path}" if is_open else "about:blank")
    time.sleep(2)


def grow(tabs: list[Any], box: boxes.LiveBox, request: bytes, minutes: float) -> None:
    """The memory of the box from minute to minute; the first minute is no part of it."""
    lie(tabs, box.port, is_open=True)
    seen: list[float] = []
    for minute in range(int(minutes) + 2):
        end = time.monotonic() + 60
        while time.monotonic() < end:
            with socket.create_connection(("127.0.0.1", box.port)) as line:
                boxes.ask(line, request)
            tabs[minute % len(tabs)].wait_for_timeout(1000)
        seen.append(box.pss_mb())
        print(f"minute {minute + 1}: {seen[-1]:.2f} MB", flush=True)
    first, last = seen[0], seen[-1]
    an_hour = (last - first) / max(1, len(seen) - 1) * 60
    print(f"grown by {last - first:.2f} MB in {len(seen) - 1} minutes: {an_hour:.1f} MB an hour (asked ≤ 5)")


if __name__ == "__main__":
    main()
