"""Hostile models: bytes that are uploaded as an ONNX file, and what has to come of each.

`Refused`: the upload or its job fails with a sentence that has the word; `Taken`: odd, but no fault, so it is imported.
Whichever it is, the box serves on, and nothing of a refused model is left.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tests.attacks.expected import Expected, Refused, Taken

FLOAT = TensorProto.FLOAT
INT64 = TensorProto.INT64
GIB = 2**30


def unary(
    *nodes: onnx.NodeProto, weights: Sequence[TensorProto] = (), shape: Sequence[Any] = (1, 4)
) -> onnx.GraphProto:
    """A graph from x to y."""
    ends = [helper.make_tensor_value_info(name, FLOAT, shape) for name in "xy"]
    return helper.make_graph(list(nodes), "g", ends[:1], ends[1:], list(weights))


def node(op: str, inputs: str = "x", outputs: str = "y", **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(op, inputs.split(), outputs.split(), **attributes)


def whole(graph: onnx.GraphProto, *, opset: int | None = 17, ir: int = 10, domain: str = "") -> onnx.ModelProto:
    opsets = [] if opset is None else [helper.make_opsetid("", opset)]
    if domain:
        opsets.append(helper.make_opsetid(domain, 1))
    model = onnx.ModelProto(ir_version=ir, graph=graph)
    model.opset_import.extend(opsets)
    return model


def packed(graph: onnx.GraphProto, **about: Any) -> bytes:
    return whole(graph, **about).SerializeToString()


def constant(name: str, values: Any, kind: type = np.int64) -> TensorProto:
    return numpy_helper.from_array(np.array(values, kind), name)


GOOD = packed(unary(node("Relu")))


def _external(**entries: str) -> bytes:
    weight = TensorProto(name="w", data_type=FLOAT, dims=[4], data_location=TensorProto.EXTERNAL)
    for key, value in entries.items():
        weight.external_data.add(key=key, value=value)
    return packed(unary(node("Add", "x w"), weights=[weight]))


def _grown(op: str, *parts: TensorProto, inputs: str, **attributes: Any) -> bytes:
    """A few bytes that ask for very much memory."""
    return packed(unary(node(op, inputs, **attributes), weights=parts, shape=[None] * 2))


def _nested(depth: int) -> bytes:
    """If in If in If: deeper than the library itself would write, so it is written by hand."""
    graph = unary(node("Relu")).SerializeToString()
    for _ in range(depth):
        attribute = _field(1, b"then_branch") + _field(6, graph) + b"\xa0\x01\x05"  # its type is a graph
        graph = _field(1, _field(1, b"c") + _field(2, b"y") + _field(4, b"If") + _field(5, attribute))
    return _field(7, graph) + _field(8, b"\x10\x11") + b"\x08\x0a"  # with opset 17, IR version 10


def _field(number: int, body: bytes) -> bytes:
    """A field of a protobuf message that holds bytes."""
    length, head = len(body), bytes([number << 3 | 2])
    while length > 127:
        head, length = head + bytes([length & 127 | 128]), length >> 7
    return head + bytes([length]) + body


def _chain(count: int) -> bytes:
    """So many nodes in a row."""
    nodes = [node("Relu", f"t{at}" if at else "x", f"t{at + 1}") for at in range(count)]
    return packed(unary(*nodes, node("Relu", f"t{count}", "y")))


def _raw(change: Callable[[onnx.ModelProto], None]) -> bytes:
    model = whole(unary(node("Add", "x w"), weights=[constant("w", [1, 2, 3, 4], np.float32)]))
    change(model)
    return model.SerializeToString()


def _set_dims(*dims: int) -> bytes:
    def change(model: onnx.ModelProto) -> None:
        del model.graph.initializer[0].dims[:]
        model.graph.initializer[0].dims.extend(dims)

    return _raw(change)


def _renamed(name: str) -> bytes:
    """The good model with another name for its input."""
    return packed(
        helper.make_graph(
            [helper.make_node("Relu", [name], ["y"])],
            "g",
            [helper.make_tensor_value_info(name, FLOAT, [1, 4])],
            [helper.make_tensor_value_info("y", FLOAT, [1, 4])],
        )
    )


def _bytes_in_name() -> bytes:
    """A name that is no UTF-8; the library does not write it, so it is written by hand."""
    return _renamed("MARKMARK").replace(b"MARKMARK", b"MA\xff\xfeMARK"[:8])


def _recursive_function() -> bytes:
    model = whole(unary(helper.make_node("F", ["x"], ["y"], domain="d")), domain="d")
    body = [helper.make_node("F", ["a"], ["b"], domain="d")]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("d", 1)]
    model.functions.append(helper.make_function("d", "F", ["a"], ["b"], body, opsets))
    return model.SerializeToString()


def _loop(trips: Any = None) -> bytes:
    """A Loop of so many rounds, without end where none are given, each of which doubles a value."""
    step = helper.make_tensor_value_info("i", INT64, [])
    go, again = (helper.make_tensor_value_info(name, TensorProto.BOOL, []) for name in ("go", "again"))
    before, after = (helper.make_tensor_value_info(name, FLOAT, [1, 4]) for name in ("v", "w"))
    nodes = [node("Identity", "go", "again"), node("Add", "v v", "w")]
    body = helper.make_graph(nodes, "body", [step, go, before], [again, after])
    weights = [constant("c", True, bool)] + ([] if trips is None else [constant("n", trips)])
    loop = helper.make_node("Loop", ["" if trips is None else "n", "c", "x"], ["y"], body=body)
    return packed(unary(loop, weights=weights))


def _with_props(**props: str) -> bytes:
    model = whole(unary(node("Relu")))
    for key, value in props.items():
        model.metadata_props.add(key=key, value=value)
    return model.SerializeToString()


def _of_type(kind: onnx.TypeProto) -> bytes:
    graph = unary(node("Identity"))
    for value in (*graph.input, *graph.output):
        value.type.CopyFrom(kind)
    return packed(graph)


def _integers(op: str, left: int, right: int) -> bytes:
    """Two constants that a rewriting importer computes at once."""
    weights = [constant("a", [left], np.int32), constant("b", [right], np.int32)]
    cast = node("Cast", "q", "f", to=FLOAT)
    attributes = {"fmod": 0} if op == "Mod" else {}
    return packed(unary(node(op, "a b", "q", **attributes), cast, node("Add", "x f", "y"), weights=weights))


FILES: Mapping[str, tuple[Callable[[], bytes], Expected]] = {
    # no model at all
    "empty": (lambda: b"", Refused()),
    "garbage": (lambda: random.Random(1).randbytes(50_000), Refused()),
    "zeros": (lambda: bytes(100_000), Refused()),
    "ones": (lambda: b"\xff" * 100_000, Refused()),
    "text": (lambda: b"hello\n" * 1000, Refused()),
    "page": (lambda: b"<!doctype html><script>alert(1)</script>", Refused()),
    "picture": (lambda: b"\x89PNG\r\n\x1a\n" + bytes(1000), Refused()),
    "pickle": (lambda: b"\x80\x04cos\nsystem\n(S'id'\ntR.", Refused()),
    "program": (lambda: b"\x7fELF\x02\x01\x01" + bytes(1000), Refused()),
    "truncated": (lambda: GOOD[:-9], Refused()),
    "one-byte": (lambda: b"\x08", Refused()),
    "length-beyond-end": (lambda: b"\x3a\xff\xff\xff\xff\x0f", Refused()),
    "endless-varint": (lambda: b"\x08" + b"\xff" * 20, Refused()),
    "group-bomb": (lambda: b"\x3b" * 10_000, Refused()),
    # structure
    "no-graph": (lambda: onnx.ModelProto(ir_version=10).SerializeToString(), Refused()),
    "no-nodes": (lambda: packed(helper.make_graph([], "g", [], [])), Refused()),
    "no-outputs": (lambda: packed(helper.make_graph([node("Relu")], "g", [], [])), Refused()),
    "missing-tensor": (lambda: packed(unary(node("Add", "x ghost"))), Refused()),
    "cyclic": (
        lambda: packed(unary(node("Add", "x b", "a"), node("Relu", "a", "b"), node("Relu", "a", "y"))),
        Refused(),
    ),
    "self-cycle": (lambda: packed(unary(node("Add", "x y", "y"))), Refused()),
    "output-made-twice": (lambda: packed(unary(node("Relu"), node("Sigmoid"))), Refused()),
    "recursive-function": (_recursive_function, Refused()),
    "deep-if": (lambda: _nested(150), Refused()),
    "hundred-thousand-nodes": (lambda: _chain(100_000), Refused()),
    "million-nodes": (lambda: _chain(1_000_000), Refused()),
    # versions and operators
    "no-opset": (lambda: packed(unary(node("Relu")), opset=None), Refused()),
    "opset-0": (lambda: packed(unary(node("Relu")), opset=0), Refused()),
    "opset-of-the-future": (lambda: packed(unary(node("Relu")), opset=10**9), Refused()),
    "opset-below-zero": (lambda: packed(unary(node("Relu")), opset=-1), Refused()),
    "ir-0": (lambda: packed(unary(node("Relu")), ir=0), Taken()),
    "ir-of-the-future": (lambda: packed(unary(node("Relu")), ir=10**9), Refused()),
    "unknown-operator": (lambda: packed(unary(node("Teleport"))), Refused()),
    "foreign-operator": (
        lambda: packed(unary(helper.make_node("Steal", ["x"], ["y"], domain="com.evil")), domain="com.evil"),
        Refused(),
    ),
    "attribute-of-the-wrong-kind": (lambda: packed(unary(node("LeakyRelu", alpha="much"))), Refused()),
    # shapes and weights
    "dimension-below-zero": (lambda: packed(unary(node("Relu"), shape=(-5, 4))), Taken()),
    "dimension-beyond-memory": (lambda: packed(unary(node("Relu"), shape=(2**40, 4))), Refused()),
    "dimension-beyond-64-bits-product": (lambda: packed(unary(node("Relu"), shape=(2**33, 2**33))), Refused()),
    "thousand-dimensions": (lambda: packed(unary(node("Relu"), shape=(1,) * 1000)), Refused()),
    "weight-dims-beyond-bytes": (lambda: _set_dims(10**6), Refused()),
    "weight-dims-below-bytes": (lambda: _set_dims(1), Refused()),
    "weight-dims-below-zero": (lambda: _set_dims(-4), Refused()),
    "weight-dims-overflow": (lambda: _set_dims(2**32, 2**32), Refused()),
    "weight-of-unknown-type": (lambda: _raw(lambda m: setattr(m.graph.initializer[0], "data_type", 99)), Refused()),
    "weight-of-wrong-type": (lambda: _raw(lambda m: setattr(m.graph.initializer[0], "data_type", INT64)), Refused()),
    # files of the box
    "external-absolute": (lambda: _external(location="/etc/passwd", offset="0", length="16"), Refused()),
    "external-above": (lambda: _external(location="../../../../etc/passwd", length="16"), Refused()),
    "external-inside-above": (lambda: _external(location="a/../../x", length="16"), Refused()),
    "external-missing": (lambda: _external(location="weights.bin", length="16"), Refused()),
    "external-itself": (lambda: _external(location="model.onnx", offset="0", length="16"), Refused()),
    "external-offset-below-zero": (lambda: _external(location="w", offset="-16", length="16"), Refused()),
    "external-offset-no-number": (lambda: _external(location="w", offset="²", length="9" * 5000), Refused()),
    "external-length-huge": (lambda: _external(location="w", offset="0", length=str(2**62)), Refused()),
    "external-without-place": (lambda: _external(offset="0"), Refused()),
    "external-device": (lambda: _external(location="/dev/zero", length=str(GIB)), Refused()),
    "external-nul": (lambda: _external(location="w\0/etc/passwd", length="16"), Refused()),
    # memory and time at import
    "constant-of-ten-gb": (lambda: _grown("ConstantOfShape", constant("s", [10 * GIB // 4]), inputs="s"), Refused()),
    "expand": (lambda: _grown("Expand", constant("s", [2**20, 2**20]), inputs="x s"), Refused()),
    "tile": (lambda: _grown("Tile", constant("s", [2**20, 2**20]), inputs="x s"), Refused()),
    "reshape": (lambda: _grown("Reshape", constant("s", [2**40, 1]), inputs="x s"), Refused()),
    "pad": (lambda: _grown("Pad", constant("p", [0, 0, 2**20, 2**20]), inputs="x p"), Refused()),
    "range": (
        lambda: packed(
            unary(
                node("Range", "a b c", "r"),
                node("Cast", "r", "y", to=FLOAT),
                weights=[constant("a", 0), constant("b", 2**40), constant("c", 1)],
                shape=[None],
            )
        ),
        Refused(),
    ),
    "endless-loop": (_loop, Refused("inspecting the file took")),
    "long-loop": (lambda: _loop(2**62), Refused("inspecting the file took")),
    "division-trap": (lambda: _integers("Div", -(2**31), -1), Refused()),
    "division-by-zero": (lambda: _integers("Div", 1, 0), Refused()),
    "modulo-trap": (lambda: _integers("Mod", -(2**31), -1), Refused()),
    "modulo-by-zero": (lambda: _integers("Mod", 1, 0), Refused()),
    # names and texts
    "name-no-utf8": (_bytes_in_name, Refused()),
    "name-with-nul": (lambda: _renamed("a\0b"), Taken()),
    "name-of-a-megabyte": (lambda: _renamed("n" * 2**20), Refused("longer than 1024")),
    "name-empty": (lambda: _renamed(""), Refused()),
    "name-like-a-path": (lambda: _renamed("../../etc/passwd"), Taken()),
    "name-like-markup": (lambda: _renamed("<script>alert(1)</script>"), Taken()),
    "name-with-escapes": (lambda: _renamed("\x1b[2J\x1b[31m"), Taken()),
    "props-deep": (lambda: _with_props(names="[" * 100_000), Taken()),
    "props-code": (lambda: _with_props(names="__import__('os').system('id')"), Taken()),
    "props-huge": (lambda: _with_props(names="x" * 2**22), Refused("metadata_props")),
    # kinds of values
    "sequence-in-and-out": (
        lambda: _of_type(helper.make_sequence_type_proto(helper.make_tensor_type_proto(FLOAT, [1]))),
        Refused(),
    ),
    "optional-in-and-out": (
        lambda: _of_type(helper.make_optional_type_proto(helper.make_tensor_type_proto(FLOAT, [1]))),
        Refused(),
    ),
    "type-left-out": (lambda: _of_type(onnx.TypeProto()), Refused()),
    "type-unknown": (lambda: _of_type(helper.make_tensor_type_proto(77, [1])), Refused()),
    "text-in-and-out": (lambda: _of_type(helper.make_tensor_type_proto(TensorProto.STRING, [1])), Taken()),
    "complex-numbers": (lambda: _of_type(helper.make_tensor_type_proto(TensorProto.COMPLEX64, [1])), Refused()),
}
