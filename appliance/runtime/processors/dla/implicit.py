"""Quantized networks as TensorRT up to 10 wants them for a DLA: without operators that quantize, and with how far the
values of each tensor reach beside the network.

A GPU takes symmetric `QuantizeLinear` and `DequantizeLinear` as they stand in the graph. A DLA does not: there TensorRT
quantizes by itself, each tensor by its range, and computes in half precision what has none. So pairs of the two are
taken out, what they say becomes ranges, and these are handed on over what changes no range; weights become floats
again, and lie on the same steps when they are quantized anew. Runs in the measuring child, which may import onnx.
"""

from typing import TYPE_CHECKING, Any

import numpy as np

from appliance.runtime.processors.providers.symmetric import dequantized

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

STEPS = 127
"""On either side of zero."""
_SAME = frozenset(
    """
    AveragePool Concat DepthToSpace Dropout Flatten GlobalAveragePool GlobalMaxPool Identity MaxPool Relu Reshape Slice
    SpaceToDepth Split Squeeze Transpose Unsqueeze
    """.split()
)
"""Operators whose results reach no further than what they are computed of."""
_BACK = _SAME - {"AveragePool", "GlobalAveragePool", "Slice"} | {"Clip"}
"""Of those, and others: what reaches further before them is not seen behind them."""
_BOUNDED = {"Sigmoid": 1.0, "Softmax": 1.0, "Tanh": 1.0}


def make_implicit(model: "ModelProto") -> dict[str, float]:
    """Rewrite the main graph of a symmetric network in place; how far from zero the values of its tensors reach, by
    name, as far as that follows.

    Raises: ValueError where a quantized tensor is more than passed from one of the two operators to the other.
    """
    remover = _Remover(model)
    remover.remove()
    return _handed_on(remover.kept, remover.reaches)


class _Remover:
    def __init__(self, model: "ModelProto") -> None:
        from onnx import numpy_helper

        self._graph = model.graph
        self._constants = {one.name: numpy_helper.to_array(one) for one in model.graph.initializer}
        self._quantized: dict[str, str] = {}
        """A quantized tensor → the one that it was made of."""
        self._stand_ins: dict[str, str] = {}
        """A tensor that was made of a quantized one → the one in its place."""
        self.reaches: dict[str, float] = {}
        self.kept: list[NodeProto] = []

    def remove(self) -> None:
        from onnx import numpy_helper

        made = []
        for node in self._graph.node:
            node.input[:] = [self._stand_ins.get(name, name) for name in node.input]
            if node.op_type == "QuantizeLinear":
                self._take_out(node)
            elif node.op_type == "DequantizeLinear" and node.input[0] in self._constants:
                made.append(numpy_helper.from_array(self._floats(node), node.output[0]))
            elif node.op_type == "DequantizeLinear" and node.input[0] in self._quantized:
                self._stand_ins[node.output[0]] = self._quantized[node.input[0]]
            elif node.op_type == "DequantizeLinear" or not self._quantized.keys().isdisjoint(node.input):
                raise ValueError(f"{node.op_type} takes a quantized tensor that a DLA cannot be given")
            else:
                self.kept.append(node)
        self._give_outputs_their_names()
        used = {name for node in self.kept for name in node.input} | {one.name for one in self._graph.output}
        constants = [one for one in (*self._graph.initializer, *made) if one.name in used]
        del self._graph.node[:]
        self._graph.node.extend(self.kept)
        del self._graph.initializer[:]
        self._graph.initializer.extend(constants)
        self.kept = list(self._graph.node)

    def _take_out(self, node: "NodeProto") -> None:
        scale = self._constants.get(node.input[1])
        if scale is None or scale.size != 1:
            raise ValueError("a tensor between operators is not quantized by one scale that is known")
        source = node.input[0]
        self._quantized[node.output[0]] = source
        self.reaches[source] = max(self.reaches.get(source, 0.0), STEPS * float(scale.reshape(())))

    def _floats(self, node: "NodeProto") -> Any:
        axis = next((one.i for one in node.attribute if one.name == "axis"), 1)
        whole, scale = self._constants[node.input[0]], self._constants[node.input[1]]
        has_zero = len(node.input) > 2 and node.input[2]
        zero = self._constants[node.input[2]] if has_zero else np.zeros((), whole.dtype)
        return dequantized(whole, scale, zero, axis)

    def _give_outputs_their_names(self) -> None:
        """Where an output of the network was made of a quantized tensor, what stands in for it takes its name."""
        from onnx import helper

        given = {one.name for one in (*self._graph.input, *self._graph.output)} | self._constants.keys()
        for output in self._graph.output:
            if output.name in self._quantized:
                raise ValueError(f"output {output.name!r} is quantized")
            source = self._stand_ins.get(output.name)
            if source is None:
                continue
            if source in given:
                self.kept.append(helper.make_node("Identity", [source], [output.name]))
                continue
            for node in self.kept:
                node.input[:] = [output.name if name == source else name for name in node.input]
                node.output[:] = [output.name if name == source else name for name in node.output]
            self.reaches[output.name] = self.reaches.pop(source)
            for name, stand_in in self._stand_ins.items():
                if stand_in == source:  # a second output of the same is a copy of this one
                    self._stand_ins[name] = output.name


def _handed_on(nodes: "list[NodeProto]", reaches: dict[str, float]) -> dict[str, float]:
    """The same, and what follows from it for other tensors."""
    found = dict(reaches)
    readers: dict[str, int] = {}
    for node in nodes:
        for name in node.input:
            readers[name] = readers.get(name, 0) + 1
        if node.op_type in _BOUNDED:
            found.setdefault(node.output[0], _BOUNDED[node.op_type])
    count = -1
    while count != len(found):  # each turn adds one at least, or is the last
        count = len(found)
        for node in nodes:
            sources = list(node.input) if node.op_type == "Concat" else list(node.input[:1])
            if node.op_type in _SAME and all(name in found for name in sources):
                for name in node.output:
                    found.setdefault(name, max(found[source] for source in sources))
        for node in reversed(nodes):
            if node.op_type in _BACK and all(name in found for name in node.output):
                for source in node.input if node.op_type == "Concat" else node.input[:1]:
                    if readers[source] == 1:  # others may need more of it
                        found.setdefault(source, max(found[name] for name in node.output))
    return found
