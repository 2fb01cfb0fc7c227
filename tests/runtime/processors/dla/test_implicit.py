"""Quantized networks as TensorRT 10 wants them for a DLA: ranges beside a network that quantizes nothing."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

from appliance.runtime.processors.dla.implicit import STEPS, make_implicit
from appliance.runtime.processors.measuring.same import difference
from appliance.runtime.processors.providers.symmetric import make_symmetric
from tests.modelstore import networks
from tests.runtime.processors.quantized import IMAGES, original, quantized


def computed(model: onnx.ModelProto, feeds: dict[str, Any]) -> list[Any]:
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    found: list[Any] = session.run(None, feeds)
    return found


def pairs(between: str, scale: Any = 0.5) -> onnx.ModelProto:
    """A network that quantizes its input, hands the bytes to `between` and gives what comes of it."""
    nodes = [helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"])]
    output = "q"
    if between != "nothing":
        nodes.append(helper.make_node(between, ["q", *(["s", "z"] if between == "DequantizeLinear" else [])], ["y"]))
        output = "y"
    weights = {"s": np.asarray(scale, np.float32), "z": np.zeros(np.shape(scale), np.int8)}
    kind = TensorProto.FLOAT if between == "DequantizeLinear" else TensorProto.INT8
    return networks.model(nodes, {"x": [4]}, {output: [4]}, weights, types={output: kind})


@pytest.fixture
def before(tmp_path: Path) -> onnx.ModelProto:
    """A symmetric network of an import."""
    model = onnx.load(str(quantized(original(tmp_path), tmp_path)))
    make_symmetric(model)
    return model


def implicit(before: onnx.ModelProto) -> tuple[onnx.ModelProto, dict[str, float]]:
    """What comes of it, and its ranges."""
    model = onnx.ModelProto()
    model.CopyFrom(before)
    return model, make_implicit(model)


def constants(model: onnx.ModelProto) -> dict[str, np.ndarray]:
    return {one.name: numpy_helper.to_array(one) for one in model.graph.initializer}


def test_implicit_network_of_an_import_computes_nearly_the_same(before: onnx.ModelProto) -> None:
    """No operator quantizes any more; only the rounding between operators differs."""
    model, reaches = implicit(before)
    onnx.checker.check_model(model, full_check=True)
    assert not {"QuantizeLinear", "DequantizeLinear"} & {node.op_type for node in model.graph.node}
    assert reaches
    for image in IMAGES[:3]:
        (wanted,), (found,) = computed(before, {"image": image}), computed(model, {"image": image})
        assert difference(wanted, found) < 0.03


def test_implicit_network_has_the_ranges_of_every_convolution(before: onnx.ModelProto) -> None:
    """Of what a convolution takes and of what it gives, also where a ReLU, a maximum or a meeting of branches stands
    between; as large as the steps of the quantized network were.
    """
    model, reaches = implicit(before)
    convolutions = [node for node in model.graph.node if node.op_type == "Conv"]
    assert len(convolutions) == 5
    for node in convolutions:
        assert {node.input[0], node.output[0]} <= reaches.keys(), node.name
    scales = constants(before)
    stated = {n.input[0]: scales[n.input[1]].item() for n in before.graph.node if n.op_type == "QuantizeLinear"}
    assert stated
    stated["e.y"] = stated.pop("e.y_QuantizeLinear_Input")  # the output has its name back
    for name, scale in stated.items():
        assert reaches[name] == pytest.approx(STEPS * scale)


def test_implicit_network_weights_lie_on_the_quantized_steps(before: onnx.ModelProto) -> None:
    """Quantized again, each channel by its largest weight, they are the bytes that they were."""
    known = constants(before)
    whole = {
        n.output[0]: known[n.input[0]] for n in before.graph.node if n.input[0] in known and known[n.input[0]].ndim
    }
    model, _ = implicit(before)
    floats = constants(model)
    weights = [node.input[1] for node in model.graph.node if node.op_type == "Conv"]
    assert len(weights) == 5
    for name in weights:
        largest, bytes_largest = (np.abs(one[name]).max(axis=(1, 2, 3), keepdims=True) for one in (floats, whole))
        np.testing.assert_array_equal(np.rint(floats[name] * bytes_largest / largest), whole[name])


def test_implicit_network_keeps_names_of_input_and_output(tmp_path: Path) -> None:
    """Where the input is handed on."""
    model = pairs("DequantizeLinear")
    assert make_implicit(model) == {"x": pytest.approx(0.5 * STEPS), "y": pytest.approx(0.5 * STEPS)}
    x = np.arange(4, dtype=np.float32)
    np.testing.assert_array_equal(computed(model, {"x": x})[0], x)


def test_implicit_network_keeps_the_names_of_two_outputs_of_a_tensor() -> None:
    """The tensor has one of them."""
    model = pairs("DequantizeLinear")
    graph = model.graph
    graph.node.insert(0, helper.make_node("Relu", ["x"], ["r"]))
    graph.node[1].input[0] = "r"
    graph.node.append(helper.make_node("DequantizeLinear", ["q", "s", "z"], ["again"]))
    graph.output.append(helper.make_tensor_value_info("again", TensorProto.FLOAT, [4]))
    reaches = make_implicit(model)
    assert reaches.keys() == {"x", "y", "again"}
    x = np.arange(-2, 2, dtype=np.float32)
    for found in computed(model, {"x": x}):
        np.testing.assert_array_equal(found, np.maximum(x, 0))


@pytest.mark.parametrize("between", ["nothing", "Identity"])
def test_implicit_network_with_bytes_for_another_operator_is_refused(between: str) -> None:
    """The bytes cannot be taken out then."""
    with pytest.raises(ValueError, match="quantized"):
        make_implicit(pairs(between))


def test_implicit_network_with_several_scales_of_a_tensor_is_refused() -> None:
    """Of a tensor between operators a DLA wants one."""
    with pytest.raises(ValueError, match="one scale"):
        make_implicit(pairs("DequantizeLinear", scale=[0.5, 1.0, 1.0, 1.0]))
