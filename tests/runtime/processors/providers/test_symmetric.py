"""Quantized networks as TensorRT wants them, computed by ONNX Runtime before and after."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

from appliance.runtime.processors.measuring.same import difference
from appliance.runtime.processors.providers.symmetric import make_symmetric
from tests import toys
from tests.modelstore import networks
from tests.runtime.processors.quantized import IMAGES as OWN_IMAGES
from tests.runtime.processors.quantized import original
from tests.runtime.processors.quantized import quantized as own_quantized

RANDOM = np.random.default_rng(0)
IMAGES = [RANDOM.standard_normal((1, 3, 64, 64), np.float32) for _ in range(8)]


class Reader:
    """Inputs to calibrate with."""

    def __init__(self) -> None:
        self._images: Iterator[Any] = iter(IMAGES)

    def get_next(self) -> Any:
        image = next(self._images, None)
        return None if image is None else {"image": image}


@pytest.fixture(scope="module", params=[True, False], ids=["per channel", "per tensor"])
def quantized(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> onnx.ModelProto:
    """Static, unsigned activations and signed weights: as the import makes it for CPUs."""
    from onnxruntime.quantization import QuantFormat, QuantType, quantize_static

    folder = tmp_path_factory.mktemp("net")
    toys.conv_net(folder / "net.onnx", 0.2)
    quantize_static(
        str(folder / "net.onnx"),
        str(folder / "int8.onnx"),
        Reader(),
        quant_format=QuantFormat.QDQ,
        per_channel=request.param,
        activation_type=QuantType.QUInt8,
        weight_type=QuantType.QInt8 if request.param else QuantType.QUInt8,
    )
    return onnx.load(str(folder / "int8.onnx"))


def computed(model: onnx.ModelProto, **inputs: Any) -> Any:
    """As the graph says: without instructions for it, the CPU's quick kernels saturate sums of signed bytes."""
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, inputs)[0]


def made_symmetric(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    make_symmetric(copy)
    return copy


def test_symmetric_network_computes_the_same_within_a_step(quantized: onnx.ModelProto) -> None:
    """All zero points are signed zeros, no bias is quantized, and answers differ by rounding only."""
    rewritten = made_symmetric(quantized)
    onnx.checker.check_model(rewritten, full_check=True)
    constants = {one.name: one for one in rewritten.graph.initializer}
    pairs = [node for node in rewritten.graph.node if node.op_type in ("QuantizeLinear", "DequantizeLinear")]
    assert pairs
    for node in pairs:
        zero_point = constants[node.input[2]]
        assert zero_point.data_type == TensorProto.INT8
        assert not numpy_helper.to_array(zero_point).any()
        assert node.input[0] not in constants or constants[node.input[0]].data_type == TensorProto.INT8
    for image in IMAGES[:3]:
        wanted, found = (computed(model, image=image) for model in (quantized, rewritten))
        assert difference(wanted, found) < 0.05


@pytest.mark.parametrize("zero_point", [-128, -3])
def test_symmetric_network_keeps_the_range_of_signed_bytes(zero_point: int) -> None:
    """With a zero point, as other tools quantize; a tensor without negative values keeps its ReLU."""
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"]),
    ]
    weights: dict[str, np.ndarray] = {"s": np.array(0.01, np.float32), "z": np.array(zero_point, np.int8)}
    before = networks.model(nodes, {"x": [5]}, {"y": [5]}, weights)
    after = made_symmetric(before)
    (zero,) = [one for one in after.graph.initializer if one.data_type == TensorProto.INT8]
    assert not numpy_helper.to_array(zero).any()
    values = np.array([-1.0, -0.2, 0.0, 0.3, 1.2], np.float32)
    np.testing.assert_allclose(computed(after, x=values), computed(before, x=values), atol=0.02)


def test_symmetric_network_is_not_changed_again(quantized: onnx.ModelProto, tmp_path: Path) -> None:
    """Nor one that is not quantized."""
    for model in (made_symmetric(quantized), onnx.load(str(toys.tiny_add(tmp_path / "add.onnx")))):
        again = made_symmetric(model)
        assert again.SerializeToString(deterministic=True) == model.SerializeToString(deterministic=True)


def test_network_quantized_by_an_import_is_made_symmetric(tmp_path: Path) -> None:
    """With the types of its tensors, which are others now; and with ReLUs only where there were some."""
    plain = original(tmp_path)
    model = onnx.load(str(own_quantized(plain, tmp_path)))
    assert any(one.type.tensor_type.elem_type == TensorProto.UINT8 for one in model.graph.value_info)
    make_symmetric(model)
    onnx.checker.check_model(onnx.shape_inference.infer_shapes(model, strict_mode=True), full_check=True)
    whole = onnx.load(str(plain))
    assert [sum(node.op_type == "Relu" for node in one.graph.node) for one in (whole, model)] == [2, 3]
    wanted, found = (computed(one, image=OWN_IMAGES[0]) for one in (whole, model))
    assert difference(wanted, found) < 0.05
