"""Batching against none, per network of the demo zoo: requests/s where all ask at once, P99 at part load, overload.

Asked: `meaning` at least 1.25 times the requests/s; every network's P99 at 10, 50 and 90 % of the load without batches
at most 1.03, 1.1 and 1.0 times theirs; in time at 150 % no fewer. Two boxes with the same imports take turns, so both
see the same minutes; by requests of `/v2` with one item each, from a process of its own on the same processors.
"""

import argparse
import base64
import json
import shutil
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from tests.benchmarks import _subjects as subjects
from tests.benchmarks import _zoo

LOADS = (0.1, 0.5, 0.9, 1.5)
POLICIES = ("by-profile", "none")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="+", default=["meaning"])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument("--loads", action="store_true", help="also open-loop arrivals at part load and overload")
    parser.add_argument("--keep", type=Path, help="folder for the imported models, used again by the next run")
    options = parser.parse_args()
    with _zoo.kept(options.keep) as state:
        _zoo.imported(state, "demo", tuple(options.models))
        other = state.with_name("state-none")
        shutil.rmtree(other, ignore_errors=True)
        shutil.copytree(state, other)
        with (
            subjects.box(state, APPLIANCE_POLICIES__BATCHING=POLICIES[0]) as ours,
            subjects.box(other, APPLIANCE_POLICIES__BATCHING=POLICIES[1]) as none,
        ):
            for name in options.models:
                _compare(name, ours, none, options)


def _compare(name: str, ours: subjects.LiveBox, none: subjects.LiveBox, options: argparse.Namespace) -> None:
    with ours.http() as http:
        inputs = one_item(http.get(f"/v2/models/{name}").json()["inputs"])
        order = http.get(f"/v1/applications/{name}").json()["variants"]
        variants = {v["name"]: v for v in http.get(f"/v1/models/{name}/variants").json()["items"]}
    for variant in order:
        profile = variants[variant]["profile"]
        rows = ", ".join(f"{row['batch']}: {row['p50_ms']:.2f}" for row in profile["latencies"])
        print(f"{name} {variant}: ms by batch {rows}; rows that may share a run {profile['shared_rows_max']}")
        _compare_variant(f"{name}/versions/{variant}", inputs, (ours, none), options)


def _compare_variant(
    path: str, inputs: dict[str, np.ndarray], boxes: tuple[subjects.LiveBox, ...], options: argparse.Namespace
) -> None:
    pairs = [(box, subjects.infer_request(path, box.key, inputs)) for box in boxes]
    for box, request in pairs:
        subjects.drive(box.port, [request], 2, 1.0)
    before = _counts(boxes[0], path)
    rounds = [
        [subjects.drive(b.port, [r], options.connections, options.seconds)["count"] / options.seconds for b, r in pairs]
        for _ in range(options.rounds)
    ]
    items, runs = (now - then for now, then in zip(_counts(boxes[0], path), before, strict=True))
    ratios = [a / b for a, b in rounds]
    medians = [statistics.median(figures) for figures in zip(*rounds, strict=True)]
    print(
        f"  {options.connections} connections: {medians[0]:.1f} against {medians[1]:.1f}/s, median ratio "
        f"{statistics.median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f}); {items / max(1, runs):.2f} items "
        "a run",
        flush=True,
    )
    if options.loads:
        for load in LOADS:
            _at_load(load, medians[1], pairs, options)


def _at_load(load: float, most: float, pairs: list[tuple[Any, bytes]], options: argparse.Namespace) -> None:
    found = [
        [_offer(box, request, load * most, 2 * options.seconds, seed) for box, request in pairs]
        for seed in range(options.rounds)
    ]
    p99 = [a["p99_ms"] / b["p99_ms"] for a, b in found]
    in_time = [a["in_time"] / max(1, b["in_time"]) for a, b in found]
    print(
        f"  {load:4.0%} ({load * most:.1f}/s): P99 {statistics.median(a['p99_ms'] for a, _ in found):.1f} against "
        f"{statistics.median(b['p99_ms'] for _, b in found):.1f} ms, median ratio {statistics.median(p99):.2f} "
        f"({min(p99):.2f}-{max(p99):.2f}); in time {statistics.median(in_time):.3f}",
        flush=True,
    )


def _offer(box: subjects.LiveBox, request: bytes, rate: float, seconds: float, seed: int) -> dict[str, Any]:
    order = {
        "port": box.port,
        "request": base64.b64encode(request).decode(),
        "rate": rate,
        "seconds": seconds,
        "deadline_ms": 500,
        "connections": 500,
        "seed": seed,
    }
    command = [sys.executable, "-m", "tests.benchmarks._open_load"]
    done = subprocess.run(command, input=json.dumps(order).encode(), stdout=subprocess.PIPE, check=True)
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def one_item(described: list[dict[str, Any]]) -> dict[str, np.ndarray]:
    """Inputs of one item: sixteen tokens, a line of text of 160 pixels, a picture of 320."""
    made = {}
    for one in described:
        usual = 16 if one["datatype"] == "INT64" else 160 if 48 in one["shape"] else 320
        shape = [1, *(side if side > 0 else usual for side in one["shape"][1:])]
        is_number = one["datatype"] == "INT64"
        made[one["name"]] = np.ones(shape, np.int64) if is_number else np.zeros(shape, np.float32)
    return made


def _counts(box: subjects.LiveBox, path: str) -> tuple[int, int]:
    """Items and runs so far."""
    with box.http() as http:
        (row,) = http.get(f"/v2/models/{path}/stats").json()["model_stats"]
    return row["inference_count"], row["execution_count"]


if __name__ == "__main__":
    main()
