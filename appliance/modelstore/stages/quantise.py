"""Writes a normalised fp32 network in another precision: the recipes, one function each.

Whether the result is any good is the caller's question.

Recipes and traps: static QDQ with uint8 activations and per-channel int8 weights for convolution nets, on Conv, MatMul
and Gemm only (other operators lose accuracy and win nothing); dynamic int8 on MatMul for transformers; fp16 with fp32
inputs and outputs.
"""

import logging
import math
import tempfile
from collections.abc import Mapping, Sequence, Set
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, TensorProto, numpy_helper
from onnxconverter_common import float16
from onnxruntime.quantization import QuantType, quantize_dynamic
from onnxruntime.quantization.calibrate import CalibrationMethod, TensorsData
from onnxruntime.quantization.qdq_quantizer import QDQQuantizer
from onnxruntime.quantization.quant_utils import load_model_with_shape_infer

from appliance.domain.errors import BadModel
from appliance.modelstore.stages import normalise
from appliance.modelstore.stages.running import Runner

END_SHARE_MAX = 0.1
"""A first or last layer with more of the weights than this is quantised too: keeping it would keep the memory."""
SAMPLED_VALUES = 8192
"""Values kept of one tensor of one calibration input."""
RARE = 1e-4
"""Share of values on either side that a clipped range leaves out."""
RECTIFIERS = (["Relu"], ["Clip"])
STATIC_OPS = ("Conv", "MatMul", "Gemm")
BODIES = ("If", "Loop", "Scan")
"""Operators with subgraphs, which the converter gets wrong."""
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
TABLE_ELEMENTS_MIN = 65_536
"""Smaller tables (positions, shapes) are left alone."""
OPSET_PER_CHANNEL = 13
logging.getLogger().addFilter(lambda record: "pre-processing before quantization" not in record.getMessage())


def half(source: Path, target: Path, keep_fp32: Sequence[str]) -> None:
    """fp16 weights and arithmetic, fp32 inputs and outputs; operators of `keep_fp32` stay as they are.

    Raises: whatever the converter raises; it has no error type.
    """
    model = onnx.load(source)
    del model.graph.value_info[:]  # the converter infers its own and trips over names that it did not make
    made = float16.convert_float_to_float16(model, keep_io_types=True, op_block_list=[*keep_fp32, *BODIES])
    _save(made, onnx.load(source, load_external_data=False), target)


class Ranges:
    """How far the values of each tensor around Conv, MatMul and Gemm reach over the calibration inputs.

    One pass gives both the extremes and the range of all but the rarest values, from an even subsample: a single
    outlier would otherwise coarsen the steps of all others. Only one input's activations are in memory at a time.
    """

    def __init__(self, source: Path, feeds: Sequence[Mapping[str, np.ndarray]]) -> None:
        """Runs the network once for each of `feeds` (inputs by name)."""
        names, self.rectified, runner = _observed(source)
        extremes: dict[str, tuple[float, float]] = dict.fromkeys(names, (np.inf, -np.inf))
        drawn: dict[str, list[np.ndarray]] = {name: [] for name in names}
        for one in feeds:
            outputs = {**runner.run(one), **one}
            for name in names:
                values = np.ravel(outputs[name])
                low, high = extremes[name]
                extremes[name] = (min(low, float(values.min())), max(high, float(values.max())))
                drawn[name].append(values[:: -(-values.size // SAMPLED_VALUES)].copy())
        self.extremes = extremes
        self.usual = {name: _central(np.concatenate(parts)) for name, parts in drawn.items()}
        self.endless = frozenset(name for name, ends in extremes.items() if not np.isfinite(ends).all())
        """Tensors with an infinite or undefined end, for example after padding with minus infinity."""

    def data(self, is_clipped: bool) -> TensorsData:
        """In ONNX Runtime's form; `is_clipped` leaves out the rarest values."""
        ends = dict(self.usual if is_clipped else self.extremes)
        ends |= {name: ends[after] for name, after in self.rectified.items() if name not in self.endless}
        finite = {
            name: (np.float32(low), np.float32(high)) for name, (low, high) in ends.items() if name not in self.endless
        }
        return TensorsData(CalibrationMethod.MinMax, finite)


def _observed(source: Path) -> tuple[list[str], dict[str, str], Runner]:
    """Float tensors that need a range; those that only a Relu or Clip reads, with what it makes of them; a session that
    gives all values.

    A tensor before a Relu takes the range after it: quantising then is the Relu, and the steps are finer.
    """
    model = onnx.load(source)
    stored = {tensor.name for tensor in model.graph.initializer}
    readers: dict[str, list[onnx.NodeProto]] = {}
    for node in model.graph.node:
        for name in node.input:
            readers.setdefault(name, []).append(node)
    weighted = [node for node in model.graph.node if node.op_type in STATIC_OPS]
    given = {value.name for value in (*model.graph.output, *model.graph.input)}
    made = [name for node in weighted for name in node.output if name not in given]
    rectified = {
        name: readers[name][0].output[0] for name in made if [n.op_type for n in readers.get(name, [])] in RECTIFIERS
    }
    near = {name for node in weighted for name in (*node.input, *node.output)} | set(rectified.values())
    typed = {
        v.name: v.type.tensor_type.elem_type for v in (*model.graph.value_info, *model.graph.input, *model.graph.output)
    }
    names = sorted(name for name in near - stored if typed.get(name) == TensorProto.FLOAT)
    extra = [name for name in names if name not in given]
    model.graph.output.extend(onnx.helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in extra)
    with tempfile.TemporaryDirectory() as scratch:
        runner = Runner(normalise.write(model, Path(scratch))[0])
    return names, {name: after for name, after in rectified.items() if {name, after} <= set(names)}, runner


def _central(values: np.ndarray) -> tuple[float, float]:
    """The range without the rarest values on either side; zero always inside, as quantisation needs it exact."""
    values = values[np.isfinite(values)]
    if values.size == 0:
        return 0.0, 0.0
    low, high = np.quantile(values, (RARE, 1 - RARE))
    return min(float(low), 0.0), max(float(high), 0.0)


def static_int8(source: Path, target: Path, ranges: Ranges, is_clipped: bool, exclude: Sequence[str]) -> None:
    """QDQ with uint8 activations and per-channel int8 weights; nodes named in `exclude` and nodes without finite
    ranges stay fp32.
    """
    model = load_model_with_shape_infer(source)
    skipped = [*exclude, *(node.name for node in model.graph.node if ranges.endless & {*node.input, *node.output})]
    options: dict[str, Any] = {"QDQKeepRemovableActivations": False}
    quantizer = QDQQuantizer(
        model,
        True,
        False,
        QuantType.QInt8,
        QuantType.QUInt8,
        ranges.data(is_clipped),
        [],
        skipped,
        list(STATIC_OPS),
        options,
    )
    quantizer.quantize_model()
    _save(quantizer.model.model, onnx.load(source, load_external_data=False), target)


def dynamic_int8(source: Path, target: Path) -> None:
    """Weights of MatMul and Gemm as per-channel int8, activations quantised as they come; large tables that Gather
    reads as int8.
    """
    graph = onnx.load(source, load_external_data=False).graph
    sizes = {tensor.name: math.prod(tensor.dims) for tensor in graph.initializer}
    small = [n.name for n in graph.node if n.op_type == "Gather" and sizes.get(n.input[0], 0) < TABLE_ELEMENTS_MIN]
    ops = ["MatMul", "Gemm", "Gather"]
    quantize_dynamic(source, target, ops, per_channel=True, weight_type=QuantType.QInt8, nodes_to_exclude=small)
    _save(onnx.load(target), onnx.load(source, load_external_data=False), target)


def widened(source: Path, target: Path) -> None:
    """Weight-only int8 as plain fp32 weights: whatever is computed from constants alone (DequantizeLinear; Cast and
    Mul) is computed now.
    """
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
    with tempfile.TemporaryDirectory() as scratch:
        plain = normalise.write(model, Path(scratch))[0]
        Runner(plain, write_to=Path(scratch) / "folded.onnx")
        _save(onnx.load(Path(scratch) / "folded.onnx"), model, target)


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
    """Names of the small Conv nodes that no other weighted node precedes, or follows: the most sensitive layers of
    most networks.
    """
    graph = onnx.load(source, load_external_data=False).graph
    sizes = {tensor.name: math.prod(tensor.dims) for tensor in graph.initializer}
    weighted = {node.name for node in graph.node if node.op_type in STATIC_OPS and sizes.get(node.input[1], 0)}
    outermost = _without_weighted(graph.node, weighted) | _without_weighted(
        list(reversed(graph.node)), weighted, is_reversed=True
    )
    large = END_SHARE_MAX * sum(sizes.values())
    return [n.name for n in graph.node if n.name in outermost and n.op_type == "Conv" and sizes[n.input[1]] < large]


def _without_weighted(nodes: Sequence[onnx.NodeProto], weighted: Set[str], is_reversed: bool = False) -> set[str]:
    """Weighted nodes that no weighted one comes before, in the order given (ONNX graphs are sorted)."""
    reached: set[str] = set()
    found = set()
    for node in nodes:
        before, after = (node.output, node.input) if is_reversed else (node.input, node.output)
        is_reached = not reached.isdisjoint(before)
        if node.name in weighted and not is_reached:
            found.add(node.name)
        if node.name in weighted or is_reached:
            reached.update(after)
    return found


def _is_depthwise(node: onnx.NodeProto, shapes: Mapping[str, Sequence[int]]) -> bool:
    group = next((attribute.i for attribute in node.attribute if attribute.name == "group"), 1)
    return bool(group > 1 and shapes.get(node.input[1], [0, 0])[1] == 1)


def quantisable(source: Path, ops: Sequence[str]) -> bool:
    """Whether some operator of `ops` at the top level has stored weights; bodies of If and Loop are left alone by
    the quantisers.
    """
    graph = onnx.load(source, load_external_data=False).graph
    stored = {
        tensor.name: math.prod(tensor.dims) for tensor in graph.initializer if tensor.data_type == TensorProto.FLOAT
    }
    return any(node.op_type in ops and any(stored.get(name, 0) > 1 for name in node.input[1:2]) for node in graph.node)


def _save(made: ModelProto, original: ModelProto, target: Path) -> None:
    """Write with the original's metadata and interface; converters keep these differently."""
    del made.graph.value_info[:]  # types of before
    del made.metadata_props[:]
    made.metadata_props.extend(original.metadata_props)
    for field in ("input", "output"):
        del getattr(made.graph, field)[:]
        getattr(made.graph, field).extend(getattr(original.graph, field))
    normalise.tidy(made)
    normalise.write(normalise.with_shapes(made), target.parent, target.stem)
