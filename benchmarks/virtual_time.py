"""The lab in virtual time: wall seconds of an hour of Table II, against 5 asked; random scenarios twice, against equal.

hour   five applications at one request a second each
soak   `--seeds` random scenarios with faults, each twice: runs that fail or differ; tells how to replay them
"""

import argparse
import statistics
import sys
import time
import traceback
from pathlib import Path

from appliance.lab.registry import FAMILIES
from appliance.lab.scenario import read_scenario
from appliance.lab.simulation import simulate
from benchmarks import _results as results
from tests.lab.random_scenarios import random_scenario

SCENARIO = Path(__file__).parents[1] / "scenarios" / "edge-multiai-table2.toml"


def main() -> None:
    """Run the part that is asked for."""
    parser = results.parser(__doc__)
    parser.add_argument("--part", choices=("hour", "soak"), default="hour")
    parser.add_argument("--rounds", type=int, default=3, help="of the hour")
    parser.add_argument("--policy", nargs="+", choices=sorted(FAMILIES["eviction"]), help="all, where none is named")
    parser.add_argument("--seeds", type=int, default=1000, help="of the soak, from --first on")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--duration-s", type=float, default=60.0, help="virtual seconds of each")
    options = results.options(parser)
    if options.part == "soak":
        sys.exit(_soak(options) > 0)
    for policy in options.policy or sorted(FAMILIES["eviction"]):
        scenario = read_scenario(SCENARIO, {"policies": {"eviction": policy}})
        walls, spent = list[float](), list[float]()
        for _ in range(options.rounds):
            wall_s, cpu_s = time.perf_counter(), time.process_time()
            requests = len(simulate(scenario).outcome.answers)
            walls.append(time.perf_counter() - wall_s)
            spent.append(time.process_time() - cpu_s)
        figures = {"wall_s": statistics.median(walls), "processor_s": statistics.median(spent)}
        results.row(policy, requests=requests, **figures, asked="≤ 5 s")


def _soak(options: argparse.Namespace) -> int:
    failed, requests = list[int](), 0
    for seed in range(options.first, options.first + options.seeds):
        try:
            scenario = random_scenario(seed, options.duration_s)
            first = simulate(scenario).outcome
            if simulate(scenario).outcome.answers != first.answers:
                raise AssertionError("a second run of the seed was different")
            requests += len(first.answers)
        except Exception:
            failed.append(seed)
            traceback.print_exc()
            again = f"--part soak --first {seed} --seeds 1 --duration-s {options.duration_s:g}"
            results.say(f"replay: scripts/bench virtual_time {again}")
    results.row("scenarios, each twice", seeds=options.seeds, requests=requests, failed=failed or "none")
    return len(failed)


if __name__ == "__main__":
    main()
