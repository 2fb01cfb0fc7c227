"""The residency loop with 10 to 1,000 applications, three requests each: processor time a request, the longest turn.

In virtual time: what is timed is the box's own code, on the processor that it keeps from serving. Memory holds all of
them, or four in ten.
"""

import argparse
import time
from random import Random
from typing import Any

from appliance.lab.scenario import parse_scenario
from appliance.lab.simulation import simulate
from appliance.runtime.residency.loop import ResidencyLoop

_VARIANTS = (("fp32", 40, 0.9, 20.0, 5.0), ("int8", 11, 0.88, 8.0, 4.0))
"""Name, MB, accuracy, load and run, ms."""


class _TimedLoop:
    """Times the turns of every residency loop made meanwhile."""

    def __init__(self) -> None:
        self.turns_s: list[float] = []

    def __enter__(self) -> "_TimedLoop":
        self._step = ResidencyLoop._step
        step, turns_s = self._step, self.turns_s

        def timed(loop: ResidencyLoop) -> None:
            start_s = time.perf_counter()
            step(loop)
            turns_s.append(time.perf_counter() - start_s)

        ResidencyLoop._step = timed  # type: ignore[assignment,method-assign]
        return self

    def __exit__(self, *error: object) -> None:
        ResidencyLoop._step = self._step  # type: ignore[method-assign]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--counts", type=int, nargs="+", default=[10, 100, 300])
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    print("| applications | memory | processor time a request, ms | longest turn, ms | turns | cold |")
    print("| --- | --- | --- | --- | --- | --- |")
    for count in options.counts:
        for share in (1.2, 0.4):
            scenario = parse_scenario(_document(count, share, options.seed))
            start_s = time.process_time()
            with _TimedLoop() as timed:
                answers = simulate(scenario).outcome.answers
            each_ms = (time.process_time() - start_s) / len(answers) * 1e3
            cold = sum(answer.kind != "warm" for answer in answers)
            longest_ms = max(timed.turns_s) * 1e3
            print(f"| {count} | {share:.0%} | {each_ms:.2f} | {longest_ms:.1f} | {len(timed.turns_s)} | {cold} |")


def _document(count: int, share: float, seed: int) -> dict[str, Any]:
    chance = Random(seed)
    names = [f"m{i:04}" for i in range(count)]
    starts = [chance.uniform(0, 20) for _ in names]
    times = [[at_s, at_s + 10 + chance.random(), at_s + 20 + chance.random()] for at_s in starts]
    return {
        "box": {"memory_mb": count * 40 * share, "processors": [{"name": "cpu", "concurrency": 2}]},
        "models": [
            {
                "name": name,
                "variants": [
                    {"name": v, "size_mb": mb, "accuracy": accuracy, "load_ms": load, "latency_ms": {"cpu": {"1": run}}}
                    for v, mb, accuracy, load, run in _VARIANTS
                ],
            }
            for name in names
        ],
        "applications": [{"name": name, "model": name} for name in names],
        "arrivals": [{"application": n, "times_s": t} for n, t in zip(names, times, strict=True)],
        "policies": {"eviction": "expected-utility"},
    }


if __name__ == "__main__":
    main()
