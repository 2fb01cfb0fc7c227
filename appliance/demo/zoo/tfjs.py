"""TensorFlow.js graph models (JSON nodes and a raw weight file) to ONNX, with numpy and onnx alone.

Knows the operations of the two convolution nets that the zoo takes, whose files are known by their hashes. Tensors keep
the NHWC order of the source: each convolution, pool and resize gets a transpose on either side, which ONNX Runtime's
basic rewriting then folds away.
"""

import base64
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
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
    Leading 1 in the target of a Reshape is taken for the batch and left as it comes.
    """
    net = _Net(topology, scales)
    net.names |= {source: name for name, source, _ in inputs}
    for name, source, _ in outputs:
        net.add("Identity", [net.value(source)], name)
    shapes = ({name: shape for name, _, shape in sides} for sides in (inputs, outputs))
    return tidied(net.model(topology.stem, *shapes))


def _weights(groups: Iterable[Mapping[str, Any]], folder: Path) -> Mapping[str, Array]:
    """Every weight by name; float16 widened to what it was, the rest as stored."""
    weights: dict[str, Array] = {}
    for group in groups:
        raw, offset = b"".join((folder / path).read_bytes() for path in group["paths"]), 0
        for entry in group["weights"]:
            stored, count = np.dtype(entry.get("quantization", entry)["dtype"]), int(np.prod(entry["shape"]))
            values = np.frombuffer(raw, stored, count, offset)
            weights[entry["name"]] = values.reshape(entry["shape"]).astype(entry["dtype"])
            offset += values.nbytes
    return weights


class _Net(Graph):
    """The ONNX graph that grows from its outputs; `names` maps a TF value to its ONNX value."""

    def __init__(self, topology: Path, scales: Iterable[float]) -> None:
        super().__init__()
        document = json.loads(topology.read_text())
        self._sources: dict[str, Node] = {node["name"]: node for node in document["modelTopology"]["node"]}
        self._weights = _weights(document["weightsManifest"], topology.parent)
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
            return self.constant(name, CONSTANT[operation](known))
        if operation in SAME:
            return self.add(operation, inputs, name)
        if operation == "ResizeBilinear":
            known = [np.array(next(self._scales), np.float32)]
        kind, attributes, constants = OPERATIONS[operation](node["attr"], known)
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


Attributes = Mapping[str, Any]
Translated = tuple[str, dict[str, Any], Sequence[Array]]
"""The ONNX operation, its attributes, and its constant inputs, which follow the others."""


def _ints(attributes: Attributes, key: str) -> list[int]:
    return [int(number) for number in attributes[key]["list"]["i"]]


def _spatial(attributes: Attributes, kernel_shape: Sequence[int]) -> dict[str, Any]:
    """Kernel, strides and padding of a convolution or pool, in ONNX words."""
    padding = {"SAME": "SAME_UPPER", "VALID": "VALID"}[base64.b64decode(attributes["padding"]["s"]).decode()]
    return {"kernel_shape": kernel_shape, "strides": _ints(attributes, "strides")[1:3], "auto_pad": padding}


def _convolution(attributes: Attributes, known: Sequence[Array]) -> Translated:
    (kernel,) = known  # H, W, in, out
    return "Conv", _spatial(attributes, kernel.shape[:2]), [np.ascontiguousarray(kernel.transpose(3, 2, 0, 1))]


def _depthwise(attributes: Attributes, known: Sequence[Array]) -> Translated:
    (kernel,) = known  # H, W, channels, multiplier
    weight = kernel.transpose(2, 3, 0, 1).reshape(-1, 1, *kernel.shape[:2])
    return "Conv", _spatial(attributes, kernel.shape[:2]) | {"group": kernel.shape[2]}, [weight]


def _pad(attributes: Attributes, known: Sequence[Array]) -> Translated:
    sides, *value = known
    return "Pad", {"mode": "constant"}, [sides.T.reshape(-1).astype(np.int64), *value]


def _reshape(attributes: Attributes, known: Sequence[Array]) -> Translated:
    (target,) = known
    batch = 0 if target[0] == 1 else target[0]
    return "Reshape", {}, [np.array([batch, *target[1:]], np.int64)]


def _mean(attributes: Attributes, known: Sequence[Array]) -> Translated:
    return "ReduceMean", {"axes": known[0].tolist(), "keepdims": int(attributes["keep_dims"]["b"])}, []


def _resize(attributes: Attributes, known: Sequence[Array]) -> Translated:
    scales = np.array([1, 1, known[0], known[0]], np.float32)
    options = {"mode": "linear", "coordinate_transformation_mode": "half_pixel"}
    return "Resize", options, [np.zeros(0, np.float32), scales]


OF_IMAGES = ("Conv", "MaxPool", "Resize")
"""Operations that ONNX defines for NCHW."""
SAME = ("Add", "Identity", "Mul", "Relu", "Sigmoid")
"""Operations that are the same in ONNX."""
CONSTANT: Mapping[str, Callable[[Sequence[Array]], Array]] = {
    "AddV2": lambda known: known[0] + known[1],
    "SparseToDense": lambda known: np.full(known[1], known[3]),
}
"""Arithmetic on shapes, whose inputs are constants; the sparse arrays of these nets are empty."""
OPERATIONS: Mapping[str, Callable[[Attributes, Sequence[Array]], Translated]] = {
    "ConcatV2": lambda attributes, known: ("Concat", {"axis": int(known[0])}, []),
    "Conv2D": _convolution,
    "DepthwiseConv2dNative": _depthwise,
    "LeakyRelu": lambda attributes, known: ("LeakyRelu", {"alpha": float(attributes["alpha"]["f"])}, []),
    "MaxPool": lambda attributes, known: ("MaxPool", _spatial(attributes, _ints(attributes, "ksize")[1:3]), []),
    # max(min(relu(x), 6), 0) is one Clip, which runtimes fuse into the convolution before it.
    "Minimum": lambda attributes, known: ("Clip", {}, [np.zeros((), np.float32), known[0].reshape(())]),
    "Maximum": lambda attributes, known: ("Identity", {}, []),
    "Mean": _mean,
    "Pad": _pad,
    "PadV2": _pad,
    "Reshape": _reshape,
    "ResizeBilinear": _resize,
    "SplitV": lambda attributes, known: ("Split", {"axis": int(known[1])}, [known[0].astype(np.int64)]),
    "Transpose": lambda attributes, known: ("Transpose", {"perm": known[0].tolist()}, []),
}
