"""The residency loop with 10 to 1,000 applications, three requests each: processor time a request, the longest hold.

In virtual time: what is timed is the box's own code, on the processor that it keeps from serving. Memory holds all of
them, or four in ten. A hold is the processor time of one callback of the event loop; what the lab has made before, and
its garbage, is left out (`gc.freeze`), as in a box what its start has made.
"""

import argparse
import asyncio
import gc
import time
from random import Random
from typing import Any

from appliance.lab.scenario import parse_scenario
from appliance.lab.simulation import simulate

_VARIANTS = (("fp32", 40, 90.0, 20.0, 5.0), ("int8", 11, 88.0, 8.0, 4.0))
"""Name, MB, accuracy in points, load and run, ms."""
_LONG_S = 0.005


class _Holds:
    """Times every callback of the event loops that run meanwhile: for so long nobody else has a turn."""

    def __init__(self) -> None:
        self.longest_s = 0.0
        self.count = 0
        """Of those above `_LONG_S`."""
        self._is_made = False
        """The first callback has run, in which the lab makes the box."""

    def __enter__(self) -> "_Holds":
        self._run = run = asyncio.Handle._run

        def timed(handle: asyncio.Handle) -> None:
            start_s = time.thread_time()
            run(handle)
            held_s = time.thread_time() - start_s
            if self._is_made:
                self.longest_s = max(self.longest_s, held_s)
                self.count += held_s > _LONG_S
            else:
                gc.freeze()  # as a box does when it has started
                self._is_made = True

        asyncio.Handle._run = timed  # type: ignore[method-assign,assignment]
        return self

    def __exit__(self, *error: object) -> None:
        asyncio.Handle._run = self._run  # type: ignore[method-assign]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--counts", type=int, nargs="+", default=[10, 100, 300])
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    print("| applications | memory | processor time a request, ms | longest hold, ms | holds above 5 ms | cold |")
    print("| --- | --- | --- | --- | --- | --- |")
    for count in options.counts:
        for share in (1.2, 0.4):
            scenario = parse_scenario(_document(count, share, options.seed))
            gc.collect()
            gc.freeze()
            start_s = time.process_time()
            with _Holds() as holds:
                answers = simulate(scenario).outcome.answers
            each_ms = (time.process_time() - start_s) / len(answers) * 1e3
            cold = sum(answer.kind != "warm" for answer in answers)
            longest_ms = holds.longest_s * 1e3
            print(f"| {count} | {share:.0%} | {each_ms:.2f} | {longest_ms:.1f} | {holds.count} | {cold} |")


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
