"""Random scenarios with faults through the whole engine in virtual time; prints how to replay a seed that fails."""

import argparse
import sys
import time
import traceback

from appliance.lab.simulation import simulate
from tests.lab.random_scenarios import random_scenario


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/bench soak")
    parser.add_argument("--seeds", type=int, default=1000, help="how many, from --first on")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--duration-s", type=float, default=60.0, help="virtual seconds of each")
    arguments = parser.parse_args()
    failed: list[int] = []
    requests = 0
    start_s = time.perf_counter()
    for seed in range(arguments.first, arguments.first + arguments.seeds):
        try:
            scenario = random_scenario(seed, arguments.duration_s)
            first = simulate(scenario).outcome
            if simulate(scenario).outcome.answers != first.answers:
                raise AssertionError("a second run of the seed was different")
            requests += len(first.answers)
        except Exception:
            failed.append(seed)
            traceback.print_exc()
            print(f"replay: scripts/bench soak --first {seed} --seeds 1 --duration-s {arguments.duration_s:g}")
    wall_s = time.perf_counter() - start_s
    print(f"{arguments.seeds} seeds, {requests} requests, each twice, {wall_s:.1f} s; failed: {failed or 'none'}")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
