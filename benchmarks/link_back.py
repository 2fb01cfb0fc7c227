"""A link that is gone for a while: how long after it is back until an answer is in time.

Asked: ≤ 0.5 s. The first device of a scenario over its emulated link, live as in `streams`; its link is cut again and
again. Needs root.
"""

import argparse
import asyncio
import statistics
import sys
import tempfile
import threading
import time
from contextlib import ExitStack
from pathlib import Path

from appliance.clock import NS_PER_S, SystemClock
from appliance.domain.session import FrameEnd
from appliance.lab.links.network import Network, unavailable
from appliance.lab.scenario import read_scenario
from benchmarks._emulated_devices import Box, Cameras
from benchmarks.streams import START_S, _bring, _server, link_of, plans_of
from tests.fakes.emulated_box import furnish


def main() -> None:
    """Print the times."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scenario", type=Path, default=Path("scenarios/traffic-lte.toml"))
    parser.add_argument("--cuts", type=int, default=10)
    parser.add_argument("--outage", type=float, default=1.5, help="seconds")
    options = parser.parse_args()
    why = unavailable()
    if why is not None:
        print(f"link_back: skipped, {why}", file=sys.stderr)
        return
    seconds = 5.0 + options.cuts * (options.outage + 6.0)
    scenario = read_scenario(options.scenario, {"duration_s": seconds})
    scenario = scenario.model_copy(
        update={"sessions": [scenario.sessions[0].model_copy(update={"count": 1, "arrival_rps": None})]}
    )
    (plan,) = plans_of(scenario, scenario.sessions[0])
    with tempfile.TemporaryDirectory(prefix="link-back-") as name, ExitStack() as stack:
        folder = Path(name)
        asyncio.run(furnish(scenario, folder))
        network = stack.enter_context(Network({plan.name: link_of(scenario, plan)}, folder))
        server = stack.enter_context(_server(scenario, folder, network))
        port = server.url.rpartition(":")[2]
        box = Box(f"http://{network.address[plan.name]}:{port}", server.admin_key)
        cameras = Cameras([plan], network.devices, {plan.name: box})
        _bring(server, scenario, network)
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
            print(f"back after {backs[-1]:.2f} s", flush=True)
            time.sleep(2.0)
        running.join()
    print(
        f"{len(backs)} outages of {options.outage:g} s: median {statistics.median(backs):.2f} s, "
        f"most {max(backs):.2f} s (≤ 0.5)"
    )


if __name__ == "__main__":
    main()
