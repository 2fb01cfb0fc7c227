"""A model whose run takes as long as it is told: products of matrices one after another."""

import time
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

SIDE = 384


def products(path: Path, run_ms: float) -> Path:
    """`x` FP32[SIDE, SIDE] to `y` of the same shape, in about `run_ms` of one core of this machine; 600 kB."""
    count = max(1, round(run_ms / _one_ms()))
    weight = np.eye(SIDE, dtype=np.float32)
    names = ["x", *(f"h{i}" for i in range(count - 1)), "y"]
    nodes = [helper.make_node("MatMul", [names[i], "w"], [names[i + 1]]) for i in range(count)]
    slots = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [SIDE, SIDE]) for name in ("x", "y")]
    graph = helper.make_graph(nodes, "products", slots[:1], slots[1:], [numpy_helper.from_array(weight, "w")])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def _one_ms() -> float:
    """What a product takes in the runtime that serves, best of several."""
    import onnxruntime

    nodes = [helper.make_node("MatMul", ["x", "x"], ["y"])]
    slots = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [SIDE, SIDE]) for name in ("x", "y")]
    graph = helper.make_graph(nodes, "one", slots[:1], slots[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    value = {"x": np.eye(SIDE, dtype=np.float32)}
    times = []
    for _ in range(30):
        start = time.perf_counter()
        session.run(None, value)
        times.append((time.perf_counter() - start) * 1e3)
    return min(times[5:])
