"""Values for the inputs of trial runs: the likeliest first, from a sample of the tenant to ones.

Most networks run on any numbers. Where one reads a shape, a scale or a count from an input, or indexes a table with it,
not every value will do.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from onnx import GraphProto

from appliance.domain.catalogue import DefaultValue, TaskSpec, TensorSpec
from appliance.domain.errors import BadInput
from appliance.modelstore.stages import graph as facts
from appliance.modelstore.stages.indices import index_limits, readers_of, smallest_limits
from appliance.modelstore.stages.samples import Sample, decoded
from appliance.tasks.base import Target

_SHAPES = {"Reshape": 1, "Expand": 1, "Tile": 1, "ConstantOfShape": 0}
"""Operators that read a shape, or how often to repeat, and the place of the input that has it."""
_FILES_MAX = 8
"""Largest number of calibration files that are looked at."""
EXAMPLE_VALUES_MAX = 1024
"""Largest length of an example; a longer vector is data, no shape and no scale."""


@dataclass(frozen=True, slots=True)
class TrialInputs:
    """Values of one attempt; the fields have the meaning of those in `TaskSpec`."""

    index_limits: Mapping[str, int]
    examples: Mapping[str, DefaultValue]


def trial_inputs(graph: GraphProto, task: TaskSpec, sample: TrialInputs | None) -> list[TrialInputs]:
    """Return what to try, the likeliest first and each once: what the task has, a sample's values, what the graph
    tells, zeros, ones.
    """
    limits, shapes, all_ones = index_limits(graph), wanted_shapes(graph), ones(graph)
    tried = [
        TrialInputs(limits, shapes),
        TrialInputs(smallest_limits(graph, limits), {}),
        TrialInputs(limits, all_ones | shapes),
        TrialInputs(limits, all_ones),
    ]
    if sample is not None:
        tried.insert(0, TrialInputs(dict(sample.index_limits) | limits, shapes | dict(sample.examples)))
    if task.index_limits or task.examples:  # of a variant: those of its model
        tried.insert(0, TrialInputs(task.index_limits, task.examples))
    return [one for place, one in enumerate(tried) if one not in tried[:place]]


def wanted_shapes(graph: GraphProto) -> dict[str, DefaultValue]:
    """Return values for each input that an operator reads as a shape. They fit every tensor: −1 and then ones for
    Reshape, ones for other operators.
    """
    found: dict[str, DefaultValue] = {}
    for tensor in _vectors(graph):
        if not tensor.shape or not tensor.shape[0] or not tensor.datatype.startswith("INT"):
            continue
        readers = {node.op_type for node, at in readers_of(graph, tensor.name) if _SHAPES.get(node.op_type) in at}
        if readers:
            first = -1 if "Reshape" in readers else 1
            found[tensor.name] = DefaultValue(tensor.datatype, tensor.shape, (first, *[1] * (tensor.shape[0] - 1)))
    return found


def ones(graph: GraphProto) -> dict[str, DefaultValue]:
    """Return ones for each scalar or vector of numbers."""
    return {
        tensor.name: DefaultValue(tensor.datatype, tensor.shape, (1,) * math.prod(tensor.shape))
        for tensor in _vectors(graph)
        if tensor.datatype not in ("BOOL", "BYTES")
    }


def sampled(
    graph: GraphProto, task: TaskSpec, calibration: Sequence[str], assets: Mapping[str, str]
) -> TrialInputs | None:
    """Return the scalars and vectors of the first file that the task reads, and the range of its whole numbers; None
    where there is no such file.

    Larger inputs are data, which each run draws anew: otherwise two rows of a batch would always be equal. So they
    would with whole numbers below 1, which a sample of zeros shows.
    """
    inputs, outputs = (tuple(map(facts.spec, values)) for values in (graph.input, graph.output))
    for path in calibration[:_FILES_MAX]:
        with suppress(BadInput):
            steps = decoded(Sample(Path(path)), task, Target(inputs, outputs, assets=assets)).steps
            if steps:
                return _seen(graph, steps[0])
    return None


def _seen(graph: GraphProto, step: Mapping[str, np.ndarray]) -> TrialInputs:
    limits = {
        name: int(array.max()) + 1
        for name, array in step.items()
        if array.dtype.kind in "iu" and array.size and array.min() >= 0 and array.max() > 0
    }
    examples = {
        tensor.name: DefaultValue(tensor.datatype, tensor.shape, tuple(step[tensor.name].ravel().tolist()))
        for tensor in _vectors(graph)
        if tensor.name in step and _is_example(step[tensor.name], tensor)
    }
    return TrialInputs(limits, examples)


def _is_example(array: np.ndarray, tensor: TensorSpec) -> bool:
    """Return whether an array of a sample can be stored as an example: numbers in the shape of the input."""
    return array.shape == tensor.shape and array.dtype.kind in "biuf" and bool(np.isfinite(array).all())


def _vectors(graph: GraphProto) -> Iterator[TensorSpec]:
    """Return the inputs with at most one axis, of a known length."""
    stored = {tensor.name for tensor in graph.initializer}
    for value in graph.input:
        if value.name in stored or not value.type.tensor_type.HasField("shape"):
            continue
        tensor = facts.spec(value)
        if len(tensor.shape) <= 1 and 0 <= math.prod(tensor.shape) <= EXAMPLE_VALUES_MAX:
            yield tensor
