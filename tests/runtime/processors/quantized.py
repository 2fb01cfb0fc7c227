"""A small network of layers that a DLA has, in full precision and as the import quantizes it."""

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from appliance.modelstore.stages.quantise import Ranges, static_int8

RANDOM = np.random.default_rng(5)
IMAGES = [RANDOM.standard_normal((1, 3, 16, 16)).astype(np.float32) for _ in range(8)]


def original(folder: Path, *, last: str = "") -> Path:
    """Convolutions, a sum, a maximum and two branches that meet; then, if it is named, an operator more."""
    rng = np.random.default_rng(0)
    weights: list[TensorProto] = []

    def conv(source: str, channels: tuple[int, int], name: str) -> list[onnx.NodeProto]:
        values = (rng.standard_normal((*channels, 3, 3)) / np.sqrt(9 * channels[1])).astype(np.float32)
        weights.append(numpy_helper.from_array(values, f"{name}.w"))
        weights.append(numpy_helper.from_array((rng.standard_normal(channels[0]) / 10).astype(np.float32), f"{name}.b"))
        inputs = [source, f"{name}.w", f"{name}.b"]
        return [helper.make_node("Conv", inputs, [f"{name}.y"], name, kernel_shape=[3, 3], pads=[1, 1, 1, 1])]

    nodes = [
        *conv("image", (8, 3), "a"),
        helper.make_node("Relu", ["a.y"], ["a.r"], "a.relu"),
        *conv("a.r", (8, 8), "b"),
        helper.make_node("Add", ["a.r", "b.y"], ["sum"], "add"),
        helper.make_node("Relu", ["sum"], ["sum.r"], "add.relu"),
        helper.make_node("MaxPool", ["sum.r"], ["pooled"], "pool", kernel_shape=[2, 2], strides=[2, 2]),
        *conv("pooled", (4, 8), "c"),
        *conv("pooled", (4, 8), "d"),
        helper.make_node("Concat", ["c.y", "d.y"], ["both"], "concat", axis=1),
        *conv("both", (4, 8), "e"),
    ]
    output = "e.y"
    if last:
        nodes.append(helper.make_node(last, [output], ["last"], "last"))
        output = "last"
    image = helper.make_tensor_value_info("image", TensorProto.FLOAT, ["n", 3, 16, 16])
    answer = helper.make_tensor_value_info(output, TensorProto.FLOAT, ["n", 4, 8, 8])
    graph = helper.make_graph(nodes, "net", [image], [answer], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
    path = folder / "original.onnx"
    onnx.save(onnx.shape_inference.infer_shapes(model), path)
    return path


def quantized(source: Path, folder: Path) -> Path:
    """By the recipe for networks of convolutions: bytes with a zero point between them, and signed ones in each."""
    ranges = Ranges(source, [{"image": image} for image in IMAGES])
    target = folder / "int8" / "model.onnx"
    target.parent.mkdir()
    static_int8(source, target, ranges, False, [])
    return target
