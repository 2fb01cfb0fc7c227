"""Brings a checked graph into the form that the rest of the box relies on. Runs in a child process.

Afterwards: opset 17 to 21 where the converter can, an IR that ONNX Runtime loads, weights as initialisers and not as
inputs or Constant nodes, none of them unused, nodes sorted and with names of their own, shapes inferred.
"""

import heapq
import math
from collections.abc import Iterator
from pathlib import Path

import onnx
import onnx.version_converter
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto

from appliance.domain.catalogue import DefaultValue
from appliance.domain.errors import BadModel
from appliance.modelstore.stages import graph as facts

OPSET_MIN, OPSET_MAX = 17, 21
"""17: per-channel QDQ and LayerNormalization; 21: loaded by every ONNX Runtime since 1.18 and by TensorRT 10."""
IR_VERSION = 10
IR_WITH_DEFAULTS = 4
"""From this IR on weights need not be inputs, and those that are have a reason."""
DEFAULT_ELEMENTS_MAX = 1024
"""A larger default is a weight."""
COMMON_LOCALE = "C.UTF-8"
OWN_CASE = frozenset({"tr", "az"})
"""Languages whose i becomes another capital letter."""
STANDARD_DOMAINS = frozenset({"", "ai.onnx", "ai.onnx.ml"})


def converted(model: ModelProto) -> tuple[ModelProto, str]:
    """The model at an opset of OPSET_MIN..OPSET_MAX, and a note; the model unchanged when it is there already or cannot
    be brought there.

    The caller checks by a run that the conversion kept the meaning: the converter is known to get single operators
    wrong.
    """
    current = opset(model)
    wanted = min(max(current, OPSET_MIN), OPSET_MAX)
    if current == wanted:
        return model, ""
    if any(node.domain not in STANDARD_DOMAINS for node in facts.nodes(model.graph)):
        return model, f"opset {current} kept: the converter does not know operators of com.microsoft"
    try:
        made = onnx.version_converter.convert_version(model, wanted)
    except Exception as error:  # the converter raises RuntimeError and worse
        return model, f"opset {current} kept: {first_line(error)}"
    del made.metadata_props[:]
    made.metadata_props.extend(model.metadata_props)
    return made, f"opset {current} converted to {wanted}"


def opset(model: ModelProto) -> int:
    """Version of the default operator set."""
    return max((entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")), default=0)


def tidy(model: ModelProto) -> None:
    """In place: opset list and IR set, Constant nodes and weights as initialisers, unused ones dropped, node names
    unique.
    """
    used = {"" if node.domain == "ai.onnx" else node.domain for node in facts.nodes(model.graph)} | {""}
    versions = {"" if entry.domain == "ai.onnx" else entry.domain: entry.version for entry in model.opset_import}
    del model.opset_import[:]
    model.opset_import.extend(onnx.helper.make_opsetid(domain, versions.get(domain, 1)) for domain in sorted(used))
    model.ir_version = IR_VERSION
    for current in facts.graphs(model.graph):
        _lift_constants(current)
        sort_nodes(current)
        _use_common_locale(current)
    _drop_weight_inputs(model.graph)
    _drop_unused(model.graph)
    _name_nodes(model.graph)


def optional_inputs(model: ModelProto) -> list[str]:
    """Names of inputs that have a default: initialisers that are inputs, too, from IR 4 on.

    Some exporters list all weights like that, as IR 3 demanded: where a layer's weights, or more than
    DEFAULT_ELEMENTS_MAX numbers, are among them, none is an optional input.
    """
    stored = {tensor.name: tensor for tensor in model.graph.initializer}
    listed = {value.name: value for value in model.graph.input if value.name in stored}
    if not listed or model.ir_version < IR_WITH_DEFAULTS:
        return []
    layers = (node for node in facts.nodes(model.graph) if node.op_type in facts.LAYERS)
    are_weights = any(name in listed for node in layers for name in node.input)
    if are_weights or any(math.prod(stored[name].dims) > DEFAULT_ELEMENTS_MAX for name in listed):
        return []
    return [name for name, value in listed.items() if _may_be_sent(value, stored[name])]


def _may_be_sent(value: ValueInfoProto, default: TensorProto) -> bool:
    """Whether requests can carry the input and its default."""
    tensor = value.type.tensor_type
    sides = facts.dims(value)
    return (
        tensor.elem_type in facts.DATATYPES
        and tensor.elem_type == default.data_type
        and tensor.HasField("shape")
        and len(sides) == len(default.dims)
        and all(own > 0 and side in (-1, own) for side, own in zip(sides, default.dims, strict=True))
    )


def take_defaults(model: ModelProto) -> dict[str, DefaultValue]:
    """In place: make plain inputs of optional ones. Returns what each holds where a request leaves it out."""
    found: dict[str, DefaultValue] = {}
    names = optional_inputs(model)
    for tensor in [one for one in model.graph.initializer if one.name in names]:
        array = onnx.numpy_helper.to_array(tensor)
        values = tuple(one.decode() if isinstance(one, bytes) else one for one in array.ravel().tolist())
        found[tensor.name] = DefaultValue(facts.DATATYPES[tensor.data_type], tuple(tensor.dims), values)
        model.graph.initializer.remove(tensor)
    return found


def sort_nodes(graph: GraphProto) -> None:
    """In place: producers before their readers, else in the order given.

    ONNX Runtime takes unsorted graphs, and quantisers write them.

    Raises: BadModel when the nodes form a circle.
    """
    made_by = {name: index for index, node in enumerate(graph.node) for name in node.output if name}
    waits_for = [{made_by[name] for name in read_names(node) if name in made_by} for node in graph.node]
    if all(not needed or max(needed) < index for index, needed in enumerate(waits_for)):
        return
    readers: list[list[int]] = [[] for _ in waits_for]
    for index, needed in enumerate(waits_for):
        for producer in needed:
            readers[producer].append(index)
    free = [index for index, needed in enumerate(waits_for) if not needed]
    heapq.heapify(free)
    order = []
    while free:
        order.append(heapq.heappop(free))
        for reader in readers[order[-1]]:
            waits_for[reader].discard(order[-1])
            if not waits_for[reader]:
                heapq.heappush(free, reader)
    if len(order) != len(waits_for):
        raise BadModel(reason="the nodes of the graph form a circle")
    nodes = [graph.node[index] for index in order]
    del graph.node[:]
    graph.node.extend(nodes)


def read_names(node: NodeProto) -> Iterator[str]:
    """What a node reads, and what the bodies inside it read from outside (and from themselves, which does no harm)."""
    yield from node.input
    for body in facts.subgraphs(node):
        for inner in facts.graphs(body):
            yield from (name for one in inner.node for name in one.input)
            yield from (value.name for value in inner.output)


def _lift_constants(graph: GraphProto) -> None:
    kept = []
    outputs = {value.name for value in graph.output}
    for node in graph.node:
        tensor = constant_value(node)
        if tensor is None or node.output[0] in outputs:
            kept.append(node)
            continue
        tensor.name = node.output[0]
        graph.initializer.append(tensor)
    if len(kept) != len(graph.node):
        del graph.node[:]
        graph.node.extend(kept)


def constant_value(node: NodeProto) -> TensorProto | None:
    """The tensor of a Constant node; None for other nodes and for strings and sparse values."""
    if node.op_type != "Constant" or node.domain not in ("", "ai.onnx") or len(node.attribute) != 1:
        return None
    attribute = node.attribute[0]
    if attribute.name == "value":
        copy = TensorProto()
        copy.CopyFrom(attribute.t)
        return copy
    plain = {
        "value_float": TensorProto.FLOAT,
        "value_floats": TensorProto.FLOAT,
        "value_int": TensorProto.INT64,
        "value_ints": TensorProto.INT64,
    }
    if attribute.name not in plain:
        return None
    value = onnx.helper.get_attribute_value(attribute)
    shape = [len(value)] if attribute.name.endswith("s") else []
    return onnx.helper.make_tensor("", plain[attribute.name], shape, value if shape else [value])


def _use_common_locale(graph: GraphProto) -> None:
    """Texts change their case by the rules that all languages share but for those in OWN_CASE, in the one locale that
    is installed everywhere; left out, ONNX Runtime wants en_US.
    """
    for node in graph.node:
        if node.op_type != "StringNormalizer":
            continue
        stated = next((one.s.decode(errors="replace") for one in node.attribute if one.name == "locale"), "")
        if stated in ("C", "POSIX") or stated[:2].lower() in OWN_CASE:
            continue
        others = [one for one in node.attribute if one.name != "locale"]
        del node.attribute[:]
        node.attribute.extend([*others, onnx.helper.make_attribute("locale", COMMON_LOCALE)])


def _drop_weight_inputs(graph: GraphProto) -> None:
    stored = {tensor.name for tensor in graph.initializer}
    inputs = [value for value in graph.input if value.name not in stored]
    if len(inputs) != len(graph.input):
        del graph.input[:]
        graph.input.extend(inputs)


def _drop_unused(graph: GraphProto) -> None:
    used = {name for node in facts.nodes(graph) for name in node.input}
    used |= {value.name for current in facts.graphs(graph) for value in current.output}
    kept = [tensor for tensor in graph.initializer if tensor.name in used]
    if len(kept) != len(graph.initializer):
        del graph.initializer[:]
        graph.initializer.extend(kept)


def _name_nodes(graph: GraphProto) -> None:
    """Every node gets a name of its own; names that are unique already stay."""
    taken: set[str] = set()
    for node in facts.nodes(graph):
        base = name = node.name or f"{node.op_type}_{len(taken)}"
        number = 1
        while name in taken:
            number += 1
            name = f"{base}_{number}"
        node.name = name
        taken.add(name)


def with_shapes(model: ModelProto) -> ModelProto:
    """The model with inferred shapes; unchanged when inference fails."""
    try:
        return onnx.shape_inference.infer_shapes(model, data_prop=True)
    except Exception:  # its errors have no common type, and shapes are a help, not a need
        return model


def write(model: ModelProto, folder: Path, name: str = "model", is_external: bool = False) -> tuple[Path, ...]:
    """Write `name`.onnx, with all weights in `name`.bin beside it when `is_external`. Returns the files, model first.

    An external write leaves the model without its weights.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.onnx"
    if not is_external:
        path.write_bytes(model.SerializeToString())
        return (path,)
    weights = path.with_suffix(".bin")
    weights.unlink(missing_ok=True)  # onnx appends
    onnx.save_model(model, path, save_as_external_data=True, location=weights.name, size_threshold=1024)
    return (path, weights)


def first_line(error: BaseException) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)[:400]
