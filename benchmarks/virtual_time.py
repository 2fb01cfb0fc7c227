"""An hour of Table II's five applications at one request a second each, in virtual time: wall seconds (asked: at
most 5).
"""

import argparse
import statistics
import time
from pathlib import Path

from appliance.lab.registry import FAMILIES
from appliance.lab.scenario import read_scenario
from appliance.lab.simulation import simulate

SCENARIO = Path(__file__).parents[1] / "scenarios" / "edge-multiai-table2.toml"
ASKED_S = 5.0


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/bench virtual_time")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--policy", action="append", choices=sorted(FAMILIES["eviction"]), help="again for more; all")
    arguments = parser.parse_args()
    print(f"{'policy':<12} {'requests':>8} {'wall s':>7} {'CPU s':>7} {'us/request':>11}  asked <= {ASKED_S:g} s")
    for policy in arguments.policy or sorted(FAMILIES["eviction"]):
        scenario = read_scenario(SCENARIO, {"policies": {"eviction": policy}})
        walls: list[float] = []
        cpus: list[float] = []
        for _ in range(arguments.repeat):
            wall_s, cpu_s = time.perf_counter(), time.process_time()
            requests = len(simulate(scenario).outcome.answers)
            walls.append(time.perf_counter() - wall_s)
            cpus.append(time.process_time() - cpu_s)
        wall_s, cpu_s = statistics.median(walls), statistics.median(cpus)
        verdict = "ok" if wall_s <= ASKED_S else "slower than asked"
        print(f"{policy:<12} {requests:>8} {wall_s:>7.2f} {cpu_s:>7.2f} {cpu_s / requests * 1e6:>11.0f}  {verdict}")


if __name__ == "__main__":
    main()
