"""Forty sessions on a box, ten of them waiting: decisions, event loop, plain requests and a kill, beside what is asked.

  load      asked: decisions <= 20 ms at P99; the event loop held <= 5 ms; P99 of plain requests <= 1.1 times that
            without sessions; after `kill -9`, from the box being ready again to all served <= 1 s. The digits model;
            plain requests come from a process of their own, by turns without devices, beside devices that stream to
            another process which answers at once (a sink: what the devices' processor time costs), and beside the same
            devices at the box: all see the same machine
  planning  a whole box in this process, without devices: of 40 sessions decisions <= 20 ms at P99 and holds <= 5 ms; of
            1,000 reported

`--apart`: box and asker go before all else on the machine (SCHED_RR, needs root), and devices have what these leave:
what sessions cost in the box itself, as where devices have cores of their own. What holds the loop is told by processor
time between two looks a millisecond apart: an upper bound, for devices on the same cores keep the loop from looking.
"""

import argparse
import asyncio
import gc
import json
import multiprocessing
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path

import httpx
import uvloop

from appliance import log
from appliance.client.device import Accuracy, Box, Device, Latency, Promise
from appliance.demo.zoo import toys
from appliance.domain import session
from appliance.runtime.sessions.limits import Limits
from appliance.runtime.sessions.orders import JoinOrder
from appliance.wire.stream import PlanMessage
from benchmarks import _box as boxes
from benchmarks import _results as results
from benchmarks._cameras import jpeg, looking
from tests.api.stand import furnish, running
from tests.e2e.live_scenario import decisions_in
from tests.e2e.server import Server, running_server
from tests.fakes.session_box import session_box

PATIENCE_S = 60.0
LONG_S = 0.005
_WITH: list[tuple[int, int]] = []
"""Seconds with sessions, from and to."""


def main() -> None:
    """Run the parts that are asked for."""
    parser = results.parser(__doc__)
    parser.add_argument("--part", nargs="+", choices=("load", "planning"), default=["load", "planning"])
    parser.add_argument("--served", type=int, default=30)
    parser.add_argument("--waiting", type=int, default=10)
    parser.add_argument("--fps", type=float, default=5.0)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=6.0, help="of each third of a round, and of `planning`")
    parser.add_argument("--rate", type=float, default=40.0, help="plain requests a second")
    parser.add_argument("--apart", action="store_true", help="box and asker go before all else (needs root)")
    parser.add_argument("--counts", type=int, nargs="+", default=[40, 1000], help="sessions of `planning`")
    parser.add_argument("--kinds", type=int, default=8, help="least accuracies that sessions of `planning` differ in")
    options = results.options(parser)
    log.configure("error", "json")
    with tempfile.TemporaryDirectory(prefix="sessions-") as name:
        folder = Path(name)
        keys = asyncio.run(furnish(folder / "state", toys.digits(folder / "digits")))
        if "load" in options.part:
            _load(folder, keys, options)
        if "planning" in options.part:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                for count in options.counts:
                    runner.run(_planned(folder / "state", count, options))


# -- planning ----------------------------------------------------------------------------------------------------------


async def _watch(times_s: list[float]) -> None:
    """Processor time between turns of the event loop."""
    last_s = time.thread_time()
    while True:
        await asyncio.sleep(0)
        now_s = time.thread_time()
        times_s.append(now_s - last_s)
        last_s = now_s


async def _planned(state: Path, count: int, options: argparse.Namespace) -> None:
    limits = {"per_tenant_max": 4096, "all_max": 4096}
    async with running(state, sessions=limits) as appliance, AsyncExitStack() as streams:
        box = appliance.running()
        sessions, planning = box.sessions, box.sessions.planning
        sessions.register.limits = Limits(**limits, pools_max=4096)
        application = box.catalogue.entry("harbour/digits").application
        for number in range(count):
            live = await sessions.join(_order(application.id, number, options, waits=number >= count - count // 4))
            streams.enter_context(sessions.attached(live))  # a session without a stream is soon planned no more
        waiting = sum(live.state.value == "waiting" for live in sessions.live.values())
        gc.freeze()  # as the server does when it is ready
        await asyncio.sleep(2)
        times_s, before = list[float](), planning.figures.plans
        watching = asyncio.create_task(_watch(times_s))
        await asyncio.sleep(options.seconds)
        watching.cancel()
        decisions, mean_ms, p99_ms = planning.decision_ms()
        results.row(
            f"{count} sessions, {waiting} waiting, without devices",
            longest_hold_ms=1e3 * max(times_s),
            holds_above_5_ms=sum(one > LONG_S for one in times_s),
            decisions=decisions,
            mean_ms=mean_ms,
            P99_ms=p99_ms,
            plans=planning.figures.plans - before,
            asked="hold ≤ 5 ms, P99 ≤ 20 ms" if count <= 40 else "",
        )
        for live in list(sessions.live.values()):
            await sessions.end(live)


def _order(application_id: str, number: int, options: argparse.Namespace, *, waits: bool) -> JoinOrder:
    promise: session.Promise
    if waits:
        promise = session.LatencyPromise(1.0, 10.0)  # sooner than anything is answered
    elif number % 4 == 0:
        promise = session.AccuracyPromise(0.3)
    else:
        promise = session.LatencyPromise(500.0 + number % 7, 0.1, number % options.kinds / 10.0 or None)
    return JoinOrder("harbour", "key", application_id, 10.0, promise, wait=True, rtt_ms=5.0, uplink_bps=50e6)


# -- load --------------------------------------------------------------------------------------------------------------


@dataclass
class Crowd:
    """Devices of the SDK around a real box, whose cameras give the same small JPEG."""

    devices: list[Device] = field(default_factory=list)

    def answered(self) -> list[int]:
        """Frames in time, of each."""
        return [device.counts.ends[session.FrameEnd.ANSWERED] for device in self.devices]

    def states(self) -> dict[str, int]:
        """How many are in which state."""
        states = [device.state for device in self.devices]
        return {state: states.count(state) for state in sorted(set(states))}


@contextmanager
def crowd(box: Box, application: str, promises: Sequence[Promise], fps: float) -> Iterator[Crowd]:
    """All have joined; they leave at the end."""
    made = Crowd()
    try:
        with looking(made.devices, fps, jpeg(160)):
            for number, promise in enumerate(promises):
                device = Device(box, application, fps=fps, promise=promise, name=f"d-{number}", wait=True)
                device.join()
                made.devices.append(device)
            yield made
    finally:
        for device in made.devices:
            device.leave()


def _load(folder: Path, keys: dict[str, str], options: argparse.Namespace) -> None:
    _go_first(is_first=options.apart)
    holds_in = folder / "holds.json"
    settings = {"HOLDS": str(holds_in), "APPLIANCE_GUARD__ISOLATION": "none"}
    with boxes.box(folder / "state", None, "benchmarks._held_box", **settings) as held:
        _measure(held, keys, options)
    holds = json.loads(holds_in.read_text())
    found = [ms for second, ms in holds.items() if any(a <= int(second) < b for a, b in _WITH)]
    above = sum(ms > 5 for ms in found)
    results.row(
        "event loop held", most_ms=max(found, default=0.0), seconds_above_5_ms=above, seconds=len(found), asked="≤ 5 ms"
    )
    with running_server(folder / "state", boxes.free_port(), APPLIANCE_GUARD__ISOLATION="none") as server:
        _kill(server, Box(server.url, keys["device"]), options)


def _go_first(*, is_first: bool) -> None:
    """Whether this process, and those that it starts from now on, go before all others."""
    policy, priority = (os.SCHED_RR, 1) if is_first else (os.SCHED_OTHER, 0)
    if os.sched_getscheduler(0) != policy:
        os.sched_setscheduler(0, policy, os.sched_param(priority))


def _measure(live: boxes.LiveBox, keys: dict[str, str], options: argparse.Namespace) -> None:
    spawn = multiprocessing.get_context("spawn")
    ours, theirs = spawn.Pipe()
    asking = spawn.Process(target=_ask, args=(theirs, live.url, keys["device"], options.rate), daemon=True)
    asking.start()
    _go_first(is_first=False)
    sinks, sink_side = spawn.Pipe()
    sink = spawn.Process(target=_sink, args=(sink_side,), daemon=True)
    sink.start()
    served = _promises(options)
    waiting: list[Promise] = [Latency(1.0, options.fps)] * options.waiting  # sooner than anything is answered
    places = {
        "at a sink": (Box(sinks.recv()), served),
        "at the box": (Box(live.url, keys["device"]), served + waiting),
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
            results.row(f"devices {name}", frames_answered=answered, **states)
    with live.client() as client:
        results.row("decisions of the box", **decisions_in(client.metrics())["sessions"], asked="P99 ≤ 20 ms")
    for name, found in times.items():
        results.row(f"plain requests, devices {name}", requests=len(found), **results.percentiles(found, 50, 99))
    of = {name: results.percentile(found, 99) for name, found in times.items()}
    ratios = {"with_over_without": of["at the box"] / of["without"], "over_sink": of["at the box"] / of["at a sink"]}
    results.row("P99 of plain requests", **ratios, asked="≤ 1.1")
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


def _kill(server: Server, box: Box, options: argparse.Namespace) -> None:
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
        results.row(
            "killed",
            ready_again_after_s=ready_s - killed_s,
            served=len(served),
            of=options.served,
            last_served_s=max(served.values(), default=0.0),
            last_connected_s=max(lined.values(), default=0.0),
            asked="last served ≤ 1 s",
        )


def _ask(pipe: Connection, url: str, key: str, rate: float) -> None:
    """In a process of its own: plain requests for as long as is asked, at a steady rate."""
    picture, headers = jpeg(160), {"Authorization": f"Bearer {key}"}
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


if __name__ == "__main__":
    main()
