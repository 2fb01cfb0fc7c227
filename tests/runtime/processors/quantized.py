"""A small network of layers that a DLA has, in full precision and as the import quantizes it."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper

from appliance.domain.catalogue import Precision
from appliance.domain.hardware import PreparedForm, Reference
from appliance.modelstore.importing.profiling import DIFFERENCE_MAX
from appliance.modelstore.stages.quantise import Ranges, static_int8
from appliance.runtime.processors.measuring.same import check_same
from tests.modelstore import networks

RANDOM = np.random.default_rng(5)
IMAGES = [RANDOM.standard_normal((1, 3, 16, 16)).astype(np.float32) for _ in range(8)]


def original(folder: Path, *, last: str = "") -> Path:
    """Convolutions, a sum, a maximum and two branches that meet; then, if it is named, an operator more."""
    rng = np.random.default_rng(0)
    weights: dict[str, np.ndarray] = {}

    def conv(source: str, channels: tuple[int, int], name: str) -> onnx.NodeProto:
        values = rng.standard_normal((*channels, 3, 3)) / np.sqrt(9 * channels[1])
        weights[f"{name}.w"] = values.astype(np.float32)
        weights[f"{name}.b"] = (rng.standard_normal(channels[0]) / 10).astype(np.float32)
        inputs = [source, f"{name}.w", f"{name}.b"]
        return helper.make_node("Conv", inputs, [f"{name}.y"], name, kernel_shape=[3, 3], pads=[1, 1, 1, 1])

    nodes = [
        conv("image", (8, 3), "a"),
        helper.make_node("Relu", ["a.y"], ["a.r"], "a.relu"),
        conv("a.r", (8, 8), "b"),
        helper.make_node("Add", ["a.r", "b.y"], ["sum"], "add"),
        helper.make_node("Relu", ["sum"], ["sum.r"], "add.relu"),
        helper.make_node("MaxPool", ["sum.r"], ["pooled"], "pool", kernel_shape=[2, 2], strides=[2, 2]),
        conv("pooled", (4, 8), "c"),
        conv("pooled", (4, 8), "d"),
        helper.make_node("Concat", ["c.y", "d.y"], ["both"], "concat", axis=1),
        conv("both", (4, 8), "e"),
    ]
    output = "e.y"
    if last:
        nodes.append(helper.make_node(last, [output], ["last"], "last"))
        output = "last"
    model = networks.model(nodes, {"image": ["n", 3, 16, 16]}, {output: ["n", 4, 8, 8]}, weights, ir=10)
    return Path(networks.write(onnx.shape_inference.infer_shapes(model), folder, "original.onnx"))


def quantized(source: Path, folder: Path) -> Path:
    """By the recipe for networks of convolutions: bytes with a zero point between them, and signed ones in each."""
    ranges = Ranges(source, [{"image": image} for image in IMAGES])
    target = folder / "int8" / "model.onnx"
    target.parent.mkdir()
    static_int8(source, target, ranges, False, [])
    return target


def check_nearly_same(sessions: Any, loaded: Any, own: Path, plain: Path, precision: Precision) -> None:
    """It computes so nearly the same as its file, or the network in full precision, that it may serve."""
    first, whole = PreparedForm("net@cpu", str(own), 1, False), PreparedForm("net@cpu", str(plain), 1, False)
    reference = asdict(Reference(first, DIFFERENCE_MAX[precision], whole))
    check_same(sessions, loaded, reference, [{"image": image} for image in IMAGES])
