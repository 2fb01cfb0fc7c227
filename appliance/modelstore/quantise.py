"""Writes a normalised fp32 network in another precision: the recipes, one function each. Whether the result is any good is the caller's question.

Recipes and traps: static QDQ with uint8 activations and per-channel int8 weights for convolution nets, on Conv, MatMul and Gemm only
(other operators lose accuracy and win nothing); dynamic int8 on MatMul for transformers; fp16 with fp32 inputs and outputs.
"""

import logging
import math
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, TensorProto, numpy_helper
from onnxconverter_common import float16
from onnxruntime.quantization import QuantType, quantize_dynamic
from onnxruntime.quantization.calibrate import CalibrationDataReader, TensorsData, create_calibrator
from onnxruntime.quantization.qdq_quantizer import QDQQuantizer
from onnxruntime.quantization.quant_utils import load_model_with_shape_infer

from appliance.domain.errors import BadModel
from appliance.modelstore import normalise

STATIC_OPS = ("Conv", "MatMul", "Gemm")
FP16_ALWAYS_FP32 = tuple(float16.DEFAULT_OP_BLOCK_LIST)
"""Operators that have no fp16 kernel or need the range: Resize, NonMaxSuppression, TopK, Range, CumSum ..."""
FP16_SENSITIVE = (
    "Sigmoid",
    "Softmax",
    "LogSoftmax",
    "Exp",
    "Pow",
    "ReduceMean",
    "ReduceSum",
    "LayerNormalization",
    "InstanceNormalization",
)
"""What is computed in fp32 when plain fp16 strays: sums over many values, exponentials, squares."""
OPSET_PER_CHANNEL = 13
logging.getLogger().addFilter(lambda record: "pre-processing before quantization" not in record.getMessage())


def half(source: Path, target: Path, keep_fp32: Sequence[str]) -> None:
    """fp16 weights and arithmetic, fp32 inputs and outputs; operators of `keep_fp32` stay as they are.

    Raises: whatever the converter raises; it has no error type.
    """
    model = onnx.load(source)
    made = float16.convert_float_to_float16(
        model, keep_io_types=True, op_block_list=list(keep_fp32), disable_shape_infer=False
    )
    _save(made, model, target)


class Ranges:
    """Smallest and largest value of each tensor around Conv, MatMul and Gemm, over the calibration inputs."""

    def __init__(self, source: Path, feeds: Sequence[Mapping[str, np.ndarray]]) -> None:
        """Runs the network once for each of `feeds` (inputs by name)."""
        with tempfile.TemporaryDirectory() as scratch:
            augmented = str(Path(scratch) / "augmented.onnx")
            calibrator = create_calibrator(source, STATIC_OPS, augmented_model_path=augmented)
            calibrator.collect_data(_Reader(feeds))
            self.data: TensorsData = calibrator.compute_data()
        self.endless = frozenset(
            name
            for name, tensor in self.data.items()
            if not np.isfinite(np.concatenate([np.ravel(end) for end in tensor.range_value])).all()
        )
        """Tensors with an infinite or undefined end, for example after padding with minus infinity."""


class _Reader(CalibrationDataReader):  # type: ignore[misc]  # ONNX Runtime has no types
    def __init__(self, feeds: Sequence[Mapping[str, np.ndarray]]) -> None:
        self.feeds: Iterator[Mapping[str, np.ndarray]] = iter(feeds)

    def get_next(self) -> Mapping[str, np.ndarray] | None:
        return next(self.feeds, None)


def static_int8(source: Path, target: Path, ranges: Ranges, exclude: Sequence[str]) -> None:
    """QDQ with uint8 activations and per-channel int8 weights; nodes named in `exclude` and nodes without finite ranges stay fp32."""
    model = load_model_with_shape_infer(source)
    skipped = [*exclude, *(node.name for node in model.graph.node if ranges.endless & {*node.input, *node.output})]
    options: dict[str, Any] = {"QDQKeepRemovableActivations": False}
    quantizer = QDQQuantizer(
        model, True, False, QuantType.QInt8, QuantType.QUInt8, ranges.data, [], skipped, list(STATIC_OPS), options
    )
    quantizer.quantize_model()
    _save(quantizer.model.model, onnx.load(source, load_external_data=False), target)


def dynamic_int8(source: Path, target: Path) -> None:
    """Weights of MatMul and Gemm as per-channel int8; activations are quantised as they come."""
    quantize_dynamic(
        source, target, op_types_to_quantize=["MatMul", "Gemm"], per_channel=True, weight_type=QuantType.QInt8
    )
    _save(onnx.load(target), onnx.load(source, load_external_data=False), target)


def widened(source: Path, target: Path) -> None:
    """Weight-only int8 as plain fp32 weights: every DequantizeLinear of constants is computed and dropped."""
    model = onnx.load(source)
    stored = {tensor.name: tensor for tensor in model.graph.initializer}
    kept = []
    for node in model.graph.node:
        if node.op_type == "DequantizeLinear" and all(name in stored for name in node.input if name):
            model.graph.initializer.append(_dequantised(node, stored))
        else:
            kept.append(node)
    del model.graph.node[:]
    model.graph.node.extend(kept)
    normalise.tidy(model)
    normalise.write(normalise.with_shapes(model), target.parent, target.stem)


def _dequantised(node: onnx.NodeProto, stored: Mapping[str, TensorProto]) -> TensorProto:
    operands = [numpy_helper.to_array(stored[name]) if name else None for name in node.input]
    values, scale = operands[0], operands[1]
    zero = operands[2] if len(operands) > 2 else None
    assert values is not None and scale is not None
    if any(attribute.name == "block_size" and attribute.i for attribute in node.attribute):
        raise BadModel(reason="weights quantised in blocks are not widened")
    axis = next((attribute.i for attribute in node.attribute if attribute.name == "axis"), 1)
    shape = [1] * values.ndim
    if scale.ndim == 1 and scale.size > 1:
        shape[axis] = scale.size
    offset = 0 if zero is None else zero.astype(np.float32).reshape(shape if scale.size > 1 else ())
    widened_values = (values.astype(np.float32) - offset) * scale.astype(np.float32).reshape(
        shape if scale.size > 1 else ()
    )
    return numpy_helper.from_array(widened_values.astype(np.float32), node.output[0])


def depthwise(source: Path) -> list[str]:
    """Names of Conv nodes with one input channel for each group: int8 hurts them most and helps them least."""
    graph = onnx.load(source, load_external_data=False).graph
    shapes = {tensor.name: list(tensor.dims) for tensor in graph.initializer}
    return [node.name for node in graph.node if node.op_type == "Conv" and _is_depthwise(node, shapes)]


def ends(source: Path) -> list[str]:
    """Names of the weighted nodes that no other one precedes, or that no other one follows: usually the most sensitive layers."""
    graph = onnx.load(source, load_external_data=False).graph
    before: dict[str, bool] = {}
    for node in graph.node:  # nodes are sorted: producers come first
        is_weighted = node.op_type in STATIC_OPS
        has_weighted = any(before.get(name, False) for name in node.input)
        before |= dict.fromkeys(node.output, has_weighted or is_weighted)
    first = [n.name for n in graph.node if n.op_type in STATIC_OPS and not any(before.get(name) for name in n.input)]
    after: dict[str, bool] = {}
    last = []
    for node in reversed(graph.node):
        has_weighted = any(after.get(name, False) for name in node.output)
        if node.op_type in STATIC_OPS and not has_weighted:
            last.append(node.name)
        for name in node.input:
            after[name] = after.get(name, False) or has_weighted or node.op_type in STATIC_OPS
    return [*first, *last]


def _is_depthwise(node: onnx.NodeProto, shapes: Mapping[str, Sequence[int]]) -> bool:
    group = next((attribute.i for attribute in node.attribute if attribute.name == "group"), 1)
    return bool(group > 1 and shapes.get(node.input[1], [0, 0])[1] == 1)


def quantisable(source: Path, ops: Sequence[str]) -> bool:
    """Whether some operator of `ops` at the top level has stored weights; bodies of If and Loop are left alone by the quantisers."""
    graph = onnx.load(source, load_external_data=False).graph
    stored = {
        tensor.name: math.prod(tensor.dims) for tensor in graph.initializer if tensor.data_type == TensorProto.FLOAT
    }
    return any(node.op_type in ops and any(stored.get(name, 0) > 1 for name in node.input[1:2]) for node in graph.node)


def _save(made: ModelProto, original: ModelProto, target: Path) -> None:
    """Write with the original's metadata and interface; converters keep these differently."""
    del made.metadata_props[:]
    made.metadata_props.extend(original.metadata_props)
    for field in ("input", "output"):
        del getattr(made.graph, field)[:]
        getattr(made.graph, field).extend(getattr(original.graph, field))
    normalise.tidy(made)
    normalise.write(made, target.parent, target.stem)
