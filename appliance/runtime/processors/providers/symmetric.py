"""Quantized networks as TensorRT and DLA want them: signed and symmetric.

Networks that are quantized for CPUs have activations of bytes with a zero point, and biases of 32 bits. TensorRT takes
signed bytes with zero point 0 only: each scale grows until the same range fits, which costs up to one bit, and biases
become floats again. Bytes whose lowest value is their zero point have no negative values, and whoever quantizes leaves
a `Relu` before them out for that; so it is put back. Runs in the measuring child, which may import onnx.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto, TensorProto

_LAST = "_symmetric"
_HANDS_ON = frozenset("DequantizeLinear Flatten Identity MaxPool QuantizeLinear Reshape Transpose".split())
"""Operators whose results have no negative values where what they are computed of has none."""
_Array = np.ndarray[Any, Any]


def make_symmetric(model: "ModelProto") -> None:
    """Rewrite the main graph in place; what is symmetric already stays as it is."""
    _Rewriter(model).rewrite()


class _Rewriter:
    def __init__(self, model: "ModelProto") -> None:
        self._graph = model.graph
        self._constants: dict[str, TensorProto] = {one.name: one for one in model.graph.initializer}
        self._made: dict[tuple[str, str], tuple[str, str]] = {}
        """Names of scale and zero point → of those in their place."""
        self._replaced: set[str] = set()
        """Constants that something else stands for now."""

    def rewrite(self) -> None:
        producers = {name: node for node in self._graph.node for name in node.output}
        kept = []
        for node in self._graph.node:
            if node.op_type == "DequantizeLinear" and self._is_bias(node):
                self._unquantize(node)
                continue
            if node.op_type == "QuantizeLinear" and self._is_askew(node):
                if self._has_no_negatives(node) and not self._is_rectified(node.input[0], producers):
                    kept.append(self._without_negatives(node))
                self._replace_parameters(node)
            elif node.op_type == "DequantizeLinear" and self._is_askew(node):
                source = producers.get(node.input[0])
                if node.input[0] in self._constants:
                    self._requantize(node)
                elif source is not None and source.op_type == "QuantizeLinear":
                    self._replace_parameters(node)
            kept.append(node)
        if not self._replaced:
            return
        del self._graph.value_info[:]  # it has the types of before
        del self._graph.node[:]
        self._graph.node.extend(kept)
        used = {one.name for one in self._graph.output}.union(*(_names(node) for node in kept))
        constants = [one for one in self._graph.initializer if one.name in used or one.name not in self._replaced]
        del self._graph.initializer[:]
        self._graph.initializer.extend(constants)

    def _value(self, name: str) -> _Array:
        from onnx import numpy_helper

        return numpy_helper.to_array(self._constants[name])

    def _add(self, name: str, value: _Array) -> str:
        from onnx import numpy_helper

        if name not in self._constants:
            tensor = numpy_helper.from_array(np.ascontiguousarray(value), name)
            self._graph.initializer.append(tensor)
            self._constants[name] = tensor
        return name

    def _is_bias(self, node: "NodeProto") -> bool:
        from onnx import TensorProto

        constant = self._constants.get(node.input[0])
        return constant is not None and constant.data_type == TensorProto.INT32 and node.input[1] in self._constants

    def _is_askew(self, node: "NodeProto") -> bool:
        """Unsigned bytes, or signed ones with another zero point than 0."""
        if len(node.input) < 3 or node.input[1] not in self._constants or node.input[2] not in self._constants:
            return False
        zero = self._value(node.input[2])
        return zero.dtype == np.uint8 or (zero.dtype == np.int8 and bool(zero.any()))

    def _has_no_negatives(self, node: "NodeProto") -> bool:
        zero = self._value(node.input[2])
        return bool((zero == np.iinfo(zero.dtype).min).all())

    def _is_rectified(self, name: str, producers: "Mapping[str, NodeProto]") -> bool:
        """Whether a tensor has no negative values anyway."""
        node = producers.get(name)
        while node is not None and node.op_type in _HANDS_ON:
            node = producers.get(node.input[0])
        return node is not None and node.op_type == "Relu"

    def _replace_parameters(self, node: "NodeProto") -> None:
        self._replaced |= {node.input[1], node.input[2]}
        node.input[1], node.input[2] = self._symmetric(node.input[1], node.input[2])
        for attribute in [one for one in node.attribute if one.name == "output_dtype"]:
            if node.op_type == "QuantizeLinear":
                node.attribute.remove(attribute)  # the zero point says it

    def _without_negatives(self, node: "NodeProto") -> "NodeProto":
        from onnx import helper

        source, name = node.input[0], f"{node.output[0]}_positive"
        node.input[0] = name
        return helper.make_node("Relu", [source], [name], f"{node.name or node.output[0]}_relu")

    def _symmetric(self, scale: str, zero_point: str) -> tuple[str, str]:
        """The largest distance from zero that the old parameters reach fits into 127 steps of the new ones."""
        if (scale, zero_point) not in self._made:
            steps, zero = self._value(scale), self._value(zero_point)
            ends, zero = np.iinfo(zero.dtype), zero.astype(np.float32)
            reach = np.maximum(zero - ends.min, ends.max - zero)
            name = f"{scale}_{zero_point}{_LAST}"
            fitting = self._add(f"{name}_scale", (steps * reach / 127).astype(steps.dtype))
            self._made[scale, zero_point] = fitting, self._add(f"{name}_zero", np.zeros(zero.shape, np.int8))
        return self._made[scale, zero_point]

    def _requantize(self, node: "NodeProto") -> None:
        """Constant weights of unsigned bytes."""
        axis = next((one.i for one in node.attribute if one.name == "axis"), 1)
        whole, scale, zero = self._value(node.input[0]), self._value(node.input[1]), self._value(node.input[2])
        values = dequantized(whole, scale, zero, axis)
        self._replace_parameters(node)
        steps = _along(self._value(node.input[1]), whole.ndim, axis)
        self._replaced.add(node.input[0])
        signed = np.clip(np.rint(values / steps), -127, 127).astype(np.int8)
        node.input[0] = self._add(f"{node.input[0]}{_LAST}", signed)

    def _unquantize(self, node: "NodeProto") -> None:
        """A constant of 32 bits is as good a constant of floats."""
        axis = next((one.i for one in node.attribute if one.name == "axis"), 1)
        whole, scale = self._value(node.input[0]), self._value(node.input[1])
        zero = self._value(node.input[2]) if len(node.input) > 2 and node.input[2] else np.zeros((), np.int32)
        self._replaced |= set(node.input)
        self._add(node.output[0], dequantized(whole, scale, zero, axis))


def dequantized(whole: _Array, scale: _Array, zero: _Array, axis: int) -> _Array:
    """The floats that whole numbers stand for; scale and zero point are of the tensor or of each place of an axis."""
    difference = whole.astype(np.float64) - _along(zero, whole.ndim, axis)
    floats: _Array = (difference * _along(scale, whole.ndim, axis)).astype(scale.dtype)
    return floats


def _names(node: "NodeProto") -> set[str]:
    """What a node reads, in its branches and loops, too."""
    graphs = [graph for one in node.attribute for graph in ([one.g] if one.HasField("g") else list(one.graphs))]
    inner = (_names(each) for graph in graphs for each in graph.node)
    outputs = {one.name for graph in graphs for one in graph.output}
    return set(node.input).union(outputs, *inner)


def _along(values: _Array, dimensions: int, axis: int) -> _Array:
    """One value for each place of an axis, as it is multiplied with a whole tensor; a single one is for all."""
    if values.size == 1:
        return values.reshape(())
    shape = [1] * dimensions
    shape[axis] = -1
    return values.reshape(shape)
