"""TensorFlow.js graph models (JSON nodes and a raw weight file) to ONNX, with numpy and onnx alone.

Covers the operations of the convolution nets that the zoo takes; another one raises `UnsupportedOperation` with its
name. Tensors keep the NHWC order of the source: each convolution and pool gets a transpose on either side, which ONNX
Runtime's basic rewriting then folds away.
"""

import base64
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

from appliance.demo.zoo import graphs

Array = npt.NDArray[Any]
Node = Mapping[str, Any]

TO_NCHW = [0, 3, 1, 2]
TO_NHWC = [0, 2, 3, 1]


class UnsupportedOperation(ValueError):
    """The graph has an operation, or a use of one, that this converter does not know."""


@dataclass(frozen=True)
class TensorSide:
    """One input or output of the made graph: `name` in the ONNX file, `source` in the TFJS graph, `shape` with names
    for free sizes.
    """

    name: str
    source: str
    shape: tuple[str | int, ...]


def convert(
    topology: Path, inputs: Sequence[TensorSide], outputs: Sequence[TensorSide], scales: Sequence[float] = ()
) -> onnx.ModelProto:
    """Read `topology` (model.json; the weights lie beside it) and return the part of it between `inputs` and `outputs`,
    tidied.

    `scales`: factor of each bilinear resize in graph order, which makes the net free of the size it was exported with.
    Leading 1 in the target of a Reshape is taken for the batch and left as it comes. Raises `UnsupportedOperation`.
    """
    document = json.loads(topology.read_text())
    graph = _Builder(weights=read_weights(document, topology.parent), scales=list(scales))
    for side in inputs:
        graph.names[side.source] = side.name
    nodes = {node["name"]: node for node in document["modelTopology"]["node"]}
    for node in _needed(nodes, [side.source for side in outputs], stop={side.source for side in inputs}):
        graph.add(node)
    made = helper.make_graph(
        _alive(graph, outputs),
        topology.stem,
        [helper.make_tensor_value_info(side.name, TensorProto.FLOAT, list(side.shape)) for side in inputs],
        [helper.make_tensor_value_info(side.name, TensorProto.FLOAT, list(side.shape)) for side in outputs],
    )
    used = {value for node in made.node for value in node.input}
    made.initializer.extend(
        numpy_helper.from_array(value, name) for name, value in graph.constants.items() if name in used
    )
    return graphs.tidied(graphs.model_of(made))


def read_weights(document: Mapping[str, Any], folder: Path) -> dict[str, Array]:
    """Every weight by name: float16 widened to float32, uint8 and uint16 scaled back, the rest as stored."""
    weights: dict[str, Array] = {}
    for group in document["weightsManifest"]:
        raw = b"".join((folder / path).read_bytes() for path in group["paths"])
        offset = 0
        for entry in group["weights"]:
            stored = np.dtype(entry.get("quantization", {}).get("dtype", entry["dtype"]))
            count = int(np.prod(entry["shape"], dtype=np.int64))
            values = np.frombuffer(raw, stored, count, offset).reshape(entry["shape"])
            offset += count * stored.itemsize
            weights[entry["name"]] = _widened(values, entry)
        if offset != len(raw):
            raise UnsupportedOperation(f"the weight file has {len(raw)} bytes, its description {offset}")
    return weights


def _widened(values: Array, entry: Mapping[str, Any]) -> Array:
    quantization = entry.get("quantization")
    if quantization is None:
        return values
    wide = values.astype(np.float32)
    if "scale" in quantization:
        wide = wide * np.float32(quantization["scale"]) + np.float32(quantization["min"])
    return wide.astype(entry["dtype"])


def _needed(nodes: Mapping[str, Node], wanted: Sequence[str], stop: set[str]) -> Iterator[Node]:
    """The ancestors of `wanted` in an order in which each follows its inputs; iterative, because graphs are deep."""
    done, stack = set(stop), list(reversed(wanted))
    while stack:
        name = stack[-1]
        missing = [source for source in map(_producer, nodes[name].get("input", ())) if source not in done]
        if name in done or not missing:
            stack.pop()
            if name not in done:
                done.add(name)
                yield nodes[name]
        else:
            stack.extend(reversed(missing))


def _producer(value: str) -> str:
    """`split:1` and `^control` name a node too."""
    return value.lstrip("^").split(":")[0]


def _alive(graph: "_Builder", outputs: Sequence[TensorSide]) -> list[onnx.NodeProto]:
    """The nodes that some output depends on (rewriting leaves a few behind), the outputs renamed as asked."""
    final = [
        helper.make_node("Identity", [graph.names[side.source]], [side.name], f"out.{side.name}") for side in outputs
    ]
    wanted = {value for node in final for value in node.input}
    kept: list[onnx.NodeProto] = []
    for node in reversed(graph.nodes):
        if wanted.intersection(node.output):
            kept.append(node)
            wanted.update(node.input)
    return [*reversed(kept), *final]


@dataclass
class _Builder:
    """The ONNX graph that grows; `names` maps a TF value to its ONNX value, `constants` hold what is known
    beforehand.
    """

    weights: dict[str, Array]
    scales: list[float]
    names: dict[str, str] = field(default_factory=dict)
    constants: dict[str, Array] = field(default_factory=dict)
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    made_by: dict[str, onnx.NodeProto] = field(default_factory=dict)

    def add(self, node: Node) -> None:
        """Translate one TF node."""
        name, operation = node["name"], node["op"]
        if operation == "Const":
            self.names[name], self.constants[name] = name, self.weights[name]
            return
        translate = OPERATIONS.get(operation)
        if translate is None:
            raise UnsupportedOperation(f"operation {operation} of {name} is not known to the converter")
        inputs = [self.value(source) for source in node.get("input", ()) if not source.startswith("^")]
        self.names[name] = translate(self, node, inputs)

    def value(self, source: str) -> str:
        """ONNX name of a TF value such as `split:1`."""
        base, _, port = source.partition(":")
        return self.names[base] if port in ("", "0") else self.names[source]

    def emit(self, operation: str, inputs: Sequence[str], name: str, **attributes: Any) -> str:
        """Append a node with one output, which gets the node's name."""
        made = helper.make_node(operation, list(inputs), [name], name, **attributes)
        self.nodes.append(made)
        self.made_by[name] = made
        return name

    def constant(self, name: str, values: Array) -> str:
        """A constant of our own."""
        self.constants[name] = values
        return name

    def known(self, value: str) -> Array:
        """The values of a constant input."""
        if value not in self.constants:
            raise UnsupportedOperation(f"{value} must be a constant")
        return self.constants[value]


Translate = Callable[[_Builder, Node, list[str]], str]


def _text(node: Node, key: str, default: str = "") -> str:
    found = node.get("attr", {}).get(key)
    return default if found is None else base64.b64decode(found["s"]).decode()


def _ints(node: Node, key: str) -> list[int]:
    return [int(number) for number in node["attr"][key]["list"].get("i", ())]


def _spatial(node: Node) -> dict[str, Any]:
    """Strides, dilations and padding of a convolution or pool, in ONNX words."""
    if _text(node, "data_format", "NHWC") != "NHWC":
        raise UnsupportedOperation(f"{node['name']} is not NHWC")
    options: dict[str, Any] = {"strides": _ints(node, "strides")[1:3]}
    options["auto_pad"] = {"SAME": "SAME_UPPER", "VALID": "VALID"}[_text(node, "padding")]
    if "dilations" in node["attr"]:
        options["dilations"] = _ints(node, "dilations")[1:3]
    return options


def _turned(graph: _Builder, operation: str, inputs: Sequence[str], name: str, **attributes: Any) -> str:
    """An NCHW operation inside an NHWC graph."""
    turned = graph.emit("Transpose", inputs[:1], f"{name}.nchw", perm=TO_NCHW)
    result = graph.emit(operation, [turned, *inputs[1:]], f"{name}.run", **attributes)
    return graph.emit("Transpose", [result], name, perm=TO_NHWC)


def _convolution(graph: _Builder, node: Node, inputs: list[str]) -> str:
    kernel = graph.known(inputs[1])  # HWIO
    weight = graph.constant(f"{node['name']}.weight", np.ascontiguousarray(kernel.transpose(3, 2, 0, 1)))
    return _turned(
        graph, "Conv", [inputs[0], weight], node["name"], kernel_shape=list(kernel.shape[:2]), **_spatial(node)
    )


def _depthwise(graph: _Builder, node: Node, inputs: list[str]) -> str:
    kernel = graph.known(inputs[1])  # H, W, channels, multiplier
    height, width, channels, multiplier = kernel.shape
    turned = kernel.transpose(2, 3, 0, 1).reshape(channels * multiplier, 1, height, width)
    weight = graph.constant(f"{node['name']}.weight", np.ascontiguousarray(turned))
    sides = [height, width]
    return _turned(
        graph, "Conv", [inputs[0], weight], node["name"], kernel_shape=sides, group=channels, **_spatial(node)
    )


def _max_pool(graph: _Builder, node: Node, inputs: list[str]) -> str:
    return _turned(graph, "MaxPool", inputs, node["name"], kernel_shape=_ints(node, "ksize")[1:3], **_spatial(node))


def _resize(graph: _Builder, node: Node, inputs: list[str]) -> str:
    if not graph.scales:
        raise UnsupportedOperation(f"no scale was given for {node['name']}")
    if not node["attr"]["half_pixel_centers"]["b"]:
        raise UnsupportedOperation(f"{node['name']} resizes without half-pixel centres")
    factor = graph.scales.pop(0)
    scales = graph.constant(f"{node['name']}.scales", np.array([1, 1, factor, factor], np.float32))
    options = {"mode": "linear", "coordinate_transformation_mode": "half_pixel"}
    return _turned(graph, "Resize", [inputs[0], "", scales], node["name"], **options)


def _binary(operation: str) -> Translate:
    def translate(graph: _Builder, node: Node, inputs: list[str]) -> str:
        if all(value in graph.constants for value in inputs):  # shape arithmetic
            folded = graph.known(inputs[0]) + graph.known(inputs[1]) if operation == "Add" else None
            if folded is not None:
                return graph.constant(node["name"], folded)
        return graph.emit(operation, inputs, node["name"])

    return translate


def _unary(operation: str) -> Translate:
    return lambda graph, node, inputs: graph.emit(operation, inputs[:1], node["name"])


def _minimum(graph: _Builder, node: Node, inputs: list[str]) -> str:
    """min(relu(x), limit) is a Clip, which runtimes fuse into the convolution before it."""
    before = graph.made_by.get(inputs[0])
    limit = graph.constants.get(inputs[1])
    if before is None or before.op_type != "Relu" or limit is None or limit.size != 1:
        return graph.emit("Min", inputs, node["name"])
    low = graph.constant(f"{node['name']}.low", np.zeros((), np.float32))
    high = graph.constant(f"{node['name']}.high", limit.reshape(()))
    return graph.emit("Clip", [before.input[0], low, high], node["name"])


def _maximum(graph: _Builder, node: Node, inputs: list[str]) -> str:
    """max(clip(x, 0, …), 0) is what it was."""
    before = graph.made_by.get(inputs[0])
    floor = graph.constants.get(inputs[1])
    if (
        before is not None
        and before.op_type == "Clip"
        and floor is not None
        and floor.size == 1
        and float(floor.reshape(())) == 0
    ):
        return inputs[0]
    return graph.emit("Max", inputs, node["name"])


def _pad(graph: _Builder, node: Node, inputs: list[str]) -> str:
    sides = graph.constant(f"{node['name']}.pads", graph.known(inputs[1]).T.reshape(-1).astype(np.int64))
    return graph.emit("Pad", [inputs[0], sides, *inputs[2:3]], node["name"], mode="constant")


def _concat(graph: _Builder, node: Node, inputs: list[str]) -> str:
    return graph.emit("Concat", inputs[:-1], node["name"], axis=int(graph.known(inputs[-1]).reshape(())))


def _split(graph: _Builder, node: Node, inputs: list[str]) -> str:
    name = str(node["name"])
    parts = graph.known(inputs[1]).astype(np.int64).reshape(-1)
    sizes = graph.constant(f"{name}.sizes", parts)
    values = [name if index == 0 else f"{name}:{index}" for index in range(len(parts))]
    axis = int(graph.known(inputs[2]).reshape(()))
    graph.nodes.append(helper.make_node("Split", [inputs[0], sizes], values, name, axis=axis))
    graph.names.update(zip(values, values, strict=True))
    return name


def _reshape(graph: _Builder, node: Node, inputs: list[str]) -> str:
    target = graph.known(inputs[1]).astype(np.int64).copy()
    if target[0] == 1:
        target[0] = 0
    return graph.emit("Reshape", [inputs[0], graph.constant(f"{node['name']}.target", target)], node["name"])


def _transpose(graph: _Builder, node: Node, inputs: list[str]) -> str:
    return graph.emit("Transpose", inputs[:1], node["name"], perm=graph.known(inputs[1]).tolist())


def _mean(graph: _Builder, node: Node, inputs: list[str]) -> str:
    name, axes, keep = str(node["name"]), graph.known(inputs[1]).tolist(), int(node["attr"]["keep_dims"]["b"])
    return graph.emit("ReduceMean", inputs[:1], name, axes=axes, keepdims=keep)


def _leaky_relu(graph: _Builder, node: Node, inputs: list[str]) -> str:
    return graph.emit("LeakyRelu", inputs[:1], node["name"], alpha=float(node["attr"]["alpha"]["f"]))


def _sparse_to_dense(graph: _Builder, node: Node, inputs: list[str]) -> str:
    """Only as shape arithmetic: all inputs are constants."""
    places, shape, values, default = map(graph.known, inputs)
    dense = np.full(shape.astype(np.int64), default)
    for place, value in zip(places.reshape(-1, dense.ndim), np.broadcast_to(values, len(places)), strict=True):
        dense[tuple(place)] = value
    return graph.constant(node["name"], dense)


OPERATIONS: Mapping[str, Translate] = {
    "Add": _binary("Add"),
    "AddV2": _binary("Add"),
    "ConcatV2": _concat,
    "Conv2D": _convolution,
    "DepthwiseConv2dNative": _depthwise,
    "Identity": _unary("Identity"),
    "LeakyRelu": _leaky_relu,
    "Maximum": _maximum,
    "MaxPool": _max_pool,
    "Mean": _mean,
    "Minimum": _minimum,
    "Mul": _binary("Mul"),
    "Pad": _pad,
    "PadV2": _pad,
    "Relu": _unary("Relu"),
    "Reshape": _reshape,
    "ResizeBilinear": _resize,
    "Sigmoid": _unary("Sigmoid"),
    "SparseToDense": _sparse_to_dense,
    "SplitV": _split,
    "Sub": _binary("Sub"),
    "Transpose": _transpose,
}
