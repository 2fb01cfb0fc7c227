"""Runs a model of the zoo with bare ONNX Runtime and the box's own tasks: its answers, and how right they are."""

import json
import mimetypes
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort

from appliance.demo.zoo import ZooModel
from appliance.domain.catalogue import TaskKind, TaskSpec, TensorSpec
from appliance.tasks import TASKS
from appliance.tasks.base import Media, Score, Target, run_steps
from appliance.tasks.defaults import infer_spec, parse_spec
from appliance.tasks.embedding import vectors_of
from appliance.tasks.metrics import retrieval

DATATYPES = {"tensor(float)": "FP32", "tensor(double)": "FP64", "tensor(int64)": "INT64"}


@dataclass(frozen=True)
class Judged:
    """A model that is loaded."""

    model: ZooModel
    net: ort.InferenceSession
    spec: TaskSpec
    target: Target

    def answer(self, path: Path) -> dict[str, Any]:
        """What the box would say to this file."""
        task = TASKS[TaskKind(self.model.task)]
        media = Media(path.read_bytes(), mimetypes.guess_type(path)[0] or "")
        decoded = task.decode(media, self.spec, self.target, {})
        outputs, _ = run_steps(decoded, self.spec, self._infer)
        return task.encode(outputs, decoded, self.spec).body

    def score(self) -> Score:
        """Against the labelled evaluation set."""
        assert self.model.evaluation is not None
        truths = json.loads((self.model.evaluation / "truth.json").read_text(encoding="utf-8"))["samples"]
        answers = [self.answer(self.model.evaluation / truth["file"]) for truth in truths]
        if all("group" in truth for truth in truths):
            return retrieval([vectors_of(answer)[0] for answer in answers], [truth["group"] for truth in truths])
        task = TASKS[TaskKind(self.model.task)]
        scores = [task.accuracy(answer, truth) for answer, truth in zip(answers, truths, strict=True)]
        return sum(scores[1:], scores[0])

    def _infer(self, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        names = [output.name for output in self.net.get_outputs()]
        return dict(zip(names, self.net.run(names, inputs), strict=True))


def judged(model: ZooModel) -> Judged:
    """Load `model` as the importer would describe it: what the graph tells, then the tenant's words."""
    options = ort.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    net = ort.InferenceSession(model.model, options, providers=["CPUExecutionProvider"])
    inputs, outputs = _specs(net.get_inputs()), _specs(net.get_outputs())
    entries = {key: value for key, value in model.metadata.items() if key != "task"}
    kind = TaskKind(model.metadata["task"])
    spec = parse_spec(kind, entries, infer_spec(kind, inputs, outputs, net.get_modelmeta().custom_metadata_map))
    height, width = (spec.image.height, spec.image.width) if spec.image else (None, None)
    target = Target(inputs, outputs, height, width, {name: str(path) for name, path in model.assets.items()})
    return Judged(model, net, spec, target)


def _specs(sides: list[Any]) -> tuple[TensorSpec, ...]:
    return tuple(
        TensorSpec(side.name, DATATYPES[side.type], tuple(n if isinstance(n, int) else -1 for n in side.shape))
        for side in sides
    )
