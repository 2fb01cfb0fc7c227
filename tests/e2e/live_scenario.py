"""A scenario with devices, live: a box on an emulated processor, devices with the SDK's sockets, emulated links."""

import asyncio
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from operator import methodcaller
from pathlib import Path
from typing import Any

from appliance.client import Client
from appliance.clock import NS_PER_MS, NS_PER_S, SystemClock
from appliance.lab.composition import input_px
from appliance.lab.faults import LINK_DOWN
from appliance.lab.links.link import LinkShape
from appliance.lab.outcome import Outcome, ProcessorUse
from appliance.lab.scenario import Scenario
from appliance.lab.session_shapes import SessionShape
from appliance.lab.sessions.crowd import SessionFigures, _together
from appliance.lab.sessions.device import PART_BYTES
from appliance.lab.sessions.devices import _arrival_ns, _camera, _reference_stride
from appliance.lab.sessions.ladder import Ladder
from appliance.lab.sessions.network import network_of
from appliance.lab.sessions.tally import Totals
from appliance.lab.workload import nanoseconds
from tests.e2e.server import Server, running_server
from tests.fakes.emulated_box import furnish, settings_of
from tests.fakes.emulated_devices import Accuracy, Box, Cameras, Latency, Plan
from tests.fakes.network.network import DeviceLink, Network

START_S = 3.0
"""From when the box is ready to the beginning of the scenario."""
WARM_UP_MS = 60_000.0
"""A model that comes into memory may miss the promise of its application."""
PORT = 8080


def live(scenario: Scenario, *, has_links: bool) -> tuple[dict[str, Any], float]:
    """The figures of one run, and the P99 of how late frames were captured."""
    plans = [plan for entry in scenario.sessions for plan in plans_of(scenario, entry)]
    with tempfile.TemporaryDirectory(prefix="streams-") as name, ExitStack() as stack:
        folder = Path(name)
        asyncio.run(furnish(scenario, folder))
        network = None
        if has_links:
            links = {plan.name: link_of(scenario, plan) for plan in plans}
            network = stack.enter_context(Network(links, folder))
        server = stack.enter_context(server_in(scenario, folder, network))
        port = server.url.rpartition(":")[2]
        hosts = dict.fromkeys((plan.name for plan in plans), "127.0.0.1") if network is None else network.address
        boxes = {plan.name: Box(f"http://{hosts[plan.name]}:{port}", server.admin_key) for plan in plans}
        cameras = Cameras(plans, None if network is None else network.devices, boxes)
        bring(server, scenario, network)
        assert scenario.duration_s is not None, "checked when it was read"
        start_ns = SystemClock().now_ns() + int(START_S * NS_PER_S)
        end_ns = start_ns + nanoseconds(scenario.duration_s)
        if network is not None:
            stack.enter_context(_outages(scenario, network, start_ns))
        cameras.run(start_ns, end_ns)
        busy = asked_in(server, network, lambda client: client.processors()[0])
        items, runs = asked_in(server, network, lambda client: client.computed())
        memory = asked_in(server, network, lambda client: client.memory())
        decisions = asked_in(server, network, lambda client: decisions_in(client.metrics()))
    processor = scenario.processor
    share = (busy.busy_ms or 0.0) * NS_PER_MS / ((end_ns - start_ns) * processor.concurrency)
    outcome = Outcome(
        end_ns=end_ns - start_ns,
        applications=tuple(one.name for one in scenario.applications),
        answers=tuple(answer for device in cameras.devices.values() for answer in device.answers),
        processors={processor.name: ProcessorUse(share, runs, items)},
        memory_bytes=scenario.memory_bytes,
        memory_peak_bytes=memory.used_bytes,
        loads=0,
        replacements=0,
        evictions=0,
        decisions=decisions,
        sessions=figures(cameras, scenario),
    )
    late = sorted(cameras.late_ms)
    return outcome.document(), late[int(0.99 * len(late))] if late else 0.0


def plans_of(scenario: Scenario, entry: SessionShape) -> Iterator[Plan]:
    """The devices of an entry, which ask an application."""
    assert entry.application is not None
    shape = next(one for one in scenario.applications if one.name == entry.application)
    model = next(one for one in scenario.models if one.name == shape.model)
    assert scenario.duration_s is not None, "checked when it was read"
    accuracies = {variant.name: variant.accuracy for variant in model.variants}
    sides = {variant.name: px for variant in model.variants if (px := input_px(variant)) is not None}
    slo_ms = None if entry.accuracy_slo is not None else entry.latency_slo_ms or shape.latency_slo_ms
    end_ns = nanoseconds(scenario.duration_s)
    for number, name in enumerate(entry.names()):
        arrives_ns = _arrival_ns(scenario, entry, number)
        network = network_of(entry.network, scenario.seed, name, scenario.duration_s, scenario.base_dir, ())
        uplink = network.uplink
        promise: Accuracy | Latency
        if entry.accuracy_slo is not None:
            promise = Accuracy(entry.accuracy_slo, entry.reference)
        else:
            assert slo_ms is not None, "checked when it was read"
            least = None if entry.accuracy_min is None else entry.accuracy_min / 100.0
            promise = Latency(slo_ms, entry.rate_rps or entry.captures_fps, least)
        yield Plan(
            name=name,
            entry=entry.name,
            application=entry.application,
            promise=promise,
            fps=entry.captures_fps,
            weight=entry.weight,
            slo_ms=slo_ms,
            link={"rtt_ms": entry.network.rtt_ms, "uplink_mbps": uplink.rate_bps(arrives_ns) / 1e6},
            uplink_bps=uplink.rate_bps,
            arrives_ns=arrives_ns,
            leaves_ns=end_ns if entry.stay_s is None else min(end_ns, arrives_ns + nanoseconds(entry.stay_s)),
            camera=_camera([model]),
            rates=entry.rates(scenario.base_dir),
            ladder=Ladder(accuracies, sides),
            accuracies=accuracies,
            reference_stride=_reference_stride(scenario, entry, model, network)
            if entry.accuracy_slo is not None and entry.reference == "dedicated"
            else 0.0,
        )


def link_of(scenario: Scenario, plan: Plan) -> DeviceLink:
    """As the lab's, whose delays are drawn by part of a frame and not by packet, but for its buffer: one that keeps
    everything would keep what TCP sends again."""
    entry = next(one for one in scenario.sessions if one.name == plan.entry)
    assert scenario.duration_s is not None, "checked when it was read"
    made = network_of(entry.network, scenario.seed, plan.name, scenario.duration_s, scenario.base_dir, ())
    delay_ms, jitter_ms = entry.network.rtt_ms / 2.0, entry.network.rtt_sd / 2.0**0.5
    down = network_of(
        entry.network.model_copy(
            update={"uplink_mbps": entry.network.downlink_mbps, "uplink_sd": 0.0, "csv": None, "like": None}
        ),
        scenario.seed,
        plan.name,
        scenario.duration_s,
        scenario.base_dir,
        (),
    )
    up, back = (LinkShape(one.uplink, delay_ms, jitter_ms, jitter_bytes=PART_BYTES) for one in (made, down))
    return DeviceLink(up, back)


@contextmanager
def server_in(scenario: Scenario, folder: Path, network: Network | None) -> Iterator[Server]:
    """The box, in its network."""
    settings = settings_of(scenario)
    if network is None:
        with running_server(folder / "state", **settings) as server:
            yield server
        return
    settings["APPLIANCE_HTTP__HOST"] = "0.0.0.0"
    made = running_server(folder / "state", PORT, **settings)
    server = network.box.run(made.__enter__)
    try:
        yield server
    finally:
        network.box.run(lambda: made.__exit__(None, None, None))


def asked_in(server: Server, network: Network | None, ask: Any) -> Any:
    """What the box tells, in its network."""

    def asked() -> Any:
        with Client(server.url.replace("0.0.0.0", "127.0.0.1"), server.admin_key) as client:
            return ask(client)

    return asked() if network is None else network.box.run(asked)


def bring(server: Server, scenario: Scenario, network: Network | None) -> None:
    """Have in memory what is there at the start: each variant is asked once."""
    for application in scenario.applications:
        model = next(one for one in scenario.models if one.name == application.model)
        for variant in model.variants:
            if variant.resident:
                body = {"inputs": {"x": [[1.0]]}}
                ask = methodcaller("predict", application.name, body, variant=variant.name, timeout_ms=WARM_UP_MS)
                asked_in(server, network, ask)


@contextmanager
def _outages(scenario: Scenario, network: Network, start_ns: int) -> Iterator[None]:
    """Cut links at the times of the faults."""
    is_over = threading.Event()
    faults = sorted((fault for fault in scenario.faults if fault.kind == LINK_DOWN), key=lambda fault: fault.at_s)

    def inflict() -> None:
        clock = SystemClock()
        for fault in faults:
            left_s = (start_ns + nanoseconds(fault.at_s) - clock.now_ns()) / NS_PER_S
            if is_over.wait(max(0.0, left_s)):
                return
            names = [
                name for entry in scenario.sessions for name in entry.names() if fault.session in (name, entry.name)
            ]
            for name in names:
                network.cut(name, 1000.0 * (fault.for_s or scenario.duration_s or 0.0))

    thread = threading.Thread(target=inflict)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def figures(cameras: Cameras, scenario: Scenario) -> dict[str, object]:
    """As the lab's."""
    found = []
    for entry in scenario.sessions:
        group = [device for device in cameras.devices.values() if device.plan.entry == entry.name]
        totals = Totals()
        for device in group:
            totals.add(device.tally.totals)
        found.append(
            SessionFigures(
                devices=entry.count,
                served_mean=cameras.served[entry.name] / max(1, cameras.looks),
                totals=totals,
                removals=sum(device.removals for device in group),
                reconnects=sum(device.reconnects for device in group),
                captured=sum(device.counts.captured for device in group),
                sent=sum(device.counts.sent for device in group),
            )
        )
    return _together(found).document()


def decisions_in(metrics: str) -> dict[str, dict[str, float]]:
    """Count and times of the box's decisions on sessions, out of its metrics."""
    values = {}
    for line in metrics.splitlines():
        if line.startswith("appliance_session_decision"):
            name, _, value = line.rpartition(" ")
            values[name] = float(value)
    count = next((value for name, value in values.items() if name.startswith("appliance_session_decisions")), 0.0)
    times = {which: next((1e3 * v for n, v in values.items() if f'"{which}"' in n), 0.0) for which in ("mean", "p99")}
    return {"sessions": {"count": int(count), "mean_ms": round(times["mean"], 4), "p99_ms": round(times["p99"], 4)}}
