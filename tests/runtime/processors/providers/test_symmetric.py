"""Quantized networks as TensorRT wants them, computed by ONNX Runtime before and after."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, numpy_helper

from appliance.demo.zoo import toys
from appliance.runtime.processors.measuring.same import difference
from appliance.runtime.processors.providers.symmetric import make_symmetric

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


def computed(model: onnx.ModelProto, image: Any) -> Any:
    """As the graph says: without instructions for it, the CPU's quick kernels saturate sums of signed bytes."""
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, {"image": image})[0]


def test_the_same_within_a_step(quantized: onnx.ModelProto) -> None:
    """All zero points are signed zeros, no bias is quantized, and what it computes differs by rounding only."""
    rewritten = onnx.ModelProto()
    rewritten.CopyFrom(quantized)
    make_symmetric(rewritten)
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
        assert difference(computed(quantized, image), computed(rewritten, image)) < 0.05


def test_symmetric_already(quantized: onnx.ModelProto) -> None:
    """A second time changes nothing."""
    once = onnx.ModelProto()
    once.CopyFrom(quantized)
    make_symmetric(once)
    twice = onnx.ModelProto()
    twice.CopyFrom(once)
    make_symmetric(twice)
    assert twice.SerializeToString(deterministic=True) == once.SerializeToString(deterministic=True)


def test_not_quantized(tmp_path: Path) -> None:
    model = onnx.load(str(toys.tiny_add(tmp_path / "add.onnx")))
    before = model.SerializeToString(deterministic=True)
    make_symmetric(model)
    assert model.SerializeToString(deterministic=True) == before
