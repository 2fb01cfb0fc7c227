"""A scenario with devices live (a box on an emulated processor, the SDK's sockets, emulated links), against the lab.

Asked: served, interval, drop, P50 and P99 0.85 to 1.15 times the lab's; misses within half a point. The
links need root; with `--plain` devices are on the machine's own network, which is no comparison. A device is a
thread: tens of them, on a machine that is not busy.
"""

import sys
from pathlib import Path
from typing import Any

from appliance.lab.scenario import Scenario, read_scenario
from appliance.lab.simulation import simulate
from benchmarks import _results as results
from tests.e2e.live_scenario import live
from tests.fakes.network.network import unavailable

FIGURES = ("served_mean", "offload_interval_mean", "drop_mean", "within_slo", "in_time", "sent", "removals")


def main() -> None:
    """Run the scenario, or cut the link."""
    parser = results.parser(__doc__)
    parser.add_argument("scenario", type=Path, nargs="?", default=Path("scenarios/traffic-lte.toml"))
    parser.add_argument("--seconds", type=float, help="in place of the scenario's duration_s")
    parser.add_argument("--devices", type=int, help="of each entry, in place of its count")
    parser.add_argument("--plain", action="store_true", help="without emulated links")
    options = results.options(parser)
    why = unavailable()
    if why is not None and not options.plain:
        sys.exit(f"streams: no emulated links, {why}; --plain runs without")
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


if __name__ == "__main__":
    main()
