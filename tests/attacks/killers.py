"""Models that are honest at import and hurt whoever runs them on the right input, and a tokenizer that does."""

import json
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper

INT32_MIN = -(2**31)


def integer_division(path: Path) -> Path:
    """`Div` of INT_MIN by -1 traps (SIGFPE)."""
    x, y, z = (helper.make_tensor_value_info(name, TensorProto.INT32, [1]) for name in "XYZ")
    return _written(path, [helper.make_node("Div", ["X", "Y"], ["Z"])], [x, y], [z])


def lstm(path: Path) -> Path:
    """An empty batch ends the process (`terminate called`)."""
    rng = np.random.default_rng(0)
    weights = [
        helper.make_tensor(name, TensorProto.FLOAT, shape, rng.random(int(np.prod(shape)), np.float32))
        for name, shape in (("W", (1, 16, 3)), ("R", (1, 16, 4)))
    ]
    x = helper.make_tensor_value_info("X", TensorProto.FLOAT, ["steps", "batch", 3])
    y = helper.make_tensor_value_info("Y", TensorProto.FLOAT, ["steps", 1, "batch", 4])
    node = helper.make_node("LSTM", ["X", "W", "R"], ["Y"], hidden_size=4)
    return _written(path, [node], [x], [y], weights)


def outer_product(path: Path) -> Path:
    """180 kB of input become gigabytes."""
    x = helper.make_tensor_value_info("X", TensorProto.FLOAT, ["n", 1])
    y = helper.make_tensor_value_info("Y", TensorProto.FLOAT, [])
    nodes = [
        helper.make_node("Transpose", ["X"], ["T"]),
        helper.make_node("Mul", ["X", "T"], ["P"]),
        helper.make_node("ReduceSum", ["P"], ["Y"], keepdims=0),
    ]
    return _written(path, nodes, [x], [y])


def loop(path: Path) -> Path:
    """Runs as often as its input says."""
    one = helper.make_tensor("one", TensorProto.FLOAT, [], [1.0])
    body = helper.make_graph(
        [helper.make_node("Add", ["a_in", "one"], ["a_out"]), helper.make_node("Identity", ["c_in"], ["c_out"])],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("c_in", TensorProto.BOOL, []),
            helper.make_tensor_value_info("a_in", TensorProto.FLOAT, []),
        ],
        [
            helper.make_tensor_value_info("c_out", TensorProto.BOOL, []),
            helper.make_tensor_value_info("a_out", TensorProto.FLOAT, []),
        ],
    )
    count = helper.make_tensor_value_info("N", TensorProto.INT64, [1])
    result = helper.make_tensor_value_info("Y", TensorProto.FLOAT, [])
    always = helper.make_tensor("always", TensorProto.BOOL, [], [True])
    start = helper.make_tensor("start", TensorProto.FLOAT, [], [0.0])
    shape = helper.make_tensor("shape", TensorProto.INT64, [0], [])
    nodes = [
        helper.make_node("Reshape", ["N", "shape"], ["n"]),
        helper.make_node("Loop", ["n", "always", "start"], ["Y"], body=body),
    ]
    return _written(path, nodes, [count], [result], [one, always, start, shape])


def long_node(path: Path) -> Path:
    """Many seconds in a single node, where the runtime's flag is not looked at: a product of integer matrices of the
    shape that is asked for.
    """
    shape = helper.make_tensor_value_info("S", TensorProto.INT64, [2])
    result = helper.make_tensor_value_info("Y", TensorProto.INT64, [])
    one = helper.make_tensor("one", TensorProto.INT64, [1], [1])
    nodes = [
        helper.make_node("ConstantOfShape", ["S"], ["A"], value=one),
        helper.make_node("MatMul", ["A", "A"], ["P"]),
        helper.make_node("ReduceSum", ["P"], ["Y"], keepdims=0),
    ]
    return _written(path, nodes, [shape], [result])


def words(path: Path) -> Path:
    """An honest network over tokens, for whatever tokenizer: each token's number is its vector."""
    ids = helper.make_tensor_value_info("input_ids", TensorProto.INT64, ["batch", "length"])
    y = helper.make_tensor_value_info("Y", TensorProto.FLOAT, ["batch", "length", 1])
    axes = helper.make_tensor("axes", TensorProto.INT64, [1], [2])
    nodes = [
        helper.make_node("Cast", ["input_ids"], ["numbers"], to=TensorProto.FLOAT),
        helper.make_node("Unsqueeze", ["numbers", "axes"], ["Y"]),
    ]
    return _written(path, nodes, [ids], [y], [axes])


def tokenizer(path: Path) -> Path:
    """Replace rules that grow: two letters become 10^8 each rule, in theory."""
    rules = [{"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 10} for _ in range(8)]
    described: dict[str, object] = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": {"type": "Sequence", "normalizers": rules},
        "pre_tokenizer": None,
        "post_processor": None,
        "decoder": None,
        "model": {"type": "WordLevel", "vocab": {"[UNK]": 0, "hello": 1}, "unk_token": "[UNK]"},
    }
    path.write_text(json.dumps(described))
    return path


def _written(
    path: Path,
    nodes: list[onnx.NodeProto],
    inputs: list[onnx.ValueInfoProto],
    outputs: list[onnx.ValueInfoProto],
    initializers: list[onnx.TensorProto] | None = None,
) -> Path:
    graph = helper.make_graph(nodes, path.stem, inputs, outputs, initializers or [])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path
