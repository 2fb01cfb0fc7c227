"""A model whose run takes as long as it is told: products of matrices one after another."""

import time
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

SIDE = 384


def products(path: Path, run_ms: float) -> Path:
    """`x` FP32[1] to `y` FP32[1], in about `run_ms` of one core of this machine; 1.2 MB."""
    return _write(path, max(1, round(run_ms / _one_ms(path))))


def _write(path: Path, count: int) -> Path:
    matrix = np.eye(SIDE, dtype=np.float32)
    constants = [numpy_helper.from_array(matrix, name) for name in ("c", "w")]
    constants.append(numpy_helper.from_array(np.array([1], np.int64), "shape"))
    nodes = [helper.make_node("Add", ["c", "x"], ["h0"])]
    nodes += [helper.make_node("MatMul", [f"h{i}", "w"], [f"h{i + 1}"]) for i in range(count)]
    nodes.append(helper.make_node("ReduceMean", [f"h{count}"], ["mean"], axes=[0, 1]))
    nodes.append(helper.make_node("Reshape", ["mean", "shape"], ["y"]))
    slots = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in ("x", "y")]
    graph = helper.make_graph(nodes, "products", slots[:1], slots[1:], constants)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def _one_ms(path: Path) -> float:
    """What one product takes in the runtime that serves, on one thread."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(_write(path, 20)), options, providers=["CPUExecutionProvider"])
    times = []
    for _ in range(10):
        start = time.perf_counter()
        session.run(None, {"x": np.ones(1, np.float32)})
        times.append((time.perf_counter() - start) * 1e3 / 20)
    return min(times)
