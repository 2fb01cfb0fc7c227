"""Networks of fixed shapes, written by hand."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def table_sums(path: Path) -> Path:
    """`Y` = the sums of the columns of `X`, which has always four rows."""
    node = helper.make_node("ReduceSum", ["X", "axis"], ["Y"], "sum", keepdims=0)
    axis = helper.make_tensor("axis", TensorProto.INT64, [1], [0])
    table = helper.make_tensor_value_info("X", TensorProto.FLOAT, [4, 3])
    sums = helper.make_tensor_value_info("Y", TensorProto.FLOAT, [3])
    return _saved(helper.make_graph([node], "table_sums", [table], [sums], [axis]), path)


def running_sum(path: Path) -> Path:
    """`Y` = `X` + `S`, and the next `S` is `Y`: remembers the sum of all it has seen."""
    row = [1, 2]
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, row) for name in ("X", "S")]
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, row) for name in ("Y", "SN")]
    nodes = [helper.make_node("Add", ["X", "S"], ["Y"], "add"), helper.make_node("Identity", ["Y"], ["SN"], "keep")]
    return _saved(helper.make_graph(nodes, "running_sum", inputs, outputs), path)


def sensor_counts(seed: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    """An input of `sensor_level`: what its converter measures, counts around 2,048."""
    return np.asarray(np.random.default_rng(seed).normal(2048, 60, (1, 1, 64)), np.float32)


def sensor_level(path: Path) -> Path:
    """`Y` = a weighted mean of the counts `X` of a converter, which lie around 2,048: three convolutions and a mean."""
    generator = np.random.default_rng(7)
    weights = [
        numpy_helper.from_array((generator.uniform(0, 1, shape) / np.prod(shape[1:])).astype(np.float32), name)
        for name, shape in (("W1", (64, 1, 5)), ("W2", (64, 64, 5)), ("W3", (1, 64, 5)))
    ]
    nodes = [
        helper.make_node("Conv", ["X", "W1"], ["A"], "first"),
        helper.make_node("Relu", ["A"], ["B"], "relu"),
        helper.make_node("Conv", ["B", "W2"], ["C"], "second"),
        helper.make_node("Relu", ["C"], ["D"], "again"),
        helper.make_node("Conv", ["D", "W3"], ["E"], "third"),
        helper.make_node("GlobalAveragePool", ["E"], ["Y"], "mean"),
    ]
    counts = helper.make_tensor_value_info("X", TensorProto.FLOAT, [1, 1, 64])
    level = helper.make_tensor_value_info("Y", TensorProto.FLOAT, [1, 1, 1])
    return _saved(helper.make_graph(nodes, "sensor_level", [counts], [level], weights), path)


def quiet_rows(path: Path, width: int = 256) -> Path:
    """`Y` = `X` times a matrix while all values of a batch are below 60, else 0."""
    weights = np.random.default_rng(7).normal(0, 0.02, (width, width)).astype(np.float32)
    stored = [numpy_helper.from_array(weights, "W"), helper.make_tensor("limit", TensorProto.FLOAT, [], [60.0])]
    nodes = [
        helper.make_node("MatMul", ["X", "W"], ["P"], "product"),
        helper.make_node("ReduceMax", ["X"], ["M"], "largest", keepdims=1),
        helper.make_node("Less", ["M", "limit"], ["L"], "is_quiet"),
        helper.make_node("Cast", ["L"], ["F"], "factor", to=TensorProto.FLOAT),
        helper.make_node("Mul", ["P", "F"], ["Y"], "silenced"),
    ]
    row = helper.make_tensor_value_info("X", TensorProto.FLOAT, ["N", width])
    product = helper.make_tensor_value_info("Y", TensorProto.FLOAT, ["N", width])
    return _saved(helper.make_graph(nodes, "quiet_rows", [row], [product], stored), path)


def _saved(graph: onnx.GraphProto, path: Path) -> Path:
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def loudness(path: Path) -> Path:
    """512 samples of sound behind 64 of before: 1 where the loudest of them is above a twentieth, else 0."""
    sound = helper.make_tensor_value_info("input", TensorProto.FLOAT, [1, 576])
    answer = helper.make_tensor_value_info("speech", TensorProto.FLOAT, [1, 1])
    nodes = [
        helper.make_node("Abs", ["input"], ["height"], name="height"),
        helper.make_node("ReduceMax", ["height"], ["loudest"], name="loudest", axes=[1]),
        helper.make_node("Sub", ["loudest", "limit"], ["above"], name="above"),
        helper.make_node("Mul", ["above", "slope"], ["steep"], name="steep"),
        helper.make_node("Sigmoid", ["steep"], ["speech"], name="speech"),
    ]
    values = {"limit": 0.05, "slope": 200.0}
    constants = [numpy_helper.from_array(np.array([value], np.float32), name) for name, value in values.items()]
    graph = helper.make_graph(nodes, "loudness", [sound], [answer], constants)
    return _saved(graph, path)
