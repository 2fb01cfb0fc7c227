"""Two kinds of processors on the same cores against ONNX Runtime alone: mixed frames of the demo zoo, and each network.

Asked: mixed frames at least 1.3 times as many; no network by itself below 0.97. Two boxes with the same imports take
turns: one has both kinds and chooses for each network, the other has `cpu` only; both answer with the same variants.
"""

import argparse
import json
import shutil
import statistics
import time
from contextlib import suppress
from pathlib import Path

import psutil

from tests.benchmarks import _subjects as subjects
from tests.benchmarks import _zoo
from tests.benchmarks.batching import one_item

_IDLE_S, _IDLE_SHARE = 15.0, 0.1
"""Who measures computes all the time, but for the moments between two of its children."""
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
        _zoo.imported(state, "demo", tuple(options.models), APPLIANCE_PROCESSORS=BOTH)
        with subjects.box(state, APPLIANCE_PROCESSORS=BOTH) as box:
            _measured(box, options.wait_s)
        other = state.with_name("state-cpu")
        shutil.rmtree(other, ignore_errors=True)
        shutil.copytree(state, other)
        with subjects.box(state, APPLIANCE_PROCESSORS=BOTH) as both, subjects.box(other) as cpu:
            compare(both, cpu, options)


def _measured(box: subjects.LiveBox, wait_s: float) -> None:
    """Wait until the box has nothing left to measure: it and its children have computed next to nothing for a while."""
    limit = time.perf_counter() + wait_s
    quiet_since, before_s = time.perf_counter(), _computed_s(box)
    while time.perf_counter() < limit:
        time.sleep(1)
        now_s = _computed_s(box)
        if abs(now_s - before_s) > _IDLE_SHARE:
            quiet_since = time.perf_counter()
        before_s = now_s
        if time.perf_counter() - quiet_since > _IDLE_S:
            return
    print("still measuring: what follows is disturbed by it")


def _computed_s(box: subjects.LiveBox) -> float:
    """Processor time of the box and of the children that it has now."""
    total_s = 0.0
    for process in (root := psutil.Process(box.process.pid), *root.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            total_s += times.user + times.system
    return total_s


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
