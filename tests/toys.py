"""Small networks without training: exact sizes, any batch, and well-known architectures with random weights.

Each function writes a valid ONNX file (IR 10, opset 17), equal from run to run, and returns its path.
"""

import math
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from appliance.demo.zoo import graphs


def _write(graph: onnx.GraphProto, path: Path) -> Path:
    return graphs.save(graphs.model_of(graph), path)


def tiny_add(path: Path) -> Path:
    """`SUM` = `A` + `B`, both FP32[N, 4]: the smallest model that can be wrong."""
    row: list[str | int | None] = ["N", 4]
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, row) for name in ("A", "B")]
    outputs = [helper.make_tensor_value_info("SUM", TensorProto.FLOAT, row)]
    return _write(
        helper.make_graph([helper.make_node("Add", ["A", "B"], ["SUM"], "add")], "tiny_add", inputs, outputs), path
    )


# -- convolution nets with random weights ------------------------------------------------------------------------------


def conv_net(path: Path, megabytes: float, classes: int = 10, seed: int = 3) -> Path:
    """A plain residual conv net of `megabytes` (10^6 bytes, within 2 %); `image` FP32[N, 3, H, W] (sides from 32) to
    `probabilities` FP32[N, classes].

    The batch, height and width are free. Eleven 3x3 convolutions, then a 1x1 one whose width fills the file up to the
    size asked for.
    """
    parameters = int(megabytes * 1e6 / 4)
    base = max(4, int(math.sqrt(0.9 * parameters / 1134)))
    builder = _ConvBuilder(np.random.default_rng(seed))
    value = builder.conv("image", 3, base, stride=2)
    channels = base
    for _ in range(3):
        value = builder.conv(value, channels, 2 * channels, stride=2)
        channels *= 2
        value = builder.residual(value, channels)
    head = max(8, round((parameters - builder.parameters - classes) / (channels + 1 + classes)))
    value = builder.conv(value, channels, head, kernel=1)
    builder.classifier(value, head, classes)
    image = helper.make_tensor_value_info("image", TensorProto.FLOAT, ["N", 3, "H", "W"])
    answer = helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, ["N", classes])
    return _write(helper.make_graph(builder.nodes, "conv_net", [image], [answer], builder.weights), path)


class _ConvBuilder:
    """Collects the nodes and He-initialised weights of a conv net."""

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.parameters = 0

    def conv(self, value: str, channels_in: int, channels_out: int, kernel: int = 3, stride: int = 1) -> str:
        """Convolution and ReLU; returns the name of the result."""
        name = f"conv{len(self.nodes)}"
        scale = math.sqrt(2 / (channels_in * kernel * kernel))
        weight = self._weight(f"{name}.weight", (channels_out, channels_in, kernel, kernel), scale)
        bias = self._weight(f"{name}.bias", (channels_out,), 0.05)
        sides, strides, pads = [kernel] * 2, [stride] * 2, [kernel // 2] * 4
        inputs, output = [value, weight, bias], [f"{name}.out"]
        self.nodes.append(
            helper.make_node("Conv", inputs, output, name, kernel_shape=sides, strides=strides, pads=pads)
        )
        self.nodes.append(helper.make_node("Relu", [f"{name}.out"], [f"{name}.relu"], f"{name}.relu"))
        return f"{name}.relu"

    def residual(self, value: str, channels: int) -> str:
        """`value` plus one convolution of it."""
        branch = self.conv(value, channels, channels)
        name = f"add{len(self.nodes)}"
        self.nodes.append(helper.make_node("Add", [value, branch], [name], name))
        return name

    def classifier(self, value: str, channels: int, classes: int) -> None:
        """Global mean, one dense layer, softmax into `probabilities`."""
        weight = self._weight("head.weight", (channels, classes), 0.5 / math.sqrt(channels))
        bias = self._weight("head.bias", (classes,), 0.01)
        self.nodes.append(helper.make_node("GlobalAveragePool", [value], ["pooled"], "pool"))
        self.nodes.append(helper.make_node("Flatten", ["pooled"], ["flat"], "flatten", axis=1))
        self.nodes.append(helper.make_node("Gemm", ["flat", weight, bias], ["logits"], "head"))
        self.nodes.append(helper.make_node("Softmax", ["logits"], ["probabilities"], "softmax", axis=1))

    def _weight(self, name: str, shape: tuple[int, ...], scale: float) -> str:
        values = self._rng.standard_normal(shape, np.float32) * np.float32(scale)
        self.weights.append(numpy_helper.from_array(values, name))
        self.parameters += values.size
        return name


# -- well-known architectures, expanded from the weightless graphs that the onnx package carries ----------------------


def resnet50(path: Path) -> Path:
    """ResNet-50 with random weights, 102 MB (98 MiB); `gpu_0/data_0` FP32[N, 3, 224, 224] to `gpu_0/softmax_1`
    FP32[N, 1000].
    """
    return _expand("resnet50", path)


def squeezenet(path: Path) -> Path:
    """SqueezeNet 1.0 with random weights, 5 MB; `data_0` FP32[N, 3, 224, 224] to `softmaxout_1` FP32[N, 1000, 1, 1]."""
    return _expand("squeezenet", path)


def shufflenet(path: Path) -> Path:
    """ShuffleNet with random weights, 5.6 MB; `gpu_0/data_0` FP32[N, 3, 224, 224] to `gpu_0/softmax_1` FP32[N,
    1000].
    """
    return _expand("shufflenet", path)


def _light_graph(name: str) -> Path:
    """The weightless graph inside the installed onnx package."""
    found = find_spec("onnx")
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).parent / "backend" / "test" / "data" / "light" / f"light_{name}.onnx"


def _expand(name: str, path: Path, seed: int = 11) -> Path:
    """Put random weights where the light graph has ConstantOfShape nodes, free the batch, and raise opset 9 to 17."""
    model = onnx.load(_light_graph(name))
    graph = model.graph
    shapes = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    made = {
        node.output[0]: tuple(int(side) for side in shapes[node.input[0]])
        for node in graph.node
        if node.op_type == "ConstantOfShape"
    }
    used = {value for node in graph.node if node.op_type != "ConstantOfShape" for value in node.input}
    kept = [tensor for tensor in graph.initializer if tensor.name in used and tensor.name not in made]
    weights = list(
        _random_weights(
            graph, {**{t.name: tuple(t.dims) for t in kept if t.data_type == TensorProto.FLOAT}, **made}, seed
        )
    )
    nodes = [node for node in graph.node if node.op_type not in ("ConstantOfShape", "Dropout")]
    _bypass_dropout(graph, nodes)
    reshapes = {node.input[1] for node in nodes if node.op_type == "Reshape"}
    weights += [
        _free_batch(tensor) if tensor.name in reshapes else tensor
        for tensor in kept
        if tensor.data_type != TensorProto.FLOAT
    ]
    inputs = [
        value for value in graph.input if value.name in used and value.name not in {weight.name for weight in weights}
    ]
    for value in (*inputs, *graph.output):
        value.type.tensor_type.shape.dim[0].dim_param = "N"
    expanded = helper.make_graph(nodes, name, inputs, list(graph.output), weights)
    newer = onnx.version_converter.convert_version(graphs.model_of(expanded, opset=9), graphs.OPSET)
    return _write(newer.graph, path)


def _bypass_dropout(graph: onnx.GraphProto, nodes: list[onnx.NodeProto]) -> None:
    """Join the ends that a removed Dropout leaves: it does nothing at inference."""
    source = {node.output[0]: node.input[0] for node in graph.node if node.op_type == "Dropout"}
    for node in nodes:
        for index, value in enumerate(node.input):
            node.input[index] = source.get(value, value)


def _free_batch(shape: onnx.TensorProto) -> onnx.TensorProto:
    """A Reshape target whose leading 1 (the batch) is "as it comes"."""
    sides = numpy_helper.to_array(shape).copy()
    sides[0] = 0
    return numpy_helper.from_array(sides, shape.name)


def _random_weights(
    graph: onnx.GraphProto, shapes: dict[str, tuple[int, ...]], seed: int
) -> Iterator[onnx.TensorProto]:
    """He-scaled kernels, batch norms near identity, small biases: activations stay finite through the whole depth."""
    rng = np.random.default_rng(seed)
    norms = {
        value: place
        for node in graph.node
        if node.op_type == "BatchNormalization"
        for place, value in enumerate(node.input[1:])
    }
    for name, shape in sorted(shapes.items()):
        if name in norms:  # scale, bias, mean, variance
            centre, spread = ((0.7, 0.05), (0.0, 0.05), (0.0, 0.05), (1.0, 0.1))[norms[name]]
        else:
            centre, spread = 0.0, math.sqrt(2 / math.prod(shape[1:])) if len(shape) > 1 else 0.01
        values = rng.standard_normal(shape, np.float32) * np.float32(spread) + np.float32(centre)
        yield numpy_helper.from_array(np.abs(values) if norms.get(name) == 3 else values, name)
