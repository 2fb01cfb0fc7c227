"""TensorFlow.js graph models (JSON nodes and a raw weight file) to ONNX, with numpy and onnx alone.

Knows the operations of the two convolution nets that the zoo takes, whose files are known by their hashes. Tensors keep
the NHWC order of the source: each convolution, pool and resize gets a transpose on either side, which ONNX Runtime's
basic rewriting then folds away.
"""

import base64
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from appliance.demo.zoo.graphs import Array, Graph, Shape, tidied

Node = Mapping[str, Any]
Side = tuple[str, str, Shape]
"""An input or output: its name in the ONNX file and in the TFJS graph, and its shape with names for free sizes."""


def convert(
    topology: Path, inputs: Sequence[Side], outputs: Sequence[Side], scales: Iterable[float] = ()
) -> onnx.ModelProto:
    """The part of the graph `topology` (its weights lie beside it) between `inputs` and `outputs`, tidied.

    `scales`: factor of each bilinear resize in graph order, which makes the net free of the size it was exported with.
    The first side of the target of a Reshape is the batch, which is left as it comes.
    """
    net = _Net(topology, scales)
    net.names |= {source: name for name, source, _ in inputs}
    for name, source, _ in outputs:
        net.add("Identity", [net.value(source)], name)
    shapes = ({name: shape for name, _, shape in sides} for sides in (inputs, outputs))
    return tidied(net.model(topology.stem, *shapes))


class _Net(Graph):
    """The ONNX graph that grows from its outputs; `names` maps a TF value to its ONNX value."""

    def __init__(self, topology: Path, scales: Iterable[float]) -> None:
        super().__init__()
        document = json.loads(topology.read_text())
        self._sources: dict[str, Node] = {node["name"]: node for node in document["modelTopology"]["node"]}
        (group,) = document["weightsManifest"]
        self._weights = dict(weights(group, topology.parent))
        self._scales = iter(scales)
        self.names: dict[str, str] = {}

    def value(self, source: str) -> str:
        """ONNX name of a TF value such as `split:1`, made with all that it depends on."""
        base, _, port = source.partition(":")
        if base not in self.names:
            node = self._sources[base]
            self.names[base] = self._translated(node, [self.value(one) for one in node.get("input", ())])
        return source if port else self.names[base]

    def _translated(self, node: Node, inputs: list[str]) -> str:
        name, operation = str(node["name"]), node["op"]
        known = [self.constants[value] for value in inputs if value in self.constants]
        if operation == "Const":
            return self.constant(name, self._weights[name])
        if operation in CONSTANT:
            return self.constant(name, CONSTANT[operation](*known))
        if operation in SAME:
            return self.add(operation, inputs, name)
        if operation == "ResizeBilinear":
            known = [np.array(next(self._scales), np.float32)]
        kind, attributes, constants = OPERATIONS[operation](node["attr"], *known)
        values = [value for value in inputs if value not in self.constants]
        values += [self.constant(f"{name}.{number}", array) for number, array in enumerate(constants)]
        if kind in OF_IMAGES:
            values[0] = self.add("Transpose", values[:1], f"{name}.nchw", perm=[0, 3, 1, 2])
            self.add(kind, values, f"{name}.run", **attributes)
            return self.add("Transpose", [f"{name}.run"], name, perm=[0, 2, 3, 1])
        self.add(kind, values, name, **attributes)
        if kind == "Split":
            self.nodes[-1].output.extend(f"{name}:{part}" for part in range(1, len(known[0])))
        return name


def weights(group: Mapping[str, Any], folder: Path) -> Iterator[tuple[str, Array]]:
    """Every weight and its name; float16 widened to what it was, the rest as stored."""
    raw, offset = b"".join((folder / path).read_bytes() for path in group["paths"]), 0
    for entry in group["weights"]:
        stored, count = np.dtype(entry.get("quantization", entry)["dtype"]), int(np.prod(entry["shape"]))
        values = np.frombuffer(raw, stored, count, offset)
        yield entry["name"], values.reshape(entry["shape"]).astype(entry["dtype"])
        offset += values.nbytes


Attributes = Mapping[str, Any]
Translated = tuple[str, dict[str, Any], Sequence[Array]]
"""The ONNX operation, its attributes, and its constant inputs, which follow the others."""


def _ints(attributes: Attributes, key: str) -> list[int]:
    return [int(number) for number in attributes[key]["list"]["i"]]


def _spatial(attributes: Attributes, kernel_shape: Sequence[int]) -> dict[str, Any]:
    """Kernel, strides and padding of a convolution or pool, in ONNX words."""
    padding = {"SAME": "SAME_UPPER", "VALID": "VALID"}[base64.b64decode(attributes["padding"]["s"]).decode()]
    return {"kernel_shape": kernel_shape, "strides": _ints(attributes, "strides")[1:3], "auto_pad": padding}


def _convolution(attributes: Attributes, kernel: Array) -> Translated:
    """A kernel H, W, in, out."""
    return "Conv", _spatial(attributes, kernel.shape[:2]), [kernel.transpose(3, 2, 0, 1)]


def _depthwise(attributes: Attributes, kernel: Array) -> Translated:
    """A kernel H, W, channels, multiplier."""
    weight = kernel.transpose(2, 3, 0, 1).reshape(-1, 1, *kernel.shape[:2])
    return "Conv", {**_spatial(attributes, kernel.shape[:2]), "group": kernel.shape[2]}, [weight]


def _pad(_: Attributes, sides: Array, *value: Array) -> Translated:
    return "Pad", {"mode": "constant"}, [sides.T.reshape(-1).astype(np.int64), *value]


def _resize(_: Attributes, factor: Array) -> Translated:
    options = {"mode": "linear", "coordinate_transformation_mode": "half_pixel"}
    return "Resize", options, [np.zeros(0, np.float32), np.array([1, 1, factor, factor], np.float32)]


OF_IMAGES = ("Conv", "MaxPool", "Resize")
"""Operations that ONNX defines for NCHW."""
SAME = ("Add", "Identity", "Mul", "Relu", "Sigmoid")
"""Operations that are the same in ONNX."""
CONSTANT: Mapping[str, Callable[..., Array]] = {
    "AddV2": np.add,
    "SparseToDense": lambda places, shape, values, default: np.full(shape, default),
}
"""Arithmetic on shapes, whose inputs are constants; the sparse arrays of these nets are empty."""
OPERATIONS: Mapping[str, Callable[..., Translated]] = {
    "ConcatV2": lambda _, axis: ("Concat", {"axis": int(axis)}, []),
    "Conv2D": _convolution,
    "DepthwiseConv2dNative": _depthwise,
    "LeakyRelu": lambda attributes: ("LeakyRelu", {"alpha": float(attributes["alpha"]["f"])}, []),
    "MaxPool": lambda attributes: ("MaxPool", _spatial(attributes, _ints(attributes, "ksize")[1:3]), []),
    # max(min(relu(x), 6), 0) is one Clip, which runtimes fuse into the convolution before it.
    "Minimum": lambda _, limit: ("Clip", {}, [np.zeros((), np.float32), limit.reshape(())]),
    "Maximum": lambda _, zero: ("Identity", {}, []),
    "Mean": lambda _, axes: ("ReduceMean", {"axes": axes.tolist(), "keepdims": 0}, []),
    "Pad": _pad,
    "PadV2": _pad,
    "Reshape": lambda _, target: ("Reshape", {}, [np.array([0, *target[1:]], np.int64)]),
    "ResizeBilinear": _resize,
    "SplitV": lambda _, sizes, axis: ("Split", {"axis": int(axis)}, [sizes.astype(np.int64)]),
    "Transpose": lambda _, order: ("Transpose", {"perm": order.tolist()}, []),
}
"""By the attributes and the constant inputs of a TF node."""
