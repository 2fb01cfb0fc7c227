"""Rows of several callers share a run only where that cannot be told from their answers."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import NodeProto, TensorProto, helper

from appliance.runtime.processors.measuring.independence import Arrays, rows_are_independent
from tests.modelstore import networks

RNG = np.random.default_rng(0)
RANDOM: dict[str, np.ndarray] = {
    "w": RNG.standard_normal((8, 8), np.float32),
    "q": RNG.integers(-100, 100, (8, 8)).astype(np.int8),
    "scales": np.linspace(1, 2, 4, dtype=np.float32).reshape(4, 1),
}


def node(operator: str, inputs: Sequence[str], output: str, **attributes: Any) -> NodeProto:
    return helper.make_node(operator, inputs, [output], **attributes)


def runner(nodes: Sequence[NodeProto], folder: Path) -> Callable[[Arrays], Arrays]:
    """Runs x → y by ONNX Runtime."""
    used = {name for each in nodes for name in each.input}
    weights = {name: array for name, array in RANDOM.items() if name in used}
    file = networks.write(networks.model(nodes, {"x": ["N", 8]}, {"y": ["N", "M"]}, weights), folder)
    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    return lambda inputs: {"y": session.run(["y"], dict(inputs))[0]}


def rows(count: int) -> dict[str, np.ndarray]:
    return {"x": RNG.standard_normal((count, 8), np.float32)}


INDEPENDENT = {
    "a matrix": [node("MatMul", ["x", "w"], "y")],
    "softmax within a row": [node("MatMul", ["x", "w"], "h"), node("Softmax", ["h"], "y", axis=1)],
}
INFLUENCED = {
    "softmax over the rows": [node("Softmax", ["x"], "y", axis=0)],
    "the mean of the batch": [node("ReduceMean", ["x"], "m", axes=[0]), node("Sub", ["x", "m"], "y")],
    "quantized with one scale for all": [
        helper.make_node("DynamicQuantizeLinear", ["x"], ["xq", "xs", "xz"]),
        node("MatMulInteger", ["xq", "q", "xz"], "i"),
        node("Cast", ["i"], "f", to=TensorProto.FLOAT),
        node("Mul", ["f", "xs"], "y"),
    ],
    "a sum over the batch": [node("ReduceSum", ["x"], "y", keepdims=1)],
    "the place in the batch": [node("Mul", ["x", "scales"], "y")],  # alone, a row would even be answered with four
}


@pytest.mark.parametrize("nodes", INDEPENDENT.values(), ids=INDEPENDENT)
def test_rows_that_do_not_meet_are_independent(nodes: Sequence[NodeProto], tmp_path: Path) -> None:
    assert rows_are_independent(runner(nodes, tmp_path), rows(4), 4)


@pytest.mark.parametrize("nodes", INFLUENCED.values(), ids=INFLUENCED)
def test_rows_that_influence_one_another_are_not_independent(nodes: Sequence[NodeProto], tmp_path: Path) -> None:
    assert not rows_are_independent(runner(nodes, tmp_path), rows(4), 4)


def test_single_row_or_an_input_for_all_proves_no_independence(tmp_path: Path) -> None:
    run = runner(INDEPENDENT["a matrix"], tmp_path)
    assert not rows_are_independent(run, rows(1), 1)
    assert not rows_are_independent(run, {**rows(4), "fmin": np.float32(1)}, 4)
