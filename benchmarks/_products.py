"""A model whose run takes as long as it is told: products of matrices one after another."""

from pathlib import Path

import numpy as np

from appliance.demo.zoo import graphs
from benchmarks import _box as boxes
from benchmarks import _results as results

SIDE = 384


def products(path: Path, run_ms: float) -> Path:
    """`x` FP32[1] to `y` FP32[1], in about `run_ms` of one core of this machine; 1.2 MB."""
    return _write(path, max(1, round(run_ms / _one_ms(path))))


def _write(path: Path, count: int) -> Path:
    net = graphs.Graph()
    net.constant("w", np.eye(SIDE, dtype=np.float32))
    value = net.add("Add", [net.constant("c", np.eye(SIDE, dtype=np.float32)), "x"], "h0")
    for at in range(count):
        value = net.add("MatMul", [value, "w"], f"h{at + 1}")
    value = net.add("ReduceMean", [value], "mean", axes=[0, 1])
    net.add("Reshape", [value, net.constant("shape", np.array([1], np.int64))], "y")
    return graphs.save(net.model("products", {"x": (1,)}, {"y": (1,)}), path)


def _one_ms(path: Path) -> float:
    """What one product takes in the runtime that serves, on one thread."""
    session, inputs = boxes.plain_session(_write(path, 20)), {"x": np.ones(1, np.float32)}
    return min(results.took_ms(lambda: session.run(None, inputs)) for _ in range(10)) / 20
