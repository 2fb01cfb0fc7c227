"""Reads a hostile ONNX file: parses, bounds and checks it, and refuses with the reason. Runs in a child process.

What comes out has only known operators, no local functions, tensors that hold what their shapes say, external data
taken only from the model's own folder, and sorted nodes; `modelstore.stages.normalise` then brings it into the form
that the rest of the box relies on.
"""

import math
import os
import re
from pathlib import Path, PurePosixPath

import onnx
import onnx.inliner
from onnx import GraphProto, ModelProto, TensorProto

from appliance.domain.errors import BadModel
from appliance.modelstore.stages import graph as facts
from appliance.modelstore.stages.normalise import STANDARD_DOMAINS, first_line, optional_inputs, sort_nodes

OTHER_FILES: tuple[tuple[str, str], ...] = (
    (
        r"version https://git-lfs\.",
        "a pointer of Git LFS, not the file itself: run 'git lfs pull' where you cloned, and upload what is there then",
    ),
    (r".{4}TFL3", "a TensorFlow Lite model: convert it to ONNX with tf2onnx"),
    (r"\x89HDF", "an HDF5 file, as Keras writes: convert the model to ONNX with tf2onnx"),
    (
        r"\x80[\x02-\x05]",
        "a Python pickle, as PyTorch and scikit-learn write: export the model with torch.onnx.export or skl2onnx",
    ),
    (r"GGUF", "a GGUF file, which has weights and no graph: export the model to ONNX"),
    (r'.{8}\{\s*"', "a safetensors file, which has weights and no graph: export the model to ONNX"),
    (r".{4}ORTM", "a model in ORT format: upload the ONNX file that it was made of"),
    (r"\s*(?i:<!doctype html|<html)", "a web page, not a model: the download gave a page in its place"),
    (r"\s*<\?xml", "an XML file; if it is OpenVINO's, upload the ONNX file that it was made of"),
    (r"\x28\xb5\x2f\xfd", "packed with zstd: unpack it, and upload the .onnx file"),
    (r"7z\xbc\xaf", "packed as 7z: unpack it, and upload the .onnx file, or all as a tar or zip"),
    (r"Rar!", "packed as RAR: unpack it, and upload the .onnx file, or all as a tar or zip"),
)
"""How files that are no ONNX begin, and what they are."""
FILE_BYTES_MAX = 2 * 2**30
"""Protobuf's own limit; larger weights come as external data."""
CHECKED_BYTES_MAX = 1_800_000_000
NODES_MAX = 100_000
DEPTH_MAX = 8
NAME_MAX = 1024
"""Longer names cannot be said in a request of `/v2`."""
METADATA_BYTES_MAX = 4 * 2**20
MICROSOFT_OPS = frozenset(
    """
    Attention BiasGelu BiasSoftmax CDist DequantizeLinear DynamicQuantizeLSTM DynamicQuantizeMatMul
    EmbedLayerNormalization ExpandDims FastGelu FusedConv FusedGemm FusedMatMul GatherBlockQuantized Gelu GridSample
    GroupQueryAttention Inverse MatMulInteger16 MatMulIntegerToFloat MatMulNBits MultiHeadAttention NhwcMaxPool Pad
    QAttention QEmbedLayerNormalization QGemm QLinearAdd QLinearAveragePool QLinearConcat QLinearGlobalAveragePool
    QLinearLeakyRelu QLinearMul QLinearReduceMean QLinearSigmoid QLinearSoftmax QLinearWhere QuantizeLinear
    QuickGelu RotaryEmbedding SimplifiedLayerNormalization SkipLayerNormalization SkipSimplifiedLayerNormalization
    TransposeMatMul Trilu Unique
    """.split()  # a list of fifty literals reads worse
)
"""Operators of com.microsoft that the CPU build of ONNX Runtime has and that do nothing but arithmetic."""


def read(source: Path, tensor_bytes_max: int) -> ModelProto:
    """Parse and check a file, weights included.

    Raises: BadModel.
    """
    model = _parse(source)
    _check_structure(model)
    _load_external_data(model, source.parent)
    _check_tensors(model, tensor_bytes_max)
    model = _inlined(model)
    for current in facts.graphs(model.graph):
        sort_nodes(current)
    _check_operators(model)
    _check_interface(model)
    _check_by_onnx(model)
    return model


def _check_by_onnx(model: ModelProto) -> None:
    """Raises: BadModel.

    Initialisers that are no inputs are common in old files, too, and harmless: the rule of IR 3 is waived.
    """
    if facts.stored_bytes(model.graph) >= CHECKED_BYTES_MAX:
        return  # the checker would serialise it, which protobuf refuses
    ir_version, model.ir_version = model.ir_version, max(4, model.ir_version)
    try:
        onnx.checker.check_model(model)
    except (onnx.checker.ValidationError, ValueError) as error:
        raise BadModel(reason=f"the ONNX checker refuses it: {first_line(error)}") from error
    finally:
        model.ir_version = ir_version


def _parse(source: Path) -> ModelProto:
    size = source.stat().st_size
    if size == 0:
        raise BadModel(reason="the file is empty")
    if size >= FILE_BYTES_MAX:
        raise BadModel(
            reason="an ONNX file cannot exceed 2 GiB: save the weights as external data and send both as a tar or zip"
        )
    model, body = ModelProto(), source.read_bytes()
    try:
        model.ParseFromString(body)
    except Exception as error:  # protobuf's DecodeError; its package has no types to import
        raise BadModel(reason=_other(body) or "this is no ONNX file, or it is truncated or damaged") from error
    if not model.HasField("graph") or not model.opset_import or not model.graph.node:
        nothing = "this is no ONNX model, or it is truncated: it has no graph, no nodes or no operator set"
        raise BadModel(reason=_other(body) or nothing)
    return model


def _other(body: bytes) -> str:
    """What a file is that is no ONNX, and what to do; empty where that is not known."""
    found = (what for how, what in OTHER_FILES if re.match(how.encode("latin-1"), body, re.DOTALL))
    return next((f"this is {what}" for what in found), "")


def _check_structure(model: ModelProto) -> None:
    """Bounds on what later steps walk through."""
    depth = [(model.graph, 1)]
    count = 0
    while depth:
        current, level = depth.pop()
        count += len(current.node)
        if level > DEPTH_MAX:
            raise BadModel(reason=f"subgraphs are nested deeper than {DEPTH_MAX} levels")
        if count > NODES_MAX:
            raise BadModel(reason=f"the graph has more than {NODES_MAX} nodes")
        depth.extend((inner, level + 1) for node in current.node for inner in facts.subgraphs(node))
    if sum(len(entry.key) + len(entry.value) for entry in model.metadata_props) > METADATA_BYTES_MAX:
        raise BadModel(reason=f"metadata_props are larger than {METADATA_BYTES_MAX} bytes")
    if any(len(value.name) > NAME_MAX for value in (*model.graph.input, *model.graph.output)):
        raise BadModel(reason=f"the name of an input or output is longer than {NAME_MAX} characters")
    _check_functions(model)


def _check_functions(model: ModelProto) -> None:
    """Local functions must not call themselves, nor unfold to more nodes than a graph may have."""
    functions = {(function.domain, function.name): function for function in model.functions}
    sizes: dict[tuple[str, str], int] = {}

    def unfolded(key: tuple[str, str], callers: tuple[tuple[str, str], ...]) -> int:
        if key in callers or len(callers) > 50:
            raise BadModel(reason=f"the local function {key[1]!r} calls itself or is nested too deeply")
        if key not in sizes:
            called = [(node.domain, node.op_type) for node in functions[key].node]
            sizes[key] = sum(unfolded(name, (*callers, key)) if name in functions else 1 for name in called)
        return sizes[key]

    if functions:
        calls = [(node.domain, node.op_type) for node in facts.nodes(model.graph)]
        if sum(unfolded(name, ()) for name in calls if name in functions) > NODES_MAX:
            raise BadModel(reason=f"the graph unfolds to more than {NODES_MAX} nodes")


def _load_external_data(model: ModelProto, folder: Path) -> None:
    """Read external tensors into the model, from regular files inside `folder` only."""
    stored = [*facts.tensors(model.graph)]
    for function in model.functions:
        stored.extend(tensor for node in function.node for tensor in facts.attribute_tensors(node))
    for tensor in stored:
        if tensor.data_location == TensorProto.EXTERNAL:
            tensor.raw_data = _external_bytes(tensor, folder)
            del tensor.external_data[:]
            tensor.data_location = TensorProto.DEFAULT


def _external_bytes(tensor: TensorProto, folder: Path) -> bytes:
    entry = {item.key: item.value for item in tensor.external_data}
    location = entry.get("location", "")
    pure = PurePosixPath(location)
    if not location or pure.is_absolute() or ".." in pure.parts or "\\" in location or "\0" in location:
        raise BadModel(reason=f"external data of {tensor.name!r} points outside the model's folder: {location!r}")
    path = folder.joinpath(*pure.parts)
    if path.resolve() != folder.resolve().joinpath(*pure.parts):
        raise BadModel(reason=f"external data of {tensor.name!r} goes through a symbolic link: {location!r}")
    if not path.is_file():
        raise BadModel(
            reason=f"external data file {location!r} is missing: send the model and its data together as a tar or zip"
        )
    try:
        offset = int(entry.get("offset") or 0)
        length = int(entry.get("length") or facts.tensor_bytes(tensor))
    except ValueError as error:
        raise BadModel(reason=f"external data of {tensor.name!r} has no valid offset or length") from error
    if offset < 0 or length != facts.tensor_bytes(tensor) or offset + length > path.stat().st_size:
        raise BadModel(reason=f"external data of {tensor.name!r} does not fit its shape or its file {location!r}")
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    with os.fdopen(descriptor, "rb") as file:
        file.seek(offset)
        return file.read(length)


def _check_tensors(model: ModelProto, tensor_bytes_max: int) -> None:
    """Stored tensors hold what their shape says, and neither they nor inputs and outputs declare absurd sizes."""
    for tensor in facts.tensors(model.graph):
        if any(dim < 0 for dim in tensor.dims):
            raise BadModel(reason=f"tensor {tensor.name!r} has a negative dimension")
        size = facts.tensor_bytes(tensor)
        if size > tensor_bytes_max:
            raise BadModel(reason=f"tensor {tensor.name!r} would take {size / 2**30:.1f} GiB")
        if tensor.HasField("raw_data") and len(tensor.raw_data) != size:
            raise BadModel(reason=f"tensor {tensor.name!r} holds {len(tensor.raw_data)} bytes, its shape needs {size}")
    check_declared(model.graph, tensor_bytes_max)


def check_declared(graph: GraphProto, tensor_bytes_max: int) -> None:
    """No declared or inferred tensor may take more than `tensor_bytes_max`, free dimensions counted as one.

    Raises: BadModel.
    """
    for current in facts.graphs(graph):
        for value in (*current.input, *current.output, *current.value_info):
            fixed = [max(1, dim) for dim in facts.dims(value)]
            size = math.prod(fixed) * facts.element_bytes(value.type.tensor_type.elem_type)
            if size > tensor_bytes_max:
                shape = "x".join(map(str, fixed))
                raise BadModel(reason=f"tensor {value.name!r} of shape {shape} would take {size / 2**30:.1f} GiB")


def _inlined(model: ModelProto) -> ModelProto:
    if not model.functions:
        return model
    try:
        return onnx.inliner.inline_local_functions(model)
    except Exception as error:  # the inliner has no error type of its own
        raise BadModel(reason=f"its local functions cannot be unfolded: {first_line(error)}") from error


def _check_operators(model: ModelProto) -> None:
    for node in facts.nodes(model.graph):
        if node.domain in STANDARD_DOMAINS or (node.domain == "com.microsoft" and node.op_type in MICROSOFT_OPS):
            continue
        raise BadModel(
            reason=f"custom operator {node.domain}.{node.op_type} (node {node.name!r}) is not supported; export "
            f"without custom operators"
        )


def _check_interface(model: ModelProto) -> None:
    """Inputs and outputs are plain tensors of types that travel over the protocol."""
    stored = {tensor.name for tensor in model.graph.initializer}.difference(optional_inputs(model))
    inputs = [value for value in model.graph.input if value.name not in stored]
    for what, values in (("input", inputs), ("output", model.graph.output)):
        if not values:
            raise BadModel(reason=f"the model has no {what}: export it with one at least")
        for value in values:
            carrier = "requests" if what == "input" else "answers"
            if not value.type.HasField("tensor_type"):
                kind = (value.type.WhichOneof("value") or "value_type").removesuffix("_type")
                raise BadModel(
                    reason=f"{what} {value.name!r} is {_NO_TENSORS.get(kind, 'no tensor')}, which {carrier} cannot "
                    f"carry: export the model with tensors at its interface{_TENSORS_INSTEAD.get((what, kind), '')}"
                )
            elem_type = value.type.tensor_type.elem_type
            if elem_type not in facts.DATATYPES:
                raise BadModel(
                    reason=f"{what} {value.name!r} is of {_type_name(elem_type)}, which {carrier} cannot carry: export "
                    f"the model with another type at its interface, for example float32"
                )
            if what == "input" and not value.type.tensor_type.HasField("shape"):
                raise BadModel(reason=f"input {value.name!r} does not declare its shape")


_NO_TENSORS = {"sequence": "a sequence", "map": "a map", "optional": "an optional", "sparse_tensor": "a sparse tensor"}
_TENSORS_INSTEAD = {
    ("input", "sequence"): " (one input for each element, or all in one tensor, taken apart by SplitToSequence)",
    ("output", "sequence"): " (one output for each element, by SequenceAt, or all in one, by ConcatFromSequence; "
    "scikit-learn models with zipmap=False)",
    ("output", "map"): " (scikit-learn models with zipmap=False)",
}


def _type_name(kind: int) -> str:
    try:
        return f"type {TensorProto.DataType.Name(kind).lower()}"
    except ValueError:
        return f"an unknown type ({kind})"
