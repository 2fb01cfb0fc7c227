"""Accuracy of batches of mixed widths against one by one, on the labelled lines of text of the demo zoo, on each kind.

Asked: at most 0.002 less. The import's own search says which padding a recogniser bears; then all lines of its
evaluation set run in batches of four whose widths end in the same step, in an order that mixes them, by the sessions
of serving.
"""

import argparse
import json
import tempfile
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from appliance.demo.zoo import default_folder, fetch
from appliance.domain.catalogue import Precision, TaskKind, TaskSpec
from appliance.domain.hardware import PreparedForm
from appliance.domain.padding import Padding, widest
from appliance.modelstore.orders import EvaluateOrder, Inspection, InspectOrder, MadeVariant, MakeOrder
from appliance.modelstore.stages.accuracy import evaluate
from appliance.modelstore.stages.inspect import inspect
from appliance.modelstore.stages.samples import Sample, decoded, labelled, target_of
from appliance.modelstore.stages.variants import make
from appliance.runtime.processors.rows import run_rows
from appliance.runtime.processors.sessions import sessions_of
from appliance.tasks import TASKS
from appliance.tasks.base import Decoded, Score
from appliance.tasks.defaults import infer_spec
from appliance.tasks.metadata import parse_spec
from appliance.tasks.padding import Padded, cropped

SAMPLES = 1000
Line = tuple[Sample, Decoded]


def main() -> None:
    """Print a line for each network and kind."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="+", default=["read-text", "read-text-v6"])
    parser.add_argument("--kinds", nargs="+", default=["cpu", "openvino"])
    parser.add_argument("--batch", type=int, default=4)
    options = parser.parse_args()
    zoo = fetch("demo", default_folder(), lambda *progress: None)
    for name in options.models:
        model = next(model for model in zoo.models if model.name == name)
        with tempfile.TemporaryDirectory() as folder:
            metadata = {key: value for key, value in model.metadata.items() if key != "task"}
            stated = parse_spec(TaskKind(model.task), metadata)
            inspection = inspect(InspectOrder(str(model.model), f"{folder}/out", stated), _quiet)
            guess = infer_spec(stated.kind, inspection.inputs, inspection.outputs, inspection.metadata_props)
            task = parse_spec(stated.kind, metadata, base=guess)
            made = make(MakeOrder(inspection, task, Precision.FP32, f"{folder}/made"), _quiet).variants[0]
            evaluation = str(model.evaluation)
            found = evaluate(EvaluateOrder(inspection, task, (made,), evaluation), _quiet)
            padding = found.paddings[0]
            if padding is None:
                print(f"{name}: bears no padding")
                continue
            print(f"{name}: {padding.fill.value}, {padding.evidence}")
            lines = _lines(evaluation, task, inspection)
            for kind in options.kinds:
                _compare(f"{name} on {kind}", kind, made, task, lines, padding, options.batch)


def _quiet(share: float, message: str) -> None:
    pass


def _lines(evaluation: str, task: TaskSpec, inspection: Inspection) -> list[Line]:
    samples = labelled(evaluation, SAMPLES)
    return [(sample, decoded(sample, task, target_of(inspection, None, {}))) for sample in samples]


def _compare(
    words: str, kind: str, made: MadeVariant, task: TaskSpec, lines: list[Line], padding: Padding, batch: int
) -> None:
    sessions = sessions_of(kind, 1, 1)
    loaded = sessions.load(PreparedForm("lines", made.path, Path(made.path).stat().st_size, optimised=False, kind=kind))
    own = {id(line): sessions.run(loaded, line[1].steps[0], None) for line in lines}
    mixed: dict[int, dict[str, Any]] = {}
    batches = padded = 0
    order = np.random.default_rng(0).permutation(len(lines))

    def step(line: Line) -> str:
        return json.dumps(padding.stepped(_shapes(line), {}))

    for _, several in groupby(sorted((lines[at] for at in order), key=step), key=step):
        same = list(several)
        for at in range(0, len(same), batch):
            group = same[at : at + batch]
            ran = widest([_shapes(line) for line in group])
            if kind == "openvino":
                ran = padding.stepped(ran, {})
            inputs = [Padded(line[1].steps[0], ran, padding.fill) for line in group]
            outputs = run_rows(sessions.run, [1] * len(group), loaded, inputs, None)
            batches += 1
            for line, rows in zip(group, outputs, strict=True):
                padded += _shapes(line) != ran
                mixed[id(line)] = cropped(rows, padding, _shapes(line), ran)
    one_by_one, together = (_accuracy(task, lines, outputs) for outputs in (own, mixed))
    print(
        f"{words}: {len(lines)} lines, {len(lines) / batches:.1f} a run, {padded} of them padded; accuracy "
        f"{together.value:.4f} mixed, {one_by_one.value:.4f} one by one: {together.value - one_by_one.value:+.4f}",
        flush=True,
    )


def _shapes(line: Line) -> dict[str, tuple[int, ...]]:
    return {name: array.shape for name, array in line[1].steps[0].items()}


def _accuracy(task: TaskSpec, lines: list[Line], outputs: dict[int, dict[str, Any]]) -> Score:
    reads = TASKS[task.kind]
    scores = [reads.accuracy(reads.encode([outputs[id(line)]], line[1], task).body, line[0].truth) for line in lines]
    return sum(scores[1:], scores[0])


if __name__ == "__main__":
    main()
