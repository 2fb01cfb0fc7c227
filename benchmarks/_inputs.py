"""Tensors of one item for `/v2`, as a network of the zoo takes them: what its devices send, decoded as its task says.

Not made-up sizes: what a network does not take is refused, and which kind of processor is the quicker one depends on
the size.
"""

import tempfile
from collections.abc import Sequence

import numpy as np

from appliance.demo.zoo.entries import ZooModel
from appliance.domain.catalogue import TaskKind
from appliance.modelstore.orders import InspectOrder
from appliance.modelstore.stages.inspect import inspect
from appliance.modelstore.stages.samples import decoded, target_of, unlabelled
from appliance.tasks.base import step_inputs
from appliance.tasks.defaults import infer_spec
from appliance.tasks.metadata import parse_spec


def sent(model: ZooModel, count: int) -> list[dict[str, np.ndarray]]:
    """Of `count` of its files, evenly over all of them, at the input size of its most accurate variant."""
    metadata = {key: value for key, value in model.metadata.items() if key != "task"}
    stated = parse_spec(TaskKind(model.task), metadata)
    with tempfile.TemporaryDirectory() as folder:
        inspection = inspect(InspectOrder(str(model.model), f"{folder}/out", stated), lambda *progress: None)
    guess = infer_spec(stated.kind, inspection.inputs, inspection.outputs, inspection.metadata_props)
    task = parse_spec(stated.kind, metadata, base=guess)
    size, *_ = inspection.ladder or (None,)
    target = target_of(inspection, size, {name: str(path) for name, path in model.assets.items()})
    samples = unlabelled([str(path) for path in model.inputs], count)
    return [step_inputs(decoded(sample, task, target).steps[0], task, {}) for sample in samples]


def told(inputs: Sequence[dict[str, np.ndarray]]) -> str:
    """Their shapes, each once."""
    shapes = {" ".join("x".join(map(str, array.shape)) for array in one.values()): None for one in inputs}
    return ", ".join(shapes)
