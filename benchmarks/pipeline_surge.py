"""Frames of three pipelines that show eight items from one moment on, in virtual time: how many are late from then on.

Like the part `items` of `pipeline_load`, but the networks take what is written here, about what they take on two cores,
so that nothing else at work on the machine counts. `pipeline_surge.py [--fps 8.6] [--slowness 1.12] [--draws 10]`. The
draws differ in when each client's frames come; they keep their distances, so that where two fall together they go on
doing so. Asked: late frames, in seconds of them, ≤ 1.
"""

import argparse
import statistics
from typing import Any

from appliance.lab.scenario import parse_scenario
from appliance.lab.simulation import simulate

FULL_MS = {"signs": 305, "people": 140, "street": 107}
"""Processor time of a frame with its items: each pipeline asks for as much of the processors."""
PIPELINES = (
    ("signs", 600, "find-text", "read-text", 8),
    ("people", 400, "faces", "who", 8),
    ("street", 400, "objects", "what", 2),
)
"""Name, SLO in ms, the network of a frame, that of its items, and how many these are."""
RUNS_MS = {
    "find-text": {1: 120},
    "read-text": {1: 25, 2: 45, 4: 88, 8: 175},
    "faces": {1: 30, 2: 58},
    "who": {1: 19, 2: 36, 4: 66, 8: 132},
    "objects": {1: 95},
    "what": {1: 11, 2: 20, 4: 40, 8: 80},
}
CLIENTS = 4
"""Of each pipeline."""


def main() -> None:
    """Print the late frames of each draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fps", type=float, default=8.6, help="frames a second of all pipelines")
    parser.add_argument("--slowness", type=float, default=1.12, help="times what runs are written to take")
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--before", type=int, default=20, help="seconds without items")
    parser.add_argument("--after", type=int, default=20, help="seconds with them")
    options = parser.parse_args()
    late_s = []
    for seed in range(options.draws):
        found: Any = simulate(parse_scenario(scenario(options, seed))).outcome.document()["pipelines"]
        late = {name: one["frames"] - one["finished_in_time"] for name, one in found.items()}
        late_s.append(sum(late.values()) / options.fps)
        print(f"draw {seed}: {late_s[-1]:.2f} s of late frames, {late}", flush=True)
    mean, median = statistics.mean(late_s), statistics.median(late_s)
    print(f"\n0 to 8 items at {options.fps:g} frames/s: mean {mean:.2f}, median {median:.2f}, most {max(late_s):.2f} s")


def scenario(options: argparse.Namespace, seed: int) -> dict[str, Any]:
    """As `appliance simulate` reads it."""
    parts = {name: 1.0 / full_ms for name, full_ms in FULL_MS.items()}
    pipelines = []
    for name, slo_ms, whole, each, items in PIPELINES:
        fps = options.fps * parts[name] / sum(parts.values()) / CLIENTS
        shown = [0] * int(options.before * fps) + [items] * (int(options.after * fps) + 2)
        stages = [
            {"name": "find", "application": whole},
            {"name": "crop", "do": "crop", "after": "find", "items": shown, "takes_ms": 0.4},
            {"name": "each", "application": each, "after": "crop"},
        ]
        clients = [{"count": CLIENTS, "fps": fps}]
        pipelines.append({"name": name, "latency_slo_ms": slo_ms, "stages": stages, "clients": clients})
    return {
        "seed": seed,
        "duration_s": options.before + options.after,
        "box": {"memory_mb": 1000, "processors": [{"name": "cpu", "concurrency": 2}]},
        "models": [{"name": name, "variants": [_variant(runs, options.slowness)]} for name, runs in RUNS_MS.items()],
        "applications": [{"name": name, "model": name} for name in RUNS_MS],
        "pipelines": pipelines,
    }


def _variant(runs_ms: dict[int, int], slowness: float) -> dict[str, Any]:
    latency_ms = {"cpu": {str(batch): slowness * ms for batch, ms in runs_ms.items()}}
    return {"name": "int8", "size_mb": 10, "accuracy": 80, "load_ms": 50, "latency_ms": latency_ms}


if __name__ == "__main__":
    main()
