"""The review stage: whether the kernels of a stored graph can trap, run on, or grow with values, and whether rows of
several requests may share a run (`stages.rows`). Runs in a child.

Every tensor is followed as one of three kinds: a constant; computed from constants and the shapes of the inputs; or
dependent on values. What decides the size of a result must not depend on values. Where it depends on the shapes, the
largest allowed shape need not be the costliest, so the build is harmless only if every allowed shape has been run
(`Reviewed.unless_all_run`), as it is where no axis is free or only a small batch is.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from pathlib import Path

import numpy as np
import onnx
from onnx import AttributeProto, GraphProto, NodeProto, TensorProto, numpy_helper

from appliance.domain.errors import BadModel
from appliance.modelstore.orders import Reviewed, ReviewOrder
from appliance.modelstore.stages import graph as facts
from appliance.modelstore.stages.normalise import with_shapes
from appliance.modelstore.stages.operators import KNOWN_HAZARDS, OPERATORS, Condition, Operator
from appliance.modelstore.stages.rows import dependence

FLOATING = frozenset({TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE, TensorProto.BFLOAT16})
HAZARDS_MAX = 8
"""Sentences told of one graph; a hundred Loops are no more hazardous than one."""
SHAPE_READERS = frozenset({"Shape", "Size"})


class Kind(IntEnum):
    """What a tensor depends on; a result is of the highest kind among its inputs."""

    CONSTANT = 0
    SHAPES = 1
    VALUES = 2


@dataclass(slots=True)
class _Scope:
    """What is known of the tensors that a graph sees, outer ones included."""

    kinds: dict[str, Kind]
    constants: dict[str, TensorProto]
    types: dict[str, int]
    shapes: dict[str, tuple[int, ...]]

    def inside(self) -> "_Scope":
        return _Scope(dict(self.kinds), dict(self.constants), dict(self.types), dict(self.shapes))

    def kind(self, name: str) -> Kind:
        return self.kinds.get(name, Kind.VALUES) if name else Kind.CONSTANT


@dataclass(slots=True)
class _Review:
    """Goes through the nodes in their order and collects sentences."""

    folder: Path
    """Where weights lie that are stored apart."""
    hazards: dict[str, None] = field(default_factory=dict)
    unless_all_run: dict[str, None] = field(default_factory=dict)

    def graph(self, graph: GraphProto, scope: _Scope) -> None:
        given = {value.name for value in graph.input}  # a stored default that a caller may replace is no constant
        for tensor in graph.initializer:
            if tensor.name in given:
                continue
            scope.kinds[tensor.name] = Kind.CONSTANT
            scope.constants[tensor.name] = tensor
            scope.types[tensor.name] = tensor.data_type
            scope.shapes[tensor.name] = tuple(tensor.dims)
        for sparse in graph.sparse_initializer:
            scope.kinds[sparse.values.name] = Kind.CONSTANT
        for value in (*graph.input, *graph.value_info, *graph.output):
            if value.type.tensor_type.elem_type:
                scope.types.setdefault(value.name, value.type.tensor_type.elem_type)
            if value.type.tensor_type.HasField("shape"):
                scope.shapes.setdefault(value.name, facts.dims(value))
        for node in graph.node:
            self.node(node, scope)

    def node(self, node: NodeProto, scope: _Scope) -> None:
        if TensorProto.STRING in map(scope.types.get, (*node.input, *node.output)) or _is_text(node):
            self.hazards[f"{node.op_type}: it handles text, which is of any length"] = None
        kind = max((scope.kind(name) for name in node.input), default=Kind.CONSTANT)
        bodies = list(facts.subgraphs(node))
        domain = "" if node.domain == "ai.onnx" else node.domain
        operator = OPERATORS.get((domain, node.op_type))
        if domain == "" and node.op_type == "Constant":
            operator, kind = None, Kind.CONSTANT
        elif bodies:
            kind = self._bodies(node, bodies, scope, kind)
        elif operator is None:
            kind = self._unlisted(node, domain, kind)
        elif node.op_type == "Cast" and _attribute(node, "to", 0) == TensorProto.STRING:
            self.hazards["it makes text, which is of any length"] = None
        elif kind is Kind.VALUES:
            self._listed(node, operator, scope)
        elif kind is Kind.SHAPES:  # computes the same at every run of one shape
            apart = _Review(self.folder)
            apart._listed(node, operator, scope)
            self.unless_all_run |= apart.hazards | apart.unless_all_run
        if node.op_type in SHAPE_READERS and domain == "":
            kind = min(kind, Kind.SHAPES)
        for name in node.output:
            scope.kinds[name] = kind
            scope.constants.pop(name, None)

    def _unlisted(self, node: NodeProto, domain: str, kind: Kind) -> Kind:
        words = KNOWN_HAZARDS.get(node.op_type) if domain == "" else None
        name = f"{domain}.{node.op_type}" if domain else node.op_type
        self.hazards[f"{name}: {words or 'this operator was not reviewed'}"] = None
        return Kind.VALUES

    def _bodies(self, node: NodeProto, bodies: Sequence[GraphProto], scope: _Scope, kind: Kind) -> Kind:
        """An If whose condition does not depend on values takes the branch that was measured; loops stay hazards."""
        if node.op_type != "If" or node.domain not in ("", "ai.onnx") or kind is Kind.VALUES:
            return self._unlisted(node, node.domain if node.domain != "ai.onnx" else "", kind)
        if kind is Kind.SHAPES:
            self.unless_all_run["If: which of its branches runs depends on the shapes"] = None
        made: Kind = kind
        for body in bodies:
            inner = scope.inside()
            self.graph(body, inner)
            made = max((made, *(inner.kind(value.name) for value in body.output)))
        return made

    def _listed(self, node: NodeProto, operator: Operator, scope: _Scope) -> None:
        for place in operator.shaping:
            name = node.input[place] if place < len(node.input) else ""
            kind = scope.kind(name)
            if kind is Kind.VALUES:
                self.hazards[f"{node.op_type}: what its input {place + 1} says depends on values"] = None
            elif kind is Kind.SHAPES:
                self.unless_all_run[f"{node.op_type}: what its input {place + 1} says depends on the shapes"] = None
        if operator.condition is not None:
            _CONDITIONS[operator.condition](self, node, scope)

    # -- conditions ----------------------------------------------------------------------------------------------------

    def integers_divide(self, node: NodeProto, scope: _Scope) -> None:
        if scope.types.get(node.input[0]) in FLOATING:
            if node.op_type == "Mod":
                self.hazards["Mod: of floating point it takes as long as the values say"] = None
            return
        if node.op_type == "ReduceMean":
            self.unless_all_run["ReduceMean: the mean of no integers divides by 0"] = None
            return
        divisor = scope.constants.get(node.input[1])
        values = None if divisor is None else self._array(divisor)
        if values is None or np.any((values == 0) | (values == -1)):
            self.hazards[f"{node.op_type}: integers are divided by what may be 0 or -1"] = None

    def never_empty(self, node: NodeProto, scope: _Scope) -> None:
        self.unless_all_run[f"{node.op_type}: an empty axis ends the process"] = None

    def slices(self, node: NodeProto, scope: _Scope) -> None:
        starts, ends, steps = (self._numbers(node, place, scope) for place in (1, 2, 4))
        is_stepless = steps is None and _has_input(node, 4)
        if starts is None or ends is None or is_stepless:
            if all(scope.kind(name) is Kind.CONSTANT for name in node.input[1:]):  # others are told of already
                self.unless_all_run["Slice: its bounds are computed, or attributes of an old operator set"] = None
            return
        steps = steps if steps is not None and len(steps) else [1] * len(starts)
        for start, end, step in zip(starts, ends, steps, strict=False):
            if step < 0:
                start, end = end, start
            is_open = (step > 0 and end >= _FAR) or (step < 0 and start <= -_FAR)
            if not is_open and start < 0 <= end:
                self.unless_all_run["Slice: from an end of one sign to one of the other"] = None

    def squeezes(self, node: NodeProto, scope: _Scope) -> None:
        if not _has_input(node, 1) and not any(attribute.name == "axes" for attribute in node.attribute):
            self.unless_all_run["Squeeze: without axes, its result depends on the sizes"] = None

    def splits(self, node: NodeProto, scope: _Scope) -> None:
        shape = scope.shapes.get(node.input[0], ())
        axis = _attribute(node, "axis", 0)
        is_fixed = -len(shape) <= axis < len(shape) and shape[axis] >= 0
        if not _has_input(node, 1) and _attribute(node, "num_outputs", 0) and not is_fixed:
            self.unless_all_run["Split: the last part may grow as the axis shrinks"] = None

    def resizes(self, node: NodeProto, scope: _Scope) -> None:
        policy = next((a.s for a in node.attribute if a.name == "keep_aspect_ratio_policy"), b"stretch")
        if policy != b"stretch":
            self.unless_all_run["Resize: where the aspect is kept, a smaller input may give a larger result"] = None

    def _numbers(self, node: NodeProto, place: int, scope: _Scope) -> list[int] | None:
        name = node.input[place] if place < len(node.input) else ""
        tensor = scope.constants.get(name)
        array = None if tensor is None else self._array(tensor)
        return None if array is None else [int(one) for one in array.ravel()]

    def _array(self, tensor: TensorProto) -> np.ndarray | None:
        try:
            return np.asarray(numpy_helper.to_array(tensor, str(self.folder)))
        except (OSError, ValueError, TypeError, onnx.checker.ValidationError):
            return None


_FAR = 2**31 - 1
"""How exporters write "to the end"."""
_CONDITIONS: Mapping[Condition, Callable[[_Review, NodeProto, _Scope], None]] = {
    Condition.INTEGERS_DIVIDE: _Review.integers_divide,
    Condition.NEVER_EMPTY: _Review.never_empty,
    Condition.SLICES: _Review.slices,
    Condition.SQUEEZES: _Review.squeezes,
    Condition.SPLITS: _Review.splits,
    Condition.RESIZES: _Review.resizes,
}


def review(order: ReviewOrder, report: Callable[[float, str], None]) -> Reviewed:
    """What speaks against running the file at `order.source` inside the service. Raises: BadModel."""
    report(0.95, "reviewing the operators")
    try:
        model = onnx.load(order.source, load_external_data=False)
    except Exception as error:  # protobuf's errors share no class
        raise BadModel(reason=f"it cannot be read: {type(error).__name__}") from error
    found = reviewed(model, Path(order.source).parent)
    report(0.97, "following the rows")
    return replace(found, dependence=dependence(order))


def reviewed(model: onnx.ModelProto, folder: Path) -> Reviewed:
    """As `review`, of a graph in memory; its weights may lie in `folder`."""
    del model.graph.value_info[:]  # what a file says of its inner tensors may be a lie; what is inferred is not
    model = with_shapes(model)
    found = _Review(folder)
    if model.functions:
        found.hazards["it defines operators of its own"] = None
    scope = _Scope({}, {}, {}, {})
    for value in model.graph.input:
        scope.kinds[value.name] = Kind.VALUES
        if not value.type.HasField("tensor_type"):
            found.hazards[f"input {value.name} is no tensor"] = None
        elif value.type.tensor_type.elem_type == TensorProto.STRING:
            found.hazards[f"input {value.name} is text, which is of any length"] = None
    found.graph(model.graph, scope)
    return Reviewed(tuple(found.hazards)[:HAZARDS_MAX], tuple(found.unless_all_run)[:HAZARDS_MAX])


def _is_text(node: NodeProto) -> bool:
    """Whether a Constant says some itself; stored tensors have types."""
    return any(attribute.name in ("value_string", "value_strings") for attribute in node.attribute)


def _has_input(node: NodeProto, place: int) -> bool:
    """An empty word stands for an input that is left out."""
    return place < len(node.input) and node.input[place] != ""


def _attribute(node: NodeProto, name: str, otherwise: int) -> int:
    return next((int(a.i) for a in node.attribute if a.name == name and a.type == AttributeProto.INT), otherwise)
