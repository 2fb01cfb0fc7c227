"""TFJS graphs become ONNX graphs that compute the same: checked against the arithmetic written out with numpy."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime as ort
import pytest

from appliance.demo.zoo import graphs, tfjs

Array = npt.NDArray[Any]
SAME, VALID, NHWC = "U0FNRQ==", "VkFMSUQ=", "TkhXQw=="


def node(name: str, op: str, inputs: Sequence[str] = (), **attr: Any) -> dict[str, Any]:
    return {"name": name, "op": op, "input": list(inputs), "attr": attr}


def ints(*values: int) -> dict[str, Any]:
    return {"list": {"i": [str(value) for value in values]}}


def write_graph(
    folder: Path, nodes: Sequence[Mapping[str, Any]], weights: Mapping[str, Array], half: bool = False
) -> Path:
    """model.json and its weight file; `half` stores floats as float16."""
    entries, raw = [], b""
    for name, values in weights.items():
        entry: dict[str, Any] = {"name": name, "shape": list(values.shape), "dtype": str(values.dtype)}
        stored = values
        if half and values.dtype == np.float32:
            entry["quantization"] = {"dtype": "float16", "original_dtype": "float32"}
            stored = values.astype(np.float16)
        entries.append(entry)
        raw += stored.tobytes()
    constants = [node(name, "Const") for name in weights]
    document = {
        "modelTopology": {"node": [*nodes, *constants]},
        "weightsManifest": [{"paths": ["model.bin"], "weights": entries}],
    }
    (folder / "model.bin").write_bytes(raw)
    (folder / "model.json").write_text(json.dumps(document))
    return folder / "model.json"


def run(topology: Path, image: Array, shape: Sequence[str | int], out: str, scales: Sequence[float] = ()) -> Array:
    model = tfjs.convert(
        topology,
        [("image", "input", tuple(f"i{axis}" if axis != 3 else side for axis, side in enumerate(image.shape)))],
        [("answer", out, tuple(shape))],
        scales,
    )
    path = graphs.save(model, topology.parent / "out.onnx")
    net = ort.InferenceSession(path, providers=["CPUExecutionProvider"])
    return np.asarray(net.run(None, {"image": image})[0])


def noise(*shape: int) -> npt.NDArray[np.float32]:
    return np.random.default_rng(0).standard_normal(shape, np.float32)


@pytest.mark.parametrize("half", [False, True])
def test_tfjs_pointwise_convolution_norm_and_relu6_are_converted(tmp_path: Path, half: bool) -> None:
    """1x1 convolution, scale, shift and max(min(relu, 6), 0): one Clip for three bounds, and the same numbers."""
    kernel, scale, shift = noise(1, 1, 3, 5), np.abs(noise(5)) * 4, noise(5) * 2
    weights = {
        "kernel": kernel,
        "scale": scale,
        "shift": shift,
        "six": np.full((), 6, np.float32),
        "zero": np.zeros((), np.float32),
    }
    nodes = [
        node("input", "Placeholder"),
        node(
            "conv",
            "Conv2D",
            ["input", "kernel"],
            strides=ints(1, 1, 1, 1),
            padding={"s": SAME},
            data_format={"s": NHWC},
        ),
        node("mul", "Mul", ["conv", "scale"]),
        node("add", "Add", ["mul", "shift"]),
        node("relu", "Relu", ["add"]),
        node("min", "Minimum", ["relu", "six"]),
        node("max", "Maximum", ["min", "zero"]),
    ]
    topology = write_graph(tmp_path, nodes, weights, half)
    image = noise(2, 4, 6, 3)
    if half:
        kernel, scale, shift = (values.astype(np.float16).astype(np.float32) for values in (kernel, scale, shift))
    expected = np.clip((image @ kernel[0, 0]) * scale + shift, 0, 6)
    assert np.allclose(run(topology, image, ("n", "h", "w", 5), "max"), expected, atol=1e-4)
    model = tfjs.convert(topology, [("image", "input", ("n", "h", "w", 3))], [("y", "max", ("n", "h", "w", 5))])
    kinds = {made.op_type for made in model.graph.node}
    assert "Clip" in kinds
    assert not kinds & {"Relu", "Min", "Max"}, "three bounds are one"


def test_tfjs_depthwise_convolution_with_same_padding_is_converted(tmp_path: Path) -> None:
    """TensorFlow pads below and right first; the depthwise kernel stays with its channel."""
    kernel = noise(3, 3, 2, 1)
    nodes = [
        node("input", "Placeholder"),
        node("dw", "DepthwiseConv2dNative", ["input", "kernel"], strides=ints(1, 2, 2, 1), padding={"s": SAME}),
    ]
    image = noise(1, 6, 4, 2)
    padded = np.pad(image, ((0, 0), (0, 1), (0, 1), (0, 0)))
    expected = np.zeros((1, 3, 2, 2), np.float32)
    for row in range(3):
        for column in range(2):
            window = padded[0, 2 * row : 2 * row + 3, 2 * column : 2 * column + 3]
            expected[0, row, column] = (window * kernel[..., 0]).sum(axis=(0, 1))
    assert np.allclose(
        run(write_graph(tmp_path, nodes, {"kernel": kernel}), image, ("n", "h", "w", 2), "dw"), expected, atol=1e-5
    )


def test_tfjs_split_reshape_transpose_and_mean_are_converted(tmp_path: Path) -> None:
    """Second output of a split, a reshape whose leading 1 is the batch, and a mean over axes."""
    weights = {
        "sizes": np.array([1, 2], np.int32),
        "axis": np.array(3, np.int32),
        "target": np.array([1, -1, 2], np.int32),
        "perm": np.array([0, 2, 1], np.int32),
        "over": np.array([2], np.int32),
    }
    nodes = [
        node("input", "Placeholder"),
        node("split", "SplitV", ["input", "sizes", "axis"]),
        node("flat", "Reshape", ["split:1", "target"]),
        node("turned", "Transpose", ["flat", "perm"]),
        node("mean", "Mean", ["turned", "over"], keep_dims={"b": False}),
    ]
    image = noise(3, 2, 4, 3)
    expected = image[..., 1:].reshape(3, -1, 2).mean(axis=1)
    assert np.allclose(run(write_graph(tmp_path, nodes, weights), image, ("n", 2), "mean"), expected, atol=1e-6)


def test_tfjs_pad_pool_concat_resize_and_shapes_are_converted(tmp_path: Path) -> None:
    """Padding by minus infinity, max pooling, doubling in size, joining channels, and a target that is computed from
    constants.
    """
    weights: dict[str, Array] = {
        "pads": np.array([[0, 0], [1, 1], [1, 1], [0, 0]], np.int32),
        "lowest": np.full((), -np.inf, np.float32),
        "size": np.array([99, 99], np.int32),
        "axis": np.array(3, np.int32),
        "base": np.array([1, 4, -1], np.int64),
        "none": np.zeros((0, 1), np.int64),
        "three": np.array([3], np.int64),
        "empty": np.zeros(0, np.int64),
        "nought": np.array(0, np.int64),
    }
    pool = {"ksize": ints(1, 3, 3, 1), "strides": ints(1, 2, 2, 1), "padding": {"s": VALID}}
    nodes = [
        node("input", "Placeholder"),
        node("padded", "PadV2", ["input", "pads", "lowest"]),
        node("pool", "MaxPool", ["padded"], **pool),
        node("large", "ResizeBilinear", ["pool", "size"], half_pixel_centers={"b": True}),
        node("joined", "ConcatV2", ["large", "input", "axis"]),
        node("zeros", "SparseToDense", ["none", "three", "empty", "nought"]),
        node("target", "AddV2", ["base", "zeros"]),
        node("rows", "Reshape", ["joined", "target"]),
    ]
    image = np.ones((1, 4, 8, 2), np.float32)
    image[..., 1] = 2
    answer = run(write_graph(tmp_path, nodes, weights), image, ("n", 4, "m"), "rows", scales=(2,))
    assert answer.shape == (1, 4, 32)
    assert np.array_equal(answer.reshape(-1, 4)[0], [1, 2, 1, 2])
