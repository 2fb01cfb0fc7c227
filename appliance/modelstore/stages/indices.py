"""Limits of integer inputs that are indices, read off the tables that they index."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from onnx import GraphProto, NodeProto, TensorProto, numpy_helper

from appliance.modelstore.stages import graph as facts

INTEGERS = frozenset(
    {
        TensorProto.INT8,
        TensorProto.INT16,
        TensorProto.INT32,
        TensorProto.INT64,
        TensorProto.UINT8,
        TensorProto.UINT16,
        TensorProto.UINT32,
        TensorProto.UINT64,
    }
)
_KEEPS_VALUES = frozenset(
    "Cast Concat Expand Flatten Identity Reshape Slice Split Squeeze Tile Transpose Unsqueeze".split()
)
"""Operators whose outputs hold values of their first input, or of all for Concat."""


def index_limits(graph: GraphProto) -> dict[str, int]:
    """Return for each integer input that indexes a table the number that its values must stay below.

    Gather, GatherElements, GatherND, OneHot and the scattering operators are looked at, also behind operators that only
    move values. An input has no entry where it is not found to be an index, or indexes only tables of unknown length.
    """
    stored = {tensor.name: tensor for tensor in graph.initializer}
    sizes = {name: tuple(tensor.dims) for name, tensor in stored.items()}
    for value in (*graph.value_info, *graph.input, *graph.output):
        if value.type.tensor_type.HasField("shape"):
            sizes.setdefault(value.name, facts.dims(value))
    for node in graph.node:
        if node.op_type == "Constant":
            for attribute in node.attribute:
                if attribute.name == "value":
                    stored[node.output[0]], sizes[node.output[0]] = attribute.t, tuple(attribute.t.dims)
    found: dict[str, int] = {}
    for value in graph.input:
        if value.name in stored or value.type.tensor_type.elem_type not in INTEGERS:
            continue
        for node, places in readers_of(graph, value.name):
            limit = _limit(node, places, sizes, stored)
            if limit is not None:
                found[value.name] = max(1, min(limit, found.get(value.name, limit)))
    return found


def readers_of(graph: GraphProto, name: str) -> Iterator[tuple[NodeProto, list[int]]]:
    """Yield each node that reads the values of an input, with the places of the node's inputs that read them.

    Nodes behind operators that only move the values count, too.
    """
    moved = {name}
    for node in graph.node:  # sorted: what a node reads stands before it
        places = [place for place, read in enumerate(node.input) if read in moved]
        if not places:
            continue
        if node.op_type in _KEEPS_VALUES and (places[0] == 0 or node.op_type == "Concat"):
            moved.update(node.output)
        yield node, places


def smallest_limits(graph: GraphProto, known: Mapping[str, int]) -> dict[str, int]:
    """Return limits that every table allows: the `known` limits, and 1 for each further integer input.

    The values of such a further input are 0.
    """
    stored = {tensor.name for tensor in graph.initializer}
    integers = (one for one in graph.input if one.type.tensor_type.elem_type in INTEGERS and one.name not in stored)
    return {one.name: 1 for one in integers} | dict(known)


def _limit(
    node: NodeProto, places: list[int], sizes: Mapping[str, tuple[int, ...]], stored: Mapping[str, TensorProto]
) -> int | None:
    """Return the number that the indices at `places` of a node must stay below.

    Return None where these inputs are no indices, or the table is of unknown length.
    """
    if node.op_type == "OneHot" and 0 in places:
        depth = stored.get(node.input[1])
        return None if depth is None else int(np.ravel(numpy_helper.to_array(depth))[0])
    if 1 not in places:
        return None
    table = sizes.get(node.input[0])
    if node.op_type in ("Gather", "GatherElements", "ScatterElements", "Scatter"):
        axis = next((one.i for one in node.attribute if one.name == "axis"), 0)
        return _known(table[axis : axis + 1 or None]) if table and -len(table) <= axis < len(table) else None
    return _known(table) if table and node.op_type in ("GatherND", "ScatterND") else None


def _known(sides: Sequence[int]) -> int | None:
    """Return the smallest of some sizes; None where a size is free."""
    return min(sides) if min(sides) >= 0 else None
