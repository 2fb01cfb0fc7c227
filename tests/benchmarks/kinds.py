"""Two kinds of processors on the same cores against ONNX Runtime alone: mixed frames of the demo zoo, and each network.

Asked: mixed frames at least 1.3 times as many; no network by itself below 0.97. Two boxes with the same imports take
turns: one has both kinds and chooses for each network, the other has `cpu` only; both answer with the same variants.
"""

import argparse
import json
import shutil
import statistics
import time
from pathlib import Path

from tests.benchmarks import _subjects as subjects
from tests.benchmarks import _zoo
from tests.benchmarks.batching import one_item

BOTH = json.dumps([{"kind": "cpu"}, {"kind": "openvino"}])


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="+", default=["find-text", *_zoo.MODELS, "meaning"])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--connections", type=int, default=4)
    parser.add_argument("--wait-s", type=float, default=900.0, help="for the measurements on the second kind")
    parser.add_argument("--keep", type=Path, help="folder for the imported models, used again by the next run")
    options = parser.parse_args()
    with _zoo.kept(options.keep) as state:
        _zoo.imported(state, "demo", tuple(options.models))
        with subjects.box(state, APPLIANCE_PROCESSORS=BOTH) as box:
            _measured(box, options.models, options.wait_s)
        other = state.with_name("state-cpu")
        shutil.rmtree(other, ignore_errors=True)
        shutil.copytree(state, other)
        with subjects.box(state, APPLIANCE_PROCESSORS=BOTH) as both, subjects.box(other) as cpu:
            compare(both, cpu, options)


def _measured(box: subjects.LiveBox, models: list[str], wait_s: float) -> None:
    """Wait until every variant that may serve has been measured on both kinds, or cannot be run on the second."""
    limit = time.perf_counter() + wait_s
    while time.perf_counter() < limit:
        with box.http() as http:
            variants = [v for m in models for v in http.get(f"/v1/models/{m}/variants").json()["items"] if v["profile"]]
        left = [v for v in variants if len({profile["kind"] for profile in v["profiles"]}) < 2]
        if not left:
            return
        time.sleep(2)
    print(f"not measured on both: {', '.join(v['name'] for v in left)}")


def compare(both: subjects.LiveBox, cpu: subjects.LiveBox, options: argparse.Namespace) -> None:
    """Print what two boxes answer, each model by itself and all mixed."""
    requests: list[tuple[bytes, bytes]] = []
    for name in options.models:
        with both.http() as http:
            variant = http.get(f"/v1/applications/{name}").json()["variants"][0]
            found = {v["name"]: v for v in http.get(f"/v1/models/{name}/variants").json()["items"]}[variant]
            inputs = one_item(http.get(f"/v2/models/{name}").json()["inputs"])
        times = ", ".join(f"{p['kind']} {p['latencies'][0]['p50_ms']:.2f} ms" for p in found["profiles"])
        print(f"{name} {variant}: {times}; serves on {found['serves_on']}")
        path = f"{name}/versions/{variant}"
        pair = tuple(subjects.infer_request(path, box.key, inputs) for box in (both, cpu))
        requests.append((pair[0], pair[1]))
        _print(name, _rounds(both, cpu, [requests[-1]], options))
    if len(requests) > 1:
        _print("mixed frames", _rounds(both, cpu, requests, options))


def _rounds(
    both: subjects.LiveBox, cpu: subjects.LiveBox, requests: list[tuple[bytes, bytes]], options: argparse.Namespace
) -> list[tuple[float, float]]:
    ours, theirs = [pair[0] for pair in requests], [pair[1] for pair in requests]
    for box, each in ((both, ours), (cpu, theirs)):
        subjects.drive(box.port, each, options.connections, 1.0)
    return [
        (
            subjects.drive(both.port, ours, options.connections, options.seconds)["count"] / options.seconds,
            subjects.drive(cpu.port, theirs, options.connections, options.seconds)["count"] / options.seconds,
        )
        for _ in range(options.rounds)
    ]


def _print(name: str, rounds: list[tuple[float, float]]) -> None:
    ratios = [a / b for a, b in rounds]
    one, other = (statistics.median(figures) for figures in zip(*rounds, strict=True))
    print(
        f"  {name}: {one:.1f} against {other:.1f}/s, median ratio {statistics.median(ratios):.2f} "
        f"({min(ratios):.2f}-{max(ratios):.2f})",
        flush=True,
    )


if __name__ == "__main__":
    main()
