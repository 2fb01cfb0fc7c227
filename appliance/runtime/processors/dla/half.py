"""Networks in half precision throughout, as TensorRT from 11 on wants them for a DLA: it is told no precision any more,
each tensor is computed in the type that the network says.

What callers send and get stays in their types: whoever runs the engine converts (`dla/session.py`). Runs in the
measuring child, which may import onnx.
"""

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from onnx import AttributeProto, GraphProto, ModelProto, TensorProto

_FLOAT_OPERANDS = {"Resize": (1, 2), "Upsample": (1,)}
"""Operators that take some of their inputs as floats only, whatever they compute in: scales and regions."""
LARGEST = 65504.0
"""Of half precision. What reaches further ends there: minus infinity, as masks write it, is no less than that."""


def make_half(model: "ModelProto") -> list[str]:
    """Rewrite the main graph in place: its floats, what goes in and comes out included; the names of those of these
    that were floats.

    Raises: ValueError where it has control flow.
    """
    from onnx import TensorProto

    graph = model.graph
    if any(attribute.HasField("g") or attribute.graphs for node in graph.node for attribute in node.attribute):
        raise ValueError("it has control flow")
    kept = {
        node.input[at]
        for node in graph.node
        for at in _FLOAT_OPERANDS.get(node.op_type, ())
        if at < len(node.input) and node.input[at]
    }
    _convert_values(graph, kept)
    for node in graph.node:
        for attribute in node.attribute:
            _convert_attribute(node.op_type, attribute, is_kept=not kept.isdisjoint(node.output))
    del graph.value_info[:]
    floats = []
    for value in (*graph.input, *graph.output):
        kind = value.type.tensor_type
        if kind.elem_type == TensorProto.FLOAT and value.name not in kept:
            kind.elem_type = TensorProto.FLOAT16
            floats.append(value.name)
    return floats


def _convert_values(graph: "GraphProto", kept: set[str]) -> None:
    for tensor in graph.initializer:
        if tensor.name not in kept:
            _convert(tensor)


def _convert_attribute(op_type: str, attribute: "AttributeProto", *, is_kept: bool) -> None:
    from onnx import TensorProto

    if attribute.HasField("t") and not is_kept:
        _convert(attribute.t)
    elif (op_type, attribute.name) == ("Cast", "to") and attribute.i == TensorProto.FLOAT and not is_kept:
        attribute.i = TensorProto.FLOAT16


def _convert(tensor: "TensorProto") -> None:
    from onnx import TensorProto, numpy_helper

    if tensor.data_type != TensorProto.FLOAT:
        return
    array = numpy_helper.to_array(tensor)
    small = np.clip(array, -LARGEST, LARGEST).astype(np.float16)
    tensor.CopyFrom(numpy_helper.from_array(small, tensor.name))
