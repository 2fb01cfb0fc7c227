"""Networks in half precision throughout, by ONNX Runtime: they compute what they did, as far as that can be said so."""

from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

from appliance.runtime.processors.dla.half import LARGEST, make_half
from tests.modelstore import networks


def made(nodes: list[onnx.NodeProto], **constants: np.ndarray) -> onnx.ModelProto:
    model = networks.model(nodes, {"x": [1, 2, 4, 4]}, {"y": []}, constants)
    model.graph.output[0].type.tensor_type.ClearField("shape")
    return model


def ran(model: onnx.ModelProto, x: np.ndarray) -> np.ndarray:
    (found,) = ort.InferenceSession(model.SerializeToString()).run(["y"], {"x": x})
    return np.asarray(found)


def test_half_precision_network_keeps_floats_where_operators_need_them(tmp_path: Path) -> None:
    """The scales of Resize stay floats; constants in nodes, casts and weights do not; values end where half precision
    does.
    """
    mask = numpy_helper.from_array(np.array([-np.inf, 0.5], np.float32).reshape(1, 2, 1, 1))
    nodes = [
        helper.make_node("Constant", [], ["mask"], value=mask),
        helper.make_node("Max", ["x", "mask"], ["a"]),
        helper.make_node("Cast", ["a"], ["b"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["b", "w"], ["c"]),
        helper.make_node("Resize", ["c", "", "scales"], ["y"]),
    ]
    weights = np.array([0.5, 2.0], np.float32).reshape(1, 2, 1, 1)
    model = made(nodes, w=weights, scales=np.array([1, 1, 2, 2], np.float32))
    x = np.linspace(-2, 2, 32, dtype=np.float32).reshape(1, 2, 4, 4)
    wanted = ran(model, x)
    assert make_half(model) == ["x", "y"]
    found = ran(model, x.astype(np.float16))
    assert found.dtype == np.float16
    np.testing.assert_allclose(found, wanted, atol=4e-3)
    constants = {one.name: one.data_type for one in model.graph.initializer}
    assert constants == {"w": TensorProto.FLOAT16, "scales": TensorProto.FLOAT}
    assert numpy_helper.to_array(model.graph.node[0].attribute[0].t).min() == -LARGEST


def test_half_precision_of_a_network_with_control_flow_is_refused() -> None:
    body = helper.make_graph([], "body", [], [])
    model = made([helper.make_node("If", ["x"], ["y"], then_branch=body, else_branch=body)])
    with pytest.raises(ValueError, match="control flow"):
        make_half(model)
