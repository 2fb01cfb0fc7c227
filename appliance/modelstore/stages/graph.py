"""Reads facts off an ONNX graph: nodes with subgraphs, tensors wherever they hide, types, shapes, families.

Changes nothing.

Used by the stages that run in a child process; the service never imports this module, because it imports onnx.
"""

import math
from collections import Counter
from collections.abc import Iterator

import numpy as np
import onnx
from onnx import AttributeProto, GraphProto, NodeProto, TensorProto, ValueInfoProto

from appliance.domain.catalogue import TensorSpec

DATATYPES: dict[int, str] = {
    TensorProto.FLOAT: "FP32",
    TensorProto.FLOAT16: "FP16",
    TensorProto.DOUBLE: "FP64",
    TensorProto.INT8: "INT8",
    TensorProto.INT16: "INT16",
    TensorProto.INT32: "INT32",
    TensorProto.INT64: "INT64",
    TensorProto.UINT8: "UINT8",
    TensorProto.UINT16: "UINT16",
    TensorProto.UINT32: "UINT32",
    TensorProto.UINT64: "UINT64",
    TensorProto.BOOL: "BOOL",
    TensorProto.STRING: "BYTES",
}
"""ONNX element type to the word of the Open Inference Protocol; bfloat16 has no numpy type and cannot be sent."""
WEIGHT_FORMATS: dict[int, str] = {
    TensorProto.FLOAT: "fp32",
    TensorProto.DOUBLE: "fp32",
    TensorProto.FLOAT16: "fp16",
    TensorProto.BFLOAT16: "bf16",
    TensorProto.INT8: "int8",
    TensorProto.UINT8: "int8",
}
CONV = frozenset({"Conv", "ConvTranspose", "ConvInteger", "QLinearConv"})
MATMUL = frozenset({"MatMul", "Gemm", "MatMulInteger", "QLinearMatMul"})
RECURRENT = frozenset({"LSTM", "GRU", "RNN"})
NORMALISING = frozenset({"BatchNormalization", "GroupNormalization", "InstanceNormalization", "LayerNormalization"})
LAYERS = CONV | MATMUL | RECURRENT | NORMALISING
"""Operators that have weights."""
QUANTISED = frozenset(
    {"QuantizeLinear", "DynamicQuantizeLinear", "MatMulInteger", "ConvInteger", "QLinearConv", "QLinearMatMul"}
)


def subgraphs(node: NodeProto) -> Iterator[GraphProto]:
    """Bodies of If, Loop, Scan ..."""
    for attribute in node.attribute:
        if attribute.type == AttributeProto.GRAPH:
            yield attribute.g
        elif attribute.type == AttributeProto.GRAPHS:
            yield from attribute.graphs


def captured(node: NodeProto) -> list[str]:
    """Names that the bodies of a node read from the graph around it."""
    found: dict[str, None] = {}
    for body in subgraphs(node):
        own = {value.name for value in body.input} | {tensor.name for tensor in body.initializer}
        for inner in body.node:
            found.update(dict.fromkeys(name for name in (*inner.input, *captured(inner)) if name and name not in own))
            own.update(inner.output)
        found.update(dict.fromkeys(value.name for value in body.output if value.name not in own))
    return list(found)


def graphs(graph: GraphProto) -> Iterator[GraphProto]:
    """The graph and all graphs inside it, outer first."""
    waiting = [graph]
    while waiting:
        current = waiting.pop()
        yield current
        for node in current.node:
            waiting.extend(subgraphs(node))


def nodes(graph: GraphProto) -> Iterator[NodeProto]:
    """Every node, those of subgraphs included."""
    for current in graphs(graph):
        yield from current.node


def tensors(graph: GraphProto) -> Iterator[TensorProto]:
    """Every stored tensor: initialisers, sparse ones, and attributes of nodes, subgraphs included."""
    for current in graphs(graph):
        yield from current.initializer
        for sparse in current.sparse_initializer:
            yield from (sparse.values, sparse.indices)
        for node in current.node:
            yield from attribute_tensors(node)


def attribute_tensors(node: NodeProto) -> Iterator[TensorProto]:
    """Tensors in a node's own attributes."""
    for attribute in node.attribute:
        if attribute.type == AttributeProto.TENSOR:
            yield attribute.t
        elif attribute.type == AttributeProto.TENSORS:
            yield from attribute.tensors
        elif attribute.type == AttributeProto.SPARSE_TENSOR:
            yield from (attribute.sparse_tensor.values, attribute.sparse_tensor.indices)


def element_bytes(elem_type: int) -> float:
    """Size of one element; 0.5 for 4-bit types, 8 for a string (its pointer)."""
    if elem_type in (TensorProto.INT4, TensorProto.UINT4, TensorProto.FLOAT4E2M1):
        return 0.5
    try:
        return float(np.dtype(onnx.helper.tensor_dtype_to_np_dtype(elem_type)).itemsize)
    except (KeyError, TypeError):
        return 8.0


def tensor_bytes(tensor: TensorProto) -> int:
    """Bytes that a stored tensor occupies once it is loaded, by its declared shape."""
    return math.ceil(math.prod(int(dim) for dim in tensor.dims) * element_bytes(tensor.data_type))


def dims(value: ValueInfoProto) -> tuple[int, ...]:
    """Shape with -1 for free dimensions; empty for scalars and for unknown rank."""
    shape = value.type.tensor_type.shape
    return tuple(d.dim_value if d.HasField("dim_value") and d.dim_value >= 0 else -1 for d in shape.dim)


def symbols(value: ValueInfoProto) -> tuple[str, ...]:
    """Names of the free dimensions; empty strings for fixed and unnamed ones."""
    return tuple(d.dim_param if d.HasField("dim_param") else "" for d in value.type.tensor_type.shape.dim)


def spec(value: ValueInfoProto) -> TensorSpec:
    """An input or output as the catalogue writes it."""
    return TensorSpec(value.name, DATATYPES[value.type.tensor_type.elem_type], dims(value))


def stored_bytes(graph: GraphProto) -> int:
    """Bytes of all stored tensors together."""
    return sum(tensor_bytes(tensor) for tensor in tensors(graph))


def histogram(graph: GraphProto) -> dict[str, int]:
    """How often each operator type occurs, most frequent first."""
    return dict(Counter(node.op_type for node in nodes(graph)).most_common())


def weight_format(graph: GraphProto) -> str:
    """Number format that holds most of the weights, by elements: fp32, fp16, bf16, int8, or mixed when none holds 80
    %.
    """
    counts: Counter[str] = Counter()
    for tensor in tensors(graph):
        if tensor.data_type in WEIGHT_FORMATS:
            counts[WEIGHT_FORMATS[tensor.data_type]] += math.prod(tensor.dims)
    if not counts:
        return "fp32"
    kind, most = counts.most_common(1)[0]
    return kind if most >= 0.8 * counts.total() else "mixed"


def is_quantised(graph: GraphProto) -> bool:
    """Whether activations are quantised already; weight-only quantisation (DequantizeLinear alone) does not count."""
    return any(node.op_type in QUANTISED for node in nodes(graph))


def family(graph: GraphProto) -> str:
    """convolution, recurrent, transformer or other; decides how int8 is made.

    A net counts as convolutional when its Conv weights are at least a tenth of the weights of Conv and MatMul together.
    """
    sizes = {tensor.name: tensor_bytes(tensor) for current in graphs(graph) for tensor in current.initializer}
    found: Counter[str] = Counter()
    ops = {node.op_type for node in nodes(graph)}
    for node in nodes(graph):
        kind = "conv" if node.op_type in CONV else "matmul" if node.op_type in MATMUL else ""
        found[kind] += sum(sizes.get(name, 0) for name in node.input)
    if ops & RECURRENT:
        return "recurrent"
    if found["conv"] and found["conv"] >= 0.1 * (found["conv"] + found["matmul"]):
        return "convolution"
    has_attention = bool(ops & {"Attention", "MultiHeadAttention"}) or "Softmax" in ops
    return "transformer" if found["matmul"] and has_attention else "other"
