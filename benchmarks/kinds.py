"""Two kinds of processors on the same cores against ONNX Runtime alone: mixed frames of the demo zoo, and each network.

Asked: mixed frames at least 1.3 times as many; no network by itself below 0.97. Two boxes with the same imports take
turns: one has both kinds and chooses for each network, the other has `cpu` only; both answer with the same variants.
A mixed frame is one item of each network: each connection sends them one after the other, and each begins with another
one. Items are what the devices of the zoo send. Printed beside: the ratio per processor second of the boxes, which
neighbours disturb less, and the most that this machine gives, by what the imports measured.
"""

import argparse
import json
import shutil
import statistics
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from benchmarks import _box, _inputs, _zoo
from benchmarks import _results as results
from tests.e2e.load import drive

_IDLE_S, _IDLE_SHARE = 15.0, 0.1
"""A box that measures computes all the time, but for the moments between two of its children."""
_FRAMES = 4
"""So many items of each network, so that lines of text and sentences differ in length."""
Inputs = dict[str, np.ndarray]
Pair = tuple[bytes, bytes]
"""The same request for each box."""
BOTH = json.dumps([{"kind": "cpu"}, {"kind": "openvino"}])


def main() -> None:
    """Print the table."""
    parser = results.parser(__doc__)
    parser.add_argument("--models", nargs="+", default=["find-text", *_zoo.MODELS, "meaning"])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--connections", type=int, default=4)
    parser.add_argument("--wait-s", type=float, default=900.0, help="for the measurements on the second kind")
    parser.add_argument("--keep", type=Path, help="folder for the imported models, used again by the next run")
    options = results.options(parser)
    with _zoo.kept(options.keep) as state:
        zoo = _zoo.imported(state, "demo", tuple(options.models), APPLIANCE_PROCESSORS=BOTH)
        inputs = {model.name: _inputs.sent(model, _FRAMES) for model in zoo.models}
        with _box.box(state, APPLIANCE_PROCESSORS=BOTH) as box:
            _measured(box, options.wait_s)
        other = state.with_name("state-cpu")
        shutil.rmtree(other, ignore_errors=True)
        shutil.copytree(state, other)
        with _box.box(state, APPLIANCE_PROCESSORS=BOTH) as both, _box.box(other) as cpu:
            compare(both, cpu, inputs, options)


def _measured(box: _box.LiveBox, wait_s: float) -> None:
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
    results.say("still measuring: what follows is disturbed by it")


def _computed_s(box: _box.LiveBox) -> float:
    """Processor time of the box and of the children that it has now."""
    total_s = 0.0
    for process in (root := psutil.Process(box.process.pid), *root.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            total_s += times.user + times.system
    return total_s


def compare(
    both: _box.LiveBox, cpu: _box.LiveBox, inputs: Mapping[str, Sequence[Inputs]], options: argparse.Namespace
) -> None:
    """Print what two boxes answer, each model by itself and all mixed. `inputs`: of each model as many."""
    requests: list[list[Pair]] = []
    ceiling = Ceiling()
    for name, own in inputs.items():
        with both.http() as http:
            variant = http.get(f"/v1/applications/{name}").json()["variants"][0]
            found = {v["name"]: v for v in http.get(f"/v1/models/{name}/variants").json()["items"]}[variant]
        times_ms = {profile["kind"]: one_item_ms(profile["latencies"]) for profile in found["profiles"]}
        ceiling.add(times_ms)
        times = {f"{kind}_ms": ms for kind, ms in times_ms.items()}
        results.row(f"{name} {variant}", **times, serves_on=found["serves_on"], inputs=_inputs.told(own))
        path = f"{name}/versions/{variant}"
        requests.append([_pair(path, one, (both, cpu)) for one in own])
        _print(name, 1, _rounds(both, cpu, requests[-1], options))
    if len(requests) > 1:
        frames = [pair for frame in zip(*requests, strict=True) for pair in frame]
        results.row("mixed frames that the best choice by these profiles gives / cpu alone", ratio=ceiling.ratio)
        _print("mixed frames", len(requests), _rounds(both, cpu, frames, options))


class Ceiling:
    """What the best choice of a kind for each network gives, by what the imports measured."""

    def __init__(self) -> None:
        self._first_ms, self._best_ms = 0.0, 0.0

    def add(self, times_ms: Mapping[str, float]) -> None:
        """Of one network, by kind, the first kind first."""
        self._first_ms += next(iter(times_ms.values()))
        self._best_ms += min(times_ms.values())

    @property
    def ratio(self) -> float:
        """Frames with one item of each network against those of the first kind alone."""
        return self._first_ms / self._best_ms


def one_item_ms(latencies: Sequence[Mapping[str, Any]]) -> float:
    """A run of one item: the least of what was measured, alone and beside others, for whatever disturbs only adds."""
    return min(float(row["p50_ms"]) for row in latencies if row["batch"] == 1)


def _pair(path: str, inputs: Inputs, boxes: tuple[_box.LiveBox, _box.LiveBox]) -> Pair:
    both, cpu = (_box.infer_request(path, box.key, inputs) for box in boxes)
    return both, cpu


@dataclass(frozen=True, slots=True)
class Figures:
    """Of one box in one round: answers a second, and processor time an answer."""

    per_s: float
    computed_ms: float


def _rounds(
    both: _box.LiveBox, cpu: _box.LiveBox, requests: Sequence[Pair], options: argparse.Namespace
) -> list[tuple[Figures, Figures]]:
    ours, theirs = [pair[0] for pair in requests], [pair[1] for pair in requests]
    for box, each in ((both, ours), (cpu, theirs)):
        _driven(box, each, options.connections, options.seconds)
    return [
        (
            _driven(both, ours, options.connections, options.seconds),
            _driven(cpu, theirs, options.connections, options.seconds),
        )
        for _ in range(options.rounds)
    ]


def _driven(box: _box.LiveBox, requests: list[bytes], connections: int, seconds: float) -> Figures:
    before_s = _computed_s(box)
    found = drive(box.port, requests, connections, seconds, in_turn=True)
    return Figures(found["count"] / found["seconds"], (_computed_s(box) - before_s) * 1e3 / found["count"])


def _print(name: str, answers: int, rounds: list[tuple[Figures, Figures]]) -> None:
    """`answers` to a frame."""
    ratios = [a.per_s / b.per_s for a, b in rounds]
    times = [b.computed_ms / a.computed_ms for a, b in rounds]
    one, other = (statistics.median(each.per_s for each in box) / answers for box in zip(*rounds, strict=True))
    by_time = statistics.median(times)
    asked = "≥ 1.3" if answers > 1 else "≥ 0.97"
    results.row(name, per_s=one, cpu_per_s=other, **results.spread(ratios), by_processor_time=by_time, asked=asked)


if __name__ == "__main__":
    main()
