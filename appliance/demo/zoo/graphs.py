"""ONNX graphs: grown node by node, written, tidied with ONNX Runtime.

Every file written here has IR 10 and an opset that every supported runtime loads.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

IR_VERSION = 10
OPSET = 17

Array = npt.NDArray[Any]
Shape = Sequence[str | int | None]


class Graph:
    """A graph that grows; each node has one output, which has its name."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, Array] = {}

    def add(self, operation: str, inputs: Iterable[str], name: str, **attributes: Any) -> str:
        """Append a node; returns its name."""
        self.nodes.append(helper.make_node(operation, list(inputs), [name], name, **attributes))
        return name

    def constant(self, name: str, values: Any) -> str:
        """Keep values under a name, and return it."""
        self.constants[name] = np.asarray(values)
        return name

    def model(self, name: str, inputs: Mapping[str, Shape], outputs: Mapping[str, Shape]) -> onnx.ModelProto:
        """The model between FP32 inputs and outputs."""
        first, last = (
            [helper.make_tensor_value_info(value, TensorProto.FLOAT, list(shape)) for value, shape in side.items()]
            for side in (inputs, outputs)
        )
        weights = [numpy_helper.from_array(values, key) for key, values in self.constants.items()]
        return model_of(helper.make_graph(self.nodes, name, first, last, weights))


def model_of(graph: onnx.GraphProto, opset: int = OPSET) -> onnx.ModelProto:
    """A model around `graph`, not checked yet."""
    opsets = [helper.make_opsetid("", opset)]
    return helper.make_model(graph, ir_version=IR_VERSION, opset_imports=opsets, producer_name="appliance.demo.zoo")


def save(model: onnx.ModelProto, path: Path) -> Path:
    """Check `model` and write it as one file at `path`, whose folder is made."""
    onnx.checker.check_model(model, full_check=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(model, path)
    return path


def tidied(model: onnx.ModelProto) -> onnx.ModelProto:
    """The same function after ONNX Runtime's basic rewriting: constants, biases, batch norms and transposes folded.

    Nothing in it belongs to one machine (that is what the levels above `basic` would add).
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    with TemporaryDirectory() as folder:
        source, target = Path(folder) / "in.onnx", Path(folder) / "out.onnx"
        onnx.save(model, source)
        options.optimized_model_filepath = str(target)
        onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
        return model_of(onnx.load(target).graph)
