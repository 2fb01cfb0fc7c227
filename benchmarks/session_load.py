"""Forty sessions on a real box, ten of them waiting: decisions, the event loop, plain requests beside them, and a kill.

Asked: decisions ≤ 20 ms at P99; the event loop held ≤ 5 ms; P99 of plain requests ≤ 1.1 times that without sessions;
after `kill -9`, from the box being ready again to all served ≤ 1 s. The digits model; plain requests come from a
process of their own, by turns without devices, beside devices that stream to another process which answers at once (a
sink: what the devices' processor time costs), and beside the same devices at the box: all see the same machine.

`--apart`: box and asker go before all else on the machine (SCHED_RR, needs root), and devices have what these leave:
what sessions cost in the box itself, as where devices have cores of their own.

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
from appliance.wire.stream import PlanMessage
from benchmarks._box import free_port
from benchmarks._crowd import crowd, jpeg
from tests.api.stand import furnish
from tests.e2e import server as boxes
from tests.e2e.live_scenario import decisions_in
from tests.fakes.session_box import session_box

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
    parser.add_argument("--apart", action="store_true", help="box and asker go before all else (needs root)")
    parser.add_argument("--callbacks", action="store_true", help="the longest callbacks, on asyncio's loop")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="session-load-") as name:
        folder = Path(name)
        keys = asyncio.run(furnish(folder / "state", toys.digits(folder / "digits")))
        _go_first(is_first=options.apart)
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
        command = [sys.executable, "-m", "benchmarks._held_box", str(folder / "holds.json"), *how]
        with (state_dir / "server.log").open("ab") as log:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=settings)
        return process, boxes._ready_url(process, state_dir)

    boxes._start = start
    with boxes.running_server(folder / "state", free_port(), APPLIANCE_GUARD__ISOLATION="none") as server:
        yield server


def _go_first(*, is_first: bool) -> None:
    """Whether this process, and those that it starts from now on, go before all others."""
    policy, priority = (os.SCHED_RR, 1) if is_first else (os.SCHED_OTHER, 0)
    if os.sched_getscheduler(0) != policy:
        os.sched_setscheduler(0, policy, os.sched_param(priority))


def _measure(server: boxes.Server, keys: dict[str, str], options: argparse.Namespace) -> None:
    spawn = multiprocessing.get_context("spawn")
    ours, theirs = spawn.Pipe()
    asking = spawn.Process(target=_ask, args=(theirs, server.url, keys["device"], options.rate), daemon=True)
    asking.start()
    _go_first(is_first=False)
    sinks, sink_side = spawn.Pipe()
    sink = spawn.Process(target=_sink, args=(sink_side,), daemon=True)
    sink.start()
    served = _promises(options)
    waiting: list[Promise] = [Latency(1.0, options.fps)] * options.waiting  # sooner than anything is answered
    places = {
        "at a sink": (Box(sinks.recv()), served),
        "at the box": (Box(server.url, keys["device"]), served + waiting),
    }
    times: dict[str, list[float]] = {"without": [], **{name: [] for name in places}}
    for _ in range(options.rounds):
        times["without"] += _asked(ours, options.seconds)
        for name, (box, promises) in places.items():
            with crowd(box, "digits", promises, options.fps) as devices:
                time.sleep(3)
                began = int(time.monotonic())
                times[name] += _asked(ours, options.seconds)
                if name == "at the box":
                    _WITH.append((began, int(time.monotonic())))
                states, answered = devices.states(), sum(devices.answered())
            print(f"{name}: {states}, {answered} frames answered")
    with Client(server.url, server.admin_key) as client:
        print(f"decisions of the box: {decisions_in(client.metrics())}")
    for name, found in times.items():
        p50, p99 = _at(found, 0.5), _at(found, 0.99)
        print(f"plain requests, devices {name:10} P50 {p50:.2f}  P99 {p99:.2f} ms  ({len(found)})")
    of = {name: _at(found, 0.99) for name, found in times.items()}
    print(
        f"P99 with / without: {of['at the box'] / of['without']:.2f} (asked ≤ 1.1), "
        f"with / at a sink: {of['at the box'] / of['at a sink']:.2f}"
    )
    asking.terminate()
    sink.terminate()


def _sink(pipe: Connection) -> None:
    """In a process of its own: takes devices' streams as a box does, and answers at once."""
    plan = PlanMessage(number=1, variant="fp32", size=160, quality=75)
    with session_box(lambda frame, body: {"labels": [{"label": "3", "score": 0.9}]}, plan=plan) as box:
        pipe.send(box.url)
        pipe.recv()


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
