"""Forty sessions on a real box, ten of them waiting: decisions, the event loop, plain requests beside them, and a kill.

Asked: decisions ≤ 20 ms at P99; the event loop held ≤ 5 ms; P99 of plain requests ≤ 1.1 times that without sessions;
after `kill -9`, from the box being ready again to all served ≤ 1 s. The digits model; plain requests come from a
process of their own, by turns with and without sessions' frames, so that both see the same machine.

What holds the loop is told by processor time between two looks a millisecond apart: an upper bound, for devices on the
same cores keep the loop from looking. `--callbacks` tells the longest single callback in its place, on a box with
asyncio's loop; its other figures are of that loop.
"""

import argparse
import asyncio
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path

import httpx

from appliance.client import Client
from appliance.client.device import Accuracy, Box, Latency, Promise
from appliance.demo.zoo import toys
from tests.api.stand import furnish
from tests.benchmarks._crowd import crowd, jpeg
from tests.benchmarks._subjects import free_port
from tests.benchmarks.streams import decisions_in
from tests.e2e import server as boxes

PATIENCE_S = 60.0


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--served", type=int, default=30)
    parser.add_argument("--waiting", type=int, default=10)
    parser.add_argument("--fps", type=float, default=5.0)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=6.0, help="of each half of a round")
    parser.add_argument("--rate", type=float, default=40.0, help="plain requests a second")
    parser.add_argument("--callbacks", action="store_true", help="the longest callbacks, on asyncio's loop")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="session-load-") as name:
        folder = Path(name)
        keys = asyncio.run(furnish(folder / "state", toys.digits(folder / "digits")))
        with _held_box(folder, ["callbacks"] if options.callbacks else []) as server:
            _measure(server, keys, options)
        holds = json.loads((folder / "holds.json").read_text())
        of_sessions = [ms for second, ms in holds.items() if any(a <= int(second) < b for a, b in _WITH)]
        what = "longest callback" if options.callbacks else "event loop held"
        print(
            f"{what}: at most {max(of_sessions, default=0.0):.1f} ms, "
            f"in {sum(ms > 5 for ms in of_sessions)} of {len(of_sessions)} s above 5 ms (asked ≤ 5); "
            f"load {os.getloadavg()[0]:.1f}"
        )
        with boxes.running_server(folder / "state", free_port(), APPLIANCE_GUARD__ISOLATION="none") as server:
            _kill(server, Box(server.url, keys["device"]), options)


_WITH: list[tuple[int, int]] = []
"""Seconds with sessions, from and to."""


@contextmanager
def _held_box(folder: Path, how: Sequence[str]) -> Iterator[boxes.Server]:
    """A box that notes how long its event loop was held."""

    def start(state_dir: Path, environment: dict[str, str], port: int) -> tuple["subprocess.Popen[bytes]", str]:
        (state_dir / "address").unlink(missing_ok=True)
        settings = {
            **os.environ,
            "APPLIANCE_STATE_DIR": str(state_dir),
            "APPLIANCE_HTTP__PORT": str(port),
            **environment,
        }
        command = [sys.executable, "-m", "tests.benchmarks._held_box", str(folder / "holds.json"), *how]
        with (state_dir / "server.log").open("ab") as log:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=settings)
        return process, boxes._ready_url(process, state_dir)

    boxes._start = start
    with boxes.running_server(folder / "state", free_port(), APPLIANCE_GUARD__ISOLATION="none") as server:
        yield server


def _measure(server: boxes.Server, keys: dict[str, str], options: argparse.Namespace) -> None:
    box = Box(server.url, keys["device"])
    ours, theirs = multiprocessing.get_context("spawn").Pipe()
    asking = multiprocessing.get_context("spawn").Process(
        target=_ask, args=(theirs, server.url, keys["device"], options.rate), daemon=True
    )
    asking.start()
    promises = _promises(options)
    without: list[float] = []
    beside: list[float] = []
    promises += [Latency(2.0, options.fps)] * options.waiting  # sooner than anything is answered
    for _ in range(options.rounds):
        without += _asked(ours, options.seconds)
        with crowd(box, "digits", promises, options.fps) as devices:
            time.sleep(3)
            began = int(time.monotonic())
            beside += _asked(ours, options.seconds)
            _WITH.append((began, int(time.monotonic())))
            states, answered = devices.states(), sum(devices.answered())
    with Client(server.url, server.admin_key) as client:
        print(f"sessions: {states}, {answered} frames answered; decisions of the box: {decisions_in(client.metrics())}")
    for name, found in (("without", without), ("with sessions", beside)):
        print(f"plain requests {name:13} P50 {_at(found, 0.5):.2f}  P99 {_at(found, 0.99):.2f} ms  ({len(found)})")
    print(f"P99 with / without: {_at(beside, 0.99) / _at(without, 0.99):.2f} (asked ≤ 1.1)")
    asking.terminate()


def _promises(options: argparse.Namespace) -> list[Promise]:
    return [Accuracy(0.3) if number % 3 == 0 else Latency(1000.0, options.fps) for number in range(options.served)]


def _kill(server: boxes.Server, box: Box, options: argparse.Namespace) -> None:
    """How long it takes until all are served again, and what of that passes before they have a line."""
    with crowd(box, "digits", _promises(options), options.fps) as devices:
        deadline_s = time.monotonic() + PATIENCE_S
        while devices.states().get("served", 0) < options.served and time.monotonic() < deadline_s:
            time.sleep(0.05)
        time.sleep(2)
        lines = [device.reconnects for device in devices.devices]
        server.kill()
        killed_s = time.monotonic()
        time.sleep(1)
        before = devices.answered()
        server.start_again()
        ready_s = time.monotonic()
        lined: dict[int, float] = {}
        served: dict[int, float] = {}
        while len(served) < options.served and time.monotonic() < ready_s + PATIENCE_S:
            took_s, answered = time.monotonic() - ready_s, devices.answered()
            for at, device in enumerate(devices.devices):
                if at not in lined and device.reconnects > lines[at]:
                    lined[at] = took_s
                if at not in served and answered[at] > before[at]:
                    served[at] = took_s
            time.sleep(0.005)
        print(
            f"killed, ready again after {ready_s - killed_s:.1f} s: {len(served)} of {options.served} served; "
            f"median {_at(list(served.values()), 0.5):.2f} s, last {max(served.values(), default=0.0):.2f} s (≤ 1); "
            f"lines there after {_at(list(lined.values()), 0.5):.2f} s, last {max(lined.values(), default=0.0):.2f} s"
        )


def _ask(pipe: Connection, url: str, key: str, rate: float) -> None:
    """In a process of its own: plain requests for as long as is asked, at a steady rate."""
    picture, headers = jpeg(), {"Authorization": f"Bearer {key}"}
    with httpx.Client(base_url=url, headers=headers, timeout=30) as client:
        while True:
            seconds = pipe.recv()
            times: list[float] = []
            due = start = time.perf_counter()
            while due < start + seconds:
                time.sleep(max(0.0, due - time.perf_counter()))
                begun = time.perf_counter()
                answer = client.post("/v1/applications/digits/predict", content=picture)
                times.append((time.perf_counter() - begun) * 1e3)
                assert answer.status_code == 200, answer.text
                due += 1.0 / rate
            pipe.send(times)


def _asked(pipe: Connection, seconds: float) -> list[float]:
    pipe.send(seconds)
    times: list[float] = pipe.recv()
    return times


def _at(times: Sequence[float], share: float) -> float:
    ordered = sorted(times)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else float("nan")


if __name__ == "__main__":
    main()
