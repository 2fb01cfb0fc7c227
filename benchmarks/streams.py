"""A scenario with devices live (a box on an emulated processor, the SDK's sockets, emulated links), against the lab.

Asked: served, interval, drop, P50 and P99 0.85 to 1.15 times the lab's; misses within half a point. `--part cuts`: the
link of the first device is cut again and again; asked: at most 0.5 s from the link being back to an answer in time.
The links need root; with `--plain` devices are on the machine's own network, which is no comparison. A device is a
thread: tens of them, on a machine that is not busy.
"""

import argparse
import asyncio
import sys
import tempfile
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from appliance.clock import NS_PER_S, SystemClock
from appliance.domain.session import FrameEnd
from appliance.lab.links.network import Network, unavailable
from appliance.lab.scenario import Scenario, read_scenario
from appliance.lab.simulation import simulate
from benchmarks import _results as results
from tests.e2e.live_scenario import START_S, bring, link_of, live, plans_of, server_in
from tests.fakes.emulated_box import furnish
from tests.fakes.emulated_devices import Box, Cameras

FIGURES = ("served_mean", "offload_interval_mean", "drop_mean", "within_slo", "in_time", "sent", "removals")


def main() -> None:
    """Run the scenario, or cut the link."""
    parser = results.parser(__doc__)
    parser.add_argument("scenario", type=Path, nargs="?", default=Path("scenarios/traffic-lte.toml"))
    parser.add_argument("--part", choices=("live", "cuts"), default="live")
    parser.add_argument("--seconds", type=float, help="in place of the scenario's duration_s")
    parser.add_argument("--devices", type=int, help="of each entry, in place of its count")
    parser.add_argument("--plain", action="store_true", help="without emulated links")
    parser.add_argument("--cuts", type=int, default=10)
    parser.add_argument("--outage", type=float, default=1.5, help="seconds of each cut")
    options = results.options(parser)
    why = unavailable()
    if why is not None and not (options.plain and options.part == "live"):
        sys.exit(f"streams: no emulated links, {why}; --plain runs without")
    if options.part == "cuts":
        _cuts(options)
        return
    scenario = read_scenario(options.scenario, {} if options.seconds is None else {"duration_s": options.seconds})
    if options.devices is not None:
        fewer = [entry.model_copy(update={"count": options.devices}) for entry in scenario.sessions]
        scenario = scenario.model_copy(update={"sessions": fewer})
    _compare(scenario, has_links=not options.plain)


def _compare(scenario: Scenario, *, has_links: bool) -> None:
    box, late_ms = live(scenario, has_links=has_links)
    lab: dict[str, Any] = simulate(scenario).outcome.document()
    results.row("frames captured late", P99_ms=late_ms)
    rows = [(key, lab["sessions"][key], box["sessions"][key]) for key in FIGURES]
    rows += [(f"latency {key}, ms", lab["latency_ms"][key], box["latency_ms"][key]) for key in ("p50", "p99")]
    results.head("figure", "lab", "live", "live / lab")
    for name, one, other in rows:
        is_known = isinstance(one, int | float) and isinstance(other, int | float)
        results.cells(name, one, other, other / one if is_known and one else None)
    missed = [None if side["slo_attainment"] is None else 100 * (1 - side["slo_attainment"]) for side in (lab, box)]
    results.cells("misses of sent, points", *missed, None)
    results.row("decisions of the box", **box["decisions"]["sessions"])


def _cuts(options: argparse.Namespace) -> None:
    seconds = 5.0 + options.cuts * (options.outage + 6.0)
    scenario = read_scenario(options.scenario, {"duration_s": seconds})
    alone = scenario.sessions[0].model_copy(update={"count": 1, "arrival_rps": None})
    scenario = scenario.model_copy(update={"sessions": [alone]})
    (plan,) = plans_of(scenario, alone)
    with tempfile.TemporaryDirectory(prefix="cuts-") as name, ExitStack() as stack:
        folder = Path(name)
        asyncio.run(furnish(scenario, folder))
        network = stack.enter_context(Network({plan.name: link_of(scenario, plan)}, folder))
        server = stack.enter_context(server_in(scenario, folder, network))
        port = server.url.rpartition(":")[2]
        box = Box(f"http://{network.address[plan.name]}:{port}", server.admin_key)
        cameras = Cameras([plan], network.devices, {plan.name: box})
        bring(server, scenario, network)
        start_ns = SystemClock().now_ns() + int(START_S * NS_PER_S)
        running = threading.Thread(target=cameras.run, args=(start_ns, start_ns + int(seconds * NS_PER_S)))
        running.start()
        time.sleep(START_S + 4.0)
        backs = []
        for _ in range(options.cuts):
            device = cameras.devices[plan.name]
            network.cut(plan.name, 1000.0 * options.outage)
            time.sleep(options.outage)
            back, before = time.perf_counter(), device.counts.ends[FrameEnd.ANSWERED]
            while device.counts.ends[FrameEnd.ANSWERED] == before and time.perf_counter() - back < 5.0:
                time.sleep(0.002)
            backs.append(time.perf_counter() - back)
            time.sleep(2.0)
        running.join()
    results.row(f"{len(backs)} cuts of {options.outage:g} s: back after, s", **results.spread(backs), asked="≤ 0.5")


if __name__ == "__main__":
    main()
