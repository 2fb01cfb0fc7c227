"""Graphs made on the spot, without network: exact sizes, any batch, and one that is really trained.

Tests and benchmarks call the functions; each writes a valid ONNX file (IR 10, opset 17) and returns its path. The
weights of the big nets are random (seeded, so files are equal from run to run); their cost is that of the real
architecture. `digits` is trained, with a held-out set.
"""

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

from appliance.demo.zoo import graphs

Floats = npt.NDArray[np.float32]

DIGIT_SIDE = 8
"""Height and width of a digit image in pixels."""
DIGIT_CLASSES = tuple("0123456789")


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


# -- digits ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Digits:
    """What `digits` leaves in its folder."""

    model: Path
    metadata: Path
    """JSON in the words of `TaskSpec`."""
    calibration: Path
    """Folder of images the net was trained on."""
    evaluation: Path
    """Folder of held-out images with `truth.json`."""


def digits(folder: Path, seed: int = 7) -> Digits:
    """A 64-64-10 net trained here (about a second) on drawn digits; input `image` FP32[N, 1, 8, 8] in 0..1, output
    `probabilities` FP32[N, 10].

    The pictures are the ten numerals in several line fonts, slanted, shifted, of uneven thickness and noisy; held-out
    top-1 is above 0.9.
    """
    rng = np.random.default_rng(seed)
    images, labels = draw_digits(rng, 1800)
    held_out_images, held_out_labels = draw_digits(rng, 200)
    weights = train(images.reshape(len(images), -1).astype(np.float32) / np.float32(255), labels, rng)
    made = Digits(folder / "digits.onnx", folder / "metadata.json", folder / "calibration", folder / "evaluation")
    _write(_digits_graph(weights), made.model)
    made.metadata.write_text(json.dumps(DIGITS_METADATA))
    _save_images(made.calibration, images[:32], labels[:32])
    _save_images(made.evaluation, held_out_images, held_out_labels)
    return made


DIGITS_METADATA: dict[str, object] = {
    "task": "image-classification",
    "labels": list(DIGIT_CLASSES),
    "image": {
        "layout": "NCHW",
        "channels": "GRAY",
        "mean": [0.0],
        "std": [255.0],
        "resize": "stretch",
        "height": 8,
        "width": 8,
    },
}


def draw_digits(rng: np.random.Generator, count: int) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """`count` drawn numerals: uint8[count, 8, 8] (white on black) and their classes."""
    labels = np.arange(count, dtype=np.int64) % len(DIGIT_CLASSES)
    return np.stack([_draw(DIGIT_CLASSES[label], rng) for label in labels]), labels


def _draw(numeral: str, rng: np.random.Generator) -> npt.NDArray[np.uint8]:
    """One numeral in a random hand, shrunk to 8x8, with noise."""
    import cv2

    small = cv2.resize(hand(numeral, rng), (DIGIT_SIDE, DIGIT_SIDE), interpolation=cv2.INTER_AREA)
    noisy: npt.NDArray[np.uint8] = np.clip(small + rng.normal(0, 12, small.shape), 0, 255).astype(np.uint8)
    return noisy


def hand(numeral: str, rng: np.random.Generator) -> npt.NDArray[np.uint8]:
    """One numeral on 64x64 in a random hand, white on black."""
    import cv2

    fonts = (cv2.FONT_HERSHEY_SIMPLEX, cv2.FONT_HERSHEY_DUPLEX, cv2.FONT_HERSHEY_COMPLEX)
    font, thickness = fonts[rng.integers(3)], int(rng.integers(4, 9))
    canvas = np.zeros((64, 64), np.uint8)
    (width, height), _ = cv2.getTextSize(numeral, font, 1.9, thickness)
    cv2.putText(canvas, numeral, (32 - width // 2, 32 + height // 2), font, 1.9, (255,), thickness, cv2.LINE_AA)
    turn, scale = math.radians(rng.uniform(-14, 14)), rng.uniform(0.85, 1.1)
    across, down = rng.uniform(-5, 5, 2)
    cos, sin = math.cos(turn) * scale, math.sin(turn) * scale
    warp = np.array([[cos, sin, 32 * (1 - cos - sin) + across], [-sin, cos, 32 * (1 - cos + sin) + down]], np.float64)
    drawn: npt.NDArray[np.uint8] = np.asarray(cv2.warpAffine(canvas, warp, (64, 64)), np.uint8)
    return drawn


@dataclass(frozen=True)
class DigitWeights:
    """Two dense layers: FP32 [64, 64], [64], [64, 10], [10]."""

    hidden: Floats
    hidden_bias: Floats
    out: Floats
    out_bias: Floats


def train(
    rows: Floats, labels: npt.NDArray[np.int64], rng: np.random.Generator, epochs: int = 60, rate: float = 0.3
) -> DigitWeights:
    """Plain mini-batch gradient descent on the cross entropy of a ReLU net; `rows` FP32[n, 64] in 0..1."""
    hidden = (rng.normal(size=(64, 64)) * math.sqrt(2 / 64)).astype(np.float32)
    out = (rng.normal(size=(64, 10)) * math.sqrt(1 / 64)).astype(np.float32)
    hidden_bias, out_bias = np.zeros(64, np.float32), np.zeros(10, np.float32)
    targets = np.eye(10, dtype=np.float32)[labels]
    for _ in range(epochs):
        order = rng.permutation(len(rows))
        for batch in np.array_split(order, math.ceil(len(rows) / 64)):
            active = np.maximum(rows[batch] @ hidden + hidden_bias, 0)
            error = (softmax(active @ out + out_bias) - targets[batch]) / len(batch)
            back = (error @ out.T) * (active > 0)
            out -= rate * (active.T @ error)
            out_bias -= rate * error.sum(axis=0)
            hidden -= rate * (rows[batch].T @ back)
            hidden_bias -= rate * back.sum(axis=0)
    return DigitWeights(hidden, hidden_bias, out, out_bias)


def softmax(logits: Floats) -> Floats:
    """Along the last axis."""
    powers = np.exp(logits - logits.max(axis=-1, keepdims=True))
    shares: Floats = powers / powers.sum(axis=-1, keepdims=True)
    return shares


def _digits_graph(weights: DigitWeights) -> onnx.GraphProto:
    constants = {"w1": weights.hidden, "b1": weights.hidden_bias, "w2": weights.out, "b2": weights.out_bias}
    nodes = [
        helper.make_node("Flatten", ["image"], ["flat"], "flatten", axis=1),
        helper.make_node("Gemm", ["flat", "w1", "b1"], ["h"], "hidden"),
        helper.make_node("Relu", ["h"], ["a"], "relu"),
        helper.make_node("Gemm", ["a", "w2", "b2"], ["logits"], "out"),
        helper.make_node("Softmax", ["logits"], ["probabilities"], "softmax", axis=1),
    ]
    image = helper.make_tensor_value_info("image", TensorProto.FLOAT, ["N", 1, DIGIT_SIDE, DIGIT_SIDE])
    answer = helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, ["N", len(DIGIT_CLASSES)])
    return helper.make_graph(
        nodes, "digits", [image], [answer], [numpy_helper.from_array(v, k) for k, v in constants.items()]
    )


def _save_images(folder: Path, images: npt.NDArray[np.uint8], labels: npt.NDArray[np.int64]) -> None:
    import cv2

    folder.mkdir(parents=True, exist_ok=True)
    samples = [{"file": f"{index:04}.png", "label": DIGIT_CLASSES[label]} for index, label in enumerate(labels)]
    for image, sample in zip(images, samples, strict=True):
        (folder / sample["file"]).write_bytes(cv2.imencode(".png", image)[1].tobytes())
    (folder / "truth.json").write_text(json.dumps({"samples": samples}))


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


# -- well-known architectures, expanded from the weightless graphs that the onnx package carries
# ------------------------


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
