"""Values for the inputs of trial runs: the likeliest first, from a sample of the tenant to ones.

Most networks run on any numbers. Where one reads a shape, a scale or a count from an input, or indexes a table with it,
not every value will do.
"""

import math
from collections.abc import Iterator, Mapping
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

EXAMPLE_VALUES_MAX = 1024
"""Largest length of an example; a longer vector is data, no shape and no scale."""


@dataclass(frozen=True, slots=True)
class TrialInputs:
    """Values of one attempt; the fields have the meaning of those in `TaskSpec`."""

    index_limits: Mapping[str, int]
    examples: Mapping[str, DefaultValue]


def trial_inputs(
    graph: GraphProto, task: TaskSpec, calibration: str | None, assets: Mapping[str, str]
) -> list[TrialInputs]:
    """Return what to try, the likeliest first and each once: a sample's values, what the graph tells, zeros, ones.

    `calibration`: a file of the tenant, left out where the task cannot read it.
    """
    limits, shapes = index_limits(graph), wanted_shapes(graph)
    tried = [
        TrialInputs(limits, shapes),
        TrialInputs(smallest_limits(graph, limits), shapes),
        TrialInputs(limits, ones(graph) | shapes),
    ]
    sampled = None if calibration is None else _sampled(graph, task, Sample(Path(calibration)), assets)
    if sampled is not None:
        tried.insert(0, TrialInputs(dict(sampled.index_limits) | limits, shapes | dict(sampled.examples)))
    return [one for place, one in enumerate(tried) if one not in tried[:place]]


def wanted_shapes(graph: GraphProto) -> dict[str, DefaultValue]:
    """Return for each input that is the shape of a Reshape one that fits every tensor: −1, then ones."""
    return {
        tensor.name: DefaultValue(tensor.datatype, tensor.shape, (-1, *[1] * (tensor.shape[0] - 1)))
        for tensor in _vectors(graph)
        if tensor.shape and any(node.op_type == "Reshape" and 1 in at for node, at in readers_of(graph, tensor.name))
    }


def ones(graph: GraphProto) -> dict[str, DefaultValue]:
    """Return ones for each scalar or vector of numbers."""
    return {
        tensor.name: DefaultValue(tensor.datatype, tensor.shape, (1,) * math.prod(tensor.shape))
        for tensor in _vectors(graph)
        if tensor.datatype not in ("BOOL", "BYTES")
    }


def _sampled(graph: GraphProto, task: TaskSpec, sample: Sample, assets: Mapping[str, str]) -> TrialInputs | None:
    """Return a sample's scalars and vectors, and the range of its whole numbers; None where the task cannot read it.

    Larger inputs are data, which each run draws anew: otherwise two rows of a batch would always be equal.
    """
    inputs, outputs = (tuple(map(facts.spec, values)) for values in (graph.input, graph.output))
    try:
        steps = decoded(sample, task, Target(inputs, outputs, assets=assets)).steps
    except BadInput:
        return None
    step = steps[0] if steps else {}
    limits = {
        name: int(array.max()) + 1
        for name, array in step.items()
        if array.dtype.kind in "iu" and array.size and array.min() >= 0
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
