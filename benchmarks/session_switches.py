"""Switches of sessions onto variants in memory, with room for 5 and for 3 of 16 networks, against the paper's.

Asked (Jellyfish §VI-G, JF-19): of devices' switches 0.92 onto a variant in memory with room for 5, 0.83 with room for
3; beside it the same without neighbours. Real networks (`_sized_zoo.py`) of about the same size in memory on the box's
own processor, one worker (as each worker of the paper has its own memory); the SDK's sockets, emulated links along a
trace. Counted by the box: `switches` of devices, `selections` (variants of all plans, which is what the paper counts)
and `changes` (of these what the plan before did not have). Also told: bytes read from disk meanwhile (JF-24), and
whether the ledger ever held more than its budget. The links need root. `--state` keeps the networks for the next time.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from appliance.client import Client
from appliance.client.device import Box, Device, Latency
from appliance.clock import NS_PER_S
from appliance.domain.session import FrameEnd
from appliance.lab.links.link import LinkShape
from appliance.lab.links.trace import Trace, drawn
from benchmarks import _results as results
from benchmarks._box import free_port, of_children, samples
from benchmarks._cameras import jpeg, looking
from benchmarks._sized_zoo import APPLICATION, SIZES, made
from tests.e2e.live_scenario import asked_in
from tests.e2e.server import Server, running_server
from tests.fakes.network.network import DeviceLink, Network, unavailable

FOUND = ("awake", "asleep", "absent")
COUNTED = ("switches", "selections", "changes")
LOADS = (("loads", ""), ("wakes", ""))
SETTLE_S = 5.0
LOOK_S = 0.1


@dataclass
class Figures:
    """What a run came to."""

    counts: dict[tuple[str, str], float] = field(default_factory=dict)
    """Of what, and how it was found."""
    answered: int = 0
    ended: int = 0
    read_bytes: int = 0
    over_bytes: int = 0
    awake: list[int] = field(default_factory=list)
    """Builds in memory at each look, ..."""
    asleep_bytes: int = 0
    """... and the most that others kept asleep."""


def main() -> None:
    """Print the figures."""
    parser = results.parser(__doc__)
    parser.add_argument("--state", type=Path, help="folder of the networks; made where there is none")
    parser.add_argument("--seconds", type=float, default=60.0, help="of each run")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--devices", type=int, default=3)
    parser.add_argument("--fps", type=float, default=5.0)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--slo", type=float, default=150.0, help="milliseconds")
    parser.add_argument("--room", type=int, nargs="*", default=[5, 3])
    options = results.options(parser)
    why = unavailable()
    if why is not None:
        sys.exit(f"session_switches: no emulated links, {why}")
    with tempfile.TemporaryDirectory(prefix="session-switches-") as name:
        folder = options.state or Path(name)
        folder.mkdir(parents=True, exist_ok=True)
        state = made(folder)
        sizes, asleep = _bytes(state)
        figures = {"least_MB": min(sizes) / 1e6, "most_MB": max(sizes) / 1e6, "asleep_MB": max(asleep) / 1e6}
        results.row("16 networks", **figures, devices=options.devices, fps=options.fps)
        for room in options.room:
            # Of any of them so many are awake at once, while the others sleep: that is no more than their sessions.
            budget = room * max(sizes) + (len(sizes) - room) * max(asleep)
            for with_neighbours in (True, False):
                runs = [
                    _run(state, folder, budget, options, number, with_neighbours=with_neighbours)
                    for number in range(options.rounds)
                ]
                _tell(f"room for {room}, {'with' if with_neighbours else 'without'} neighbours", runs)


def _tell(what: str, runs: Sequence[Figures]) -> None:
    for name in COUNTED:
        counts = {found: sum(run.counts[name, found] for run in runs) for found in FOUND}
        loaded = counts[FOUND[0]] / max(1.0, sum(counts.values()))
        results.row(f"{what}: {name}", in_memory=loaded, **counts, asked="0.92, 0.83 of switches")
    ended = sum(run.ended for run in runs)
    results.row(
        what,
        in_time=sum(run.answered for run in runs) / max(1, ended),
        frames=ended,
        awake=statistics.mean(count for run in runs for count in run.awake),
        asleep_MB=max(run.asleep_bytes for run in runs) / 1e6,
        **{key[0]: sum(run.counts[key] for run in runs) for key in LOADS},
        read_from_disk_MB=sum(run.read_bytes for run in runs) / 1e6,
        above_the_budget_bytes=max(run.over_bytes for run in runs),
    )


def _bytes(state: Path) -> tuple[list[int], list[int]]:
    """What they take in memory, and what stays of that when they sleep."""
    with running_server(state, APPLIANCE_GUARD__ISOLATION="none") as server, server.client() as client:
        profiles = [variant.profile for variant in client.variants("sizes") if variant.profile is not None]
    return [one.resident_bytes for one in profiles], [one.asleep_bytes or 0 for one in profiles]


def _run(
    state: Path, folder: Path, budget: int, options: argparse.Namespace, number: int, *, with_neighbours: bool
) -> Figures:
    names = [f"d-{at}" for at in range(options.devices)]
    links = {name: _link(f"{number}/{name}") for name in names}
    figures = Figures()
    settings = {
        "APPLIANCE_GUARD__ISOLATION": "none",
        "APPLIANCE_MEMORY__BUDGET_BYTES": str(budget),
        "APPLIANCE_RESIDENCY__NEIGHBOURS_SHARE": "1" if with_neighbours else "0",
        "APPLIANCE_HTTP__HOST": "0.0.0.0",
        "APPLIANCE_PROCESSORS": json.dumps(
            [{"kind": "cpu", "name": "cpu", "workers": options.workers, "threads_per_run": 1}]
        ),
    }
    with Network(links, folder) as network, _in(network, state, settings) as server:
        key, port = server.admin_key, server.url.rpartition(":")[2]
        ask: Any = partial(asked_in, server, network)
        ask(_bring_all)
        devices: list[Device] = []
        for name in names:
            device = Device(
                Box(f"http://{network.address[name]}:{port}", key),
                APPLICATION,
                fps=options.fps,
                promise=Latency(options.slo, options.fps),
                name=name,
                wait=True,
                encode=lambda frame, size_px, quality: jpeg(min(size_px, SIZES[-1]), 12, 75),
            )
            network.devices[name].run(device.join)
            devices.append(device)
        try:
            with looking(devices, options.fps, np.zeros((640, 640, 3), np.uint8)):
                time.sleep(SETTLE_S)
                before = ask(lambda client: _metrics(client.metrics()))
                read, ends = _read_bytes(server.process.pid), _ends(devices)
                until_s = time.monotonic() + options.seconds
                while time.monotonic() < until_s:
                    memory = ask(lambda client: client.memory())
                    figures.over_bytes = max(figures.over_bytes, memory.used_bytes - memory.budget_bytes)
                    figures.asleep_bytes = max(figures.asleep_bytes, memory.asleep_bytes)
                    figures.awake.append(sum(build.state == "resident" for build in memory.builds))
                    time.sleep(LOOK_S)
                after = ask(lambda client: _metrics(client.metrics()))
                figures.read_bytes = _read_bytes(server.process.pid) - read
                answered, ended = (now - then for now, then in zip(_ends(devices), ends, strict=True))
        finally:
            for name, device in zip(names, devices, strict=True):
                network.devices[name].run(device.leave)
        figures.counts = {key: after[key] - before[key] for key in after}
        figures.answered, figures.ended = answered, ended
    return figures


@contextmanager
def _in(network: Network, state: Path, settings: dict[str, str]) -> Iterator[Server]:
    """The box, in its network."""
    running = running_server(state, free_port(), **settings)
    server = network.box.run(running.__enter__)
    try:
        yield server
    finally:
        network.box.run(lambda: running.__exit__(None, None, None))


def _metrics(text: str) -> dict[tuple[str, str], float]:
    found = {
        (name, labels["found"]): value
        for name in COUNTED
        for labels, value in samples(text, f"appliance_session_{name}_total")
    }
    return found | {key: samples(text, f"appliance_{key[0]}_total")[0][1] for key in LOADS}


def _link(seed: str) -> DeviceLink:
    """Uplinks begin at a random point of an LTE trace; downlinks are as fast as the fastest."""
    random = Random(seed)
    trace = drawn("lte", random.randrange(10**6))
    up = trace.since(random.randrange(trace.period_ns))
    return DeviceLink(
        LinkShape(up, 10.0, 1.0), LinkShape(Trace((0,), (30e6,), NS_PER_S), 10.0, 1.0), random.randrange(99)
    )


def _ends(devices: Sequence[Device]) -> tuple[int, int]:
    """Frames in time, and all that have ended."""
    counts = [device.counts.ends for device in devices]
    return sum(one[FrameEnd.ANSWERED] for one in counts), sum(sum(one.values()) for one in counts)


def _read_bytes(pid: int) -> int:
    """Of the box and its children, from the disk."""
    return int(of_children(pid, lambda process: process.io_counters().read_bytes))


def _bring_all(client: Client) -> None:
    """Each variant is loaded once, so that all sleep, and what the box has of them on disk is in the page cache."""
    for size in SIZES:
        client.load_application(APPLICATION, f"v{size}")


if __name__ == "__main__":
    main()
