"""Shared runs against none, and two kinds of processors against one, on real networks: equal boxes in turns.

  batches  requests a second where all connections ask at once, asked of `meaning`: >= 1.25 times. Three boxes: with
           batches, without, and without once more, which says how much two equal boxes differ; all get the same
           arrivals
  kinds    mixed frames (an item of each network, one after the other on each connection), asked: >= 1.3 times as many
           on both kinds as on `cpu` alone; no network by itself below 0.97

By requests of `/v2` with an item each, as a device of the zoo sends it (of `meaning` sixteen tokens), from a process
of its own.
"""

import argparse
import json
import statistics
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from appliance.demo.zoo import Zoo, ZooModel
from appliance.domain.catalogue import TaskKind
from appliance.modelstore.orders import InspectOrder
from appliance.modelstore.stages.inspect import inspect
from appliance.modelstore.stages.samples import decoded, target_of, unlabelled
from appliance.tasks.base import step_inputs
from appliance.tasks.defaults import infer_spec
from appliance.tasks.metadata import parse_spec
from benchmarks import _box as boxes
from benchmarks import _results as results
from benchmarks import _zoo
from benchmarks._pipelines import BOTH, CPU, computed_s, settled
from tests.e2e.load import drive

TOKENS = {name: np.ones((1, 16), np.int64) for name in ("input_ids", "attention_mask", "token_type_ids")}
BOXES = {
    "batches": {
        name: {"APPLIANCE_POLICIES__BATCHING": policy}
        for name, policy in (("on", "by-profile"), ("off", "none"), ("again", "none"))
    },
    "kinds": {"on": {"APPLIANCE_PROCESSORS": BOTH}, "off": {"APPLIANCE_PROCESSORS": CPU}},
}
MODELS = {"batches": ["meaning", "read-text", "page-side"], "kinds": ["find-text", *_zoo.MODELS, "meaning"]}
FRAMES = 4
Inputs = dict[str, np.ndarray]


@dataclass(frozen=True)
class Subject:
    """A box that is asked for a network."""

    box: boxes.LiveBox
    path: str
    requests: list[bytes]

    def counts(self) -> tuple[int, int]:
        """Items and runs so far."""
        with self.box.http() as http:
            (row,) = http.get(f"/v2/models/{self.path}/stats").json()["model_stats"]
        return row["inference_count"], row["execution_count"]

    def rate(self, connections: int, seconds: float) -> float:
        driven = drive(self.box.port, self.requests, connections, seconds, in_turn=len(self.requests) > 1)
        return float(driven["count"] / driven["seconds"])


def main() -> None:
    """Run the part that is asked for."""
    parser = results.parser(__doc__)
    parser.add_argument("--part", choices=BOXES, default="batches")
    parser.add_argument("--models", nargs="+", help="networks of the demo's zoo")
    parser.add_argument("--variants", nargs="+", default=["fp32"], help="of each, where they share runs")
    parser.add_argument("--connections", type=int, help="16, of `kinds` 4")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=3.0, help="of each turn")
    parser.add_argument("--keep", type=Path, help="folder for the imported models, used again by the next run")
    options = results.options(parser)
    options.connections = options.connections or (16 if options.part == "batches" else 4)
    settings = BOXES[options.part]
    with _zoo.kept(options.keep) as state, ExitStack() as stack:
        models = tuple(options.models or MODELS[options.part])
        zoo = _zoo.imported(state, "demo", models, ("int8",), **settings["on"])
        with boxes.box(state, **settings["on"]) as box:
            settled(box, 30)
        live = {name: stack.enter_context(boxes.box(_zoo.copied(state, name), **own)) for name, own in settings.items()}
        (_batches if options.part == "batches" else _kinds)(live, zoo, options)


def _asked(live: Mapping[str, boxes.LiveBox], path: str, items: Sequence[Inputs]) -> dict[str, Subject]:
    return {
        name: Subject(box, path, [boxes.infer_request(path, box.key, inputs) for inputs in items])
        for name, box in live.items()
    }


def _rates(asked: Mapping[str, Subject], options: argparse.Namespace) -> dict[str, list[float]]:
    """Each box is first, second and last equally often."""
    rates: dict[str, list[float]] = {name: [] for name in asked}
    for one in asked.values():
        one.rate(2, 1.0)
    for number in range(options.rounds):
        for name in _order(asked, number):
            rates[name].append(asked[name].rate(options.connections, options.seconds))
    return rates


def _order(asked: Mapping[str, Subject], number: int) -> list[str]:
    names = list(asked)
    at = number % len(names)
    return names[at:] + names[:at]


def _items(model: ZooModel, count: int) -> list[Inputs]:
    """Of `count` of its files, at the input size of its most accurate variant, decoded as its task says: what a network
    does not take is refused, and which kind of processor is the quicker goes by the size.
    """
    if model.name == "meaning":
        return [TOKENS] * count
    metadata = {key: value for key, value in model.metadata.items() if key != "task"}
    stated = parse_spec(TaskKind(model.task), metadata)
    with tempfile.TemporaryDirectory() as folder:
        found = inspect(InspectOrder(str(model.model), f"{folder}/out", stated), lambda *progress: None)
    guess = infer_spec(stated.kind, found.inputs, found.outputs, found.metadata_props)
    task = parse_spec(stated.kind, metadata, base=guess)
    size, *_ = found.ladder or (None,)
    target = target_of(found, size, {name: str(path) for name, path in model.assets.items()})
    samples = unlabelled([str(path) for path in model.inputs], count)
    return [step_inputs(decoded(sample, task, target).steps[0], task, {}) for sample in samples]


def _variants(box: boxes.LiveBox, name: str) -> dict[str, Any]:
    """By name, the application's first choice first."""
    with box.http() as http:
        found = {one["name"]: one for one in http.get(f"/v1/models/{name}/variants").json()["items"]}
        return {each: found[each] for each in http.get(f"/v1/applications/{name}").json()["variants"]}


# -- kinds -------------------------------------------------------------------------------------------------------------


def _kinds(live: Mapping[str, boxes.LiveBox], zoo: Zoo, options: argparse.Namespace) -> None:
    frames: list[dict[str, Subject]] = []
    first_ms = best_ms = 0.0
    for model in zoo.models:
        variant, found = next(iter(_variants(live["on"], model.name).items()))
        # The least of what was measured, alone and beside others, for whatever disturbs only adds.
        times = {
            f"{profile['kind']}_ms": min(row["p50_ms"] for row in profile["latencies"] if row["batch"] == 1)
            for profile in found["profiles"]
        }
        first_ms, best_ms = first_ms + next(iter(times.values())), best_ms + min(times.values())
        results.row(f"{model.name} {variant}", **times, serves_on=json.dumps(found["serves_on"]))
        frames.append(_asked(live, f"{model.name}/versions/{variant}", _items(model, FRAMES)))
        _compared(model.name, 1, frames[-1], options)
    results.row("mixed frames that the best choice by these profiles gives / cpu alone", ratio=first_ms / best_ms)
    mixed = {
        name: Subject(box, "", [one for row in zip(*(f[name].requests for f in frames), strict=True) for one in row])
        for name, box in live.items()
    }
    _compared("mixed frames", len(frames), mixed, options)


def _compared(what: str, answers: int, asked: Mapping[str, Subject], options: argparse.Namespace) -> None:
    """`answers` to a frame."""
    before_s = {name: computed_s(one.box) for name, one in asked.items()}
    rates = _rates(asked, options)
    spent_s = {name: (computed_s(one.box) - before_s[name]) / sum(rates[name]) for name, one in asked.items()}
    results.row(
        f"{what}: both kinds / cpu",
        **results.spread(results.ratios(rates["on"], rates["off"])),
        per_s=statistics.median(rates["on"]) / answers,
        cpu_per_s=statistics.median(rates["off"]) / answers,
        by_processor_time=spent_s["off"] / spent_s["on"],
        asked="≥ 1.3" if answers > 1 else "≥ 0.97",
    )


# -- batches -----------------------------------------------------------------------------------------------------------


def _batches(live: Mapping[str, boxes.LiveBox], zoo: Zoo, options: argparse.Namespace) -> None:
    for model in zoo.models:
        for variant, found in _variants(live["on"], model.name).items():
            rows = {f"batch_{row['batch']}_ms": row["p50_ms"] for row in found["profile"]["latencies"]}
            shared = found["profile"]["shared_rows_max"]
            results.row(f"{model.name} {variant}", rows_that_may_share_a_run=shared, **rows)
            if shared > 1 and variant in options.variants:
                _with_and_without(_asked(live, f"{model.name}/versions/{variant}", _items(model, 1)), options)


def _with_and_without(asked: Mapping[str, Subject], options: argparse.Namespace) -> None:
    before = asked["on"].counts()
    rates = _rates(asked, options)
    results.row(
        f"{asked['on'].path}, {options.connections} connections: with batches / without",
        **results.spread(results.ratios(rates["on"], rates["off"])),
        per_s=statistics.median(rates["on"]),
        without_per_s=statistics.median(rates["off"]),
        two_without=statistics.median(results.ratios(rates["again"], rates["off"])),
        items_a_run=_shared(asked["on"], before),
        asked="≥ 1.25 (`meaning`)",
    )


def _shared(one: Subject, before: tuple[int, int]) -> float:
    items, runs = (now - then for now, then in zip(one.counts(), before, strict=True))
    return items / max(1, runs)


if __name__ == "__main__":
    main()
