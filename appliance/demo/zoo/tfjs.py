"""TensorFlow.js graph models (JSON nodes and a raw weight file) to ONNX, with numpy and onnx alone.

Covers the operations of the convolution nets that the zoo takes. Tensors keep the NHWC order of the source: each
convolution and pool gets a transpose on either side, which ONNX Runtime's basic rewriting then folds away.
"""

import base64
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper

from appliance.demo.zoo.graphs import Array, Graph, tidied

Node = Mapping[str, Any]


class UnsupportedOperation(ValueError):
    """The graph has an operation, or a use of one, that this converter does not know."""


@dataclass(frozen=True)
class TensorSide:
    """An input or output: `name` in the ONNX file, `source` in the TFJS graph, `shape` with names for free sizes."""

    name: str
    source: str
    shape: Sequence[str | int]


def convert(
    topology: Path, inputs: Sequence[TensorSide], outputs: Sequence[TensorSide], scales: Sequence[float] = ()
) -> onnx.ModelProto:
    """The part of the graph `topology` (model.json; the weights lie beside it) between `inputs` and `outputs`, tidied.

    `scales`: factor of each bilinear resize in graph order, which makes the net free of the size it was exported with.
    Leading 1 in the target of a Reshape is taken for the batch and left as it comes. Raises `UnsupportedOperation`.
    """
    document = json.loads(topology.read_text())
    nodes = {node["name"]: node for node in document["modelTopology"]["node"]}
    graph = _Translation(nodes, read_weights(document, topology.parent), list(scales))
    graph.names.update({side.source: side.name for side in inputs})
    for side in outputs:
        graph.add("Identity", [graph.value(side.source)], side.name)
    shapes = ({side.name: side.shape for side in sides} for sides in (inputs, outputs))
    return tidied(graph.model(topology.stem, *shapes))


def read_weights(document: Mapping[str, Any], folder: Path) -> dict[str, Array]:
    """Every weight by name; float16 widened to what it was, the rest as stored."""
    weights: dict[str, Array] = {}
    for group in document["weightsManifest"]:
        raw = b"".join((folder / path).read_bytes() for path in group["paths"])
        offset = 0
        for entry in group["weights"]:
            stored = np.dtype(entry.get("quantization", entry)["dtype"])
            count = int(np.prod(entry["shape"], dtype=np.int64))
            values = np.frombuffer(raw, stored, count, offset).reshape(entry["shape"])
            offset += count * stored.itemsize
            weights[entry["name"]] = values.astype(entry["dtype"])
        if offset != len(raw):
            raise UnsupportedOperation(f"the weight file has {len(raw)} bytes, its description {offset}")
    return weights


class _Translation(Graph):
    """The ONNX graph that grows from its outputs; `names` maps a TF value to its ONNX value."""

    def __init__(self, sources: Mapping[str, Node], weights: Mapping[str, Array], scales: list[float]) -> None:
        super().__init__()
        self._sources = sources
        self._weights = weights
        self.scales = scales
        self.names: dict[str, str] = {}

    def value(self, source: str) -> str:
        """ONNX name of a TF value such as `split:1`, made with all that it depends on."""
        base, _, port = source.partition(":")
        if base not in self.names:
            node = self._sources[base]
            inputs = list(map(self.value, (one for one in node.get("input", ()) if not one.startswith("^"))))
            if node["op"] == "Const":
                self.names[base] = self.constant(base, self._weights[base])
            elif node["op"] in OPERATIONS:
                self.names[base] = OPERATIONS[node["op"]](self, node, inputs)
            else:
                raise UnsupportedOperation(f"operation {node['op']} of {base} is not known to the converter")
        return self.names[base] if port in ("", "0") else source

    def known(self, value: str) -> Array:
        """The values of a constant input."""
        if value not in self.constants:
            raise UnsupportedOperation(f"{value} must be a constant")
        return self.constants[value]

    def made_by(self, value: str) -> tuple[str, str]:
        """The operation that gives a value, and its first input."""
        found = next((node for node in reversed(self.nodes) if value in node.output), None)
        return (found.op_type, found.input[0]) if found else ("", "")

    def turned(self, operation: str, inputs: Sequence[str], name: str, **attributes: Any) -> str:
        """An NCHW operation inside an NHWC graph."""
        image = self.add("Transpose", inputs[:1], f"{name}.nchw", perm=[0, 3, 1, 2])
        result = self.add(operation, [image, *inputs[1:]], f"{name}.run", **attributes)
        return self.add("Transpose", [result], name, perm=[0, 2, 3, 1])


Translate = Callable[[_Translation, Node, list[str]], str]


def _ints(node: Node, key: str) -> list[int]:
    return [int(number) for number in node["attr"][key]["list"]["i"]]


def _spatial(node: Node) -> dict[str, Any]:
    """Strides, dilations and padding of a convolution or pool, in ONNX words."""
    padding = base64.b64decode(node["attr"]["padding"]["s"]).decode()
    options = {"strides": _ints(node, "strides")[1:3], "auto_pad": {"SAME": "SAME_UPPER", "VALID": "VALID"}[padding]}
    if "dilations" in node["attr"]:
        options["dilations"] = _ints(node, "dilations")[1:3]
    return options


def _same(operation: str) -> Translate:
    """An operation that is the same in ONNX."""
    return lambda graph, node, inputs: graph.add(operation, inputs, node["name"])


def _add(graph: _Translation, node: Node, inputs: list[str]) -> str:
    if all(value in graph.constants for value in inputs):  # shape arithmetic
        return graph.constant(node["name"], graph.known(inputs[0]) + graph.known(inputs[1]))
    return graph.add("Add", inputs, node["name"])


def _convolution(graph: _Translation, node: Node, inputs: list[str]) -> str:
    kernel, name = graph.known(inputs[1]), node["name"]
    options = {"kernel_shape": list(kernel.shape[:2])}
    if node["op"] == "Conv2D":  # H, W, in, out
        turned = kernel.transpose(3, 2, 0, 1)
    else:  # H, W, channels, multiplier
        turned = kernel.transpose(2, 3, 0, 1).reshape(-1, 1, *kernel.shape[:2])
        options["group"] = kernel.shape[2]
    weight = graph.constant(f"{name}.weight", np.ascontiguousarray(turned))
    return graph.turned("Conv", [inputs[0], weight], name, **options, **_spatial(node))


def _max_pool(graph: _Translation, node: Node, inputs: list[str]) -> str:
    return graph.turned("MaxPool", inputs, node["name"], kernel_shape=_ints(node, "ksize")[1:3], **_spatial(node))


def _resize(graph: _Translation, node: Node, inputs: list[str]) -> str:
    if not graph.scales or not node["attr"]["half_pixel_centers"]["b"]:
        raise UnsupportedOperation(f"no scale was given for {node['name']}, or it resizes without half-pixel centres")
    factor = graph.scales.pop(0)
    scales = graph.constant(f"{node['name']}.scales", np.array([1, 1, factor, factor], np.float32))
    options = {"mode": "linear", "coordinate_transformation_mode": "half_pixel"}
    return graph.turned("Resize", [inputs[0], "", scales], node["name"], **options)


def _minimum(graph: _Translation, node: Node, inputs: list[str]) -> str:
    """min(relu(x), limit) is a Clip, which runtimes fuse into the convolution before it."""
    before, source = graph.made_by(inputs[0])
    if before != "Relu" or inputs[1] not in graph.constants:
        return graph.add("Min", inputs, node["name"])
    low = graph.constant(f"{node['name']}.low", np.zeros((), np.float32))
    high = graph.constant(f"{node['name']}.high", graph.known(inputs[1]).reshape(()))
    return graph.add("Clip", [source, low, high], node["name"])


def _maximum(graph: _Translation, node: Node, inputs: list[str]) -> str:
    """max(clip(x, 0, …), 0) is what it was."""
    is_zero = inputs[1] in graph.constants and not graph.known(inputs[1]).any()
    return inputs[0] if is_zero and graph.made_by(inputs[0])[0] == "Clip" else graph.add("Max", inputs, node["name"])


def _pad(graph: _Translation, node: Node, inputs: list[str]) -> str:
    sides = graph.constant(f"{node['name']}.pads", graph.known(inputs[1]).T.reshape(-1).astype(np.int64))
    return graph.add("Pad", [inputs[0], sides, *inputs[2:3]], node["name"], mode="constant")


def _concat(graph: _Translation, node: Node, inputs: list[str]) -> str:
    return graph.add("Concat", inputs[:-1], node["name"], axis=int(graph.known(inputs[-1])))


def _split(graph: _Translation, node: Node, inputs: list[str]) -> str:
    name, parts = str(node["name"]), graph.known(inputs[1]).astype(np.int64)
    sizes = graph.constant(f"{name}.sizes", parts)
    values = [name, *(f"{name}:{index}" for index in range(1, len(parts)))]
    graph.nodes.append(helper.make_node("Split", [inputs[0], sizes], values, name, axis=int(graph.known(inputs[2]))))
    return name


def _reshape(graph: _Translation, node: Node, inputs: list[str]) -> str:
    target = graph.known(inputs[1]).astype(np.int64)
    target[0] = 0 if target[0] == 1 else target[0]
    return graph.add("Reshape", [inputs[0], graph.constant(f"{node['name']}.target", target)], node["name"])


def _transpose(graph: _Translation, node: Node, inputs: list[str]) -> str:
    return graph.add("Transpose", inputs[:1], node["name"], perm=graph.known(inputs[1]).tolist())


def _mean(graph: _Translation, node: Node, inputs: list[str]) -> str:
    axes, keep = graph.known(inputs[1]).tolist(), int(node["attr"]["keep_dims"]["b"])
    return graph.add("ReduceMean", inputs[:1], node["name"], axes=axes, keepdims=keep)


def _leaky_relu(graph: _Translation, node: Node, inputs: list[str]) -> str:
    return graph.add("LeakyRelu", inputs, node["name"], alpha=float(node["attr"]["alpha"]["f"]))


def _sparse_to_dense(graph: _Translation, node: Node, inputs: list[str]) -> str:
    """Only as shape arithmetic: all inputs are constants."""
    places, shape, values, default = map(graph.known, inputs)
    dense = np.full(shape.astype(np.int64), default)
    dense[tuple(places.reshape(-1, dense.ndim).T)] = values
    return graph.constant(node["name"], dense)


OPERATIONS: Mapping[str, Translate] = {
    **{name: _same(name) for name in ("Identity", "Mul", "Relu", "Sigmoid", "Sub")},
    "Add": _add,
    "AddV2": _add,
    "ConcatV2": _concat,
    "Conv2D": _convolution,
    "DepthwiseConv2dNative": _convolution,
    "LeakyRelu": _leaky_relu,
    "Maximum": _maximum,
    "MaxPool": _max_pool,
    "Mean": _mean,
    "Minimum": _minimum,
    "Pad": _pad,
    "PadV2": _pad,
    "Reshape": _reshape,
    "ResizeBilinear": _resize,
    "SparseToDense": _sparse_to_dense,
    "SplitV": _split,
    "Transpose": _transpose,
}
