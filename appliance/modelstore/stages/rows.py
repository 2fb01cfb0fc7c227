"""Find out from the graph whether the rows of a batch are computed apart from one another.

The axis along which the rows lie is followed from the first axis of each input, operator by operator, to the outputs.
Trial runs alone do not show it: a network may look at the other rows only when their values are large. Whatever is not
understood here counts as dependent. Control flow over rows does, and so do operators with an unknown name.

Shapes are not inferred but seen: the graph is run with several numbers of rows, and tells the shape of each tensor. An
axis holds the rows when its size is a multiple of their number and its leading part counts them; no other axis of such
a tensor may change with them.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from math import prod

import numpy as np
import onnx
from onnx import GraphProto, NodeProto, TensorProto, helper, numpy_helper

from appliance.domain.errors import BadModel
from appliance.modelstore.orders import Extent, ReviewOrder
from appliance.modelstore.stages import graph as facts
from appliance.modelstore.stages.feeds import extents, synthetic
from appliance.modelstore.stages.running import Runner, TooSlow

COUNTS = (1, 2, 3, 4, 8)
"""Rows of the runs: what changes with their number shows, and what is the same with all of these counts as constant."""
KNOWN_ELEMENTS_MAX = 2**20
"""Of a tensor that is made of shapes alone and whose values are looked at: sizes, positions, masks."""
GRAPH_BYTES_MAX = 600 * 2**20
"""A larger graph is not copied to be looked at."""
_SHAPE_OUTPUT = "shape of "
_VALUE_OUTPUT = "value of "

Feeds = Callable[[int], Mapping[str, np.ndarray]]
"""Number of rows → inputs of a trial run."""


class Dependent(Exception):
    """Rows influence one another, or nobody can say that they do not; the message says where."""


@dataclass(frozen=True, slots=True)
class Count:
    """A tensor that depends on how many rows there are, and on nothing in them."""


State = int | Count | None
"""The axis of the rows; a `Count`; None: the same whatever the rows are."""
_COUNT = Count()


def dependence(order: ReviewOrder) -> str:
    """Return why rows of the network may influence one another, for a person; empty where the graph keeps them apart,
    and where an input has no rows.
    """
    for tensor in order.inputs:
        if tensor.name in order.task.defaults and order.axes[tensor.name][:1] != ("batch",):
            return f"input {tensor.name} has a default"
    if not all(tensor.shape[:1] == (-1,) and order.axes[tensor.name][0] == "batch" for tensor in order.inputs):
        return ""
    reason = ""
    for feeds, longer in _trials(order):
        try:
            _Rows(onnx.load(order.source), feeds).follow()
            with suppress(BadModel):  # it may be made for one size
                if longer is not None:
                    _Rows(onnx.load(order.source), longer).follow()
        except Dependent as found:
            return str(found)
        except TooSlow as error:
            return f"it does not run with several rows: {error.reason}"
        except BadModel as error:  # it was made for other sizes, or smaller numbers
            reason = f"it does not run with several rows: {error.reason}"
        else:
            return ""
    return reason


def _trials(order: ReviewOrder) -> Iterator[tuple[Feeds, Feeds | None]]:
    """Ways to make inputs, the likeliest first, with zeros for indices into tables of any length; and longer ones where
    further axes are free: what is right for one size need not be for another.
    """
    sizes = extents(order.inputs, order.axes, order.task) if order.trial is None else [order.trial]
    is_free = any(side < 0 for tensor in order.inputs for side in tensor.shape[1:])
    for extent in sizes:
        more = replace(extent, length=2 * extent.length, width=extent.width + 64) if is_free else None
        for is_zero in (False, True):
            longer = None if more is None else partial(_feeds, order, more, is_zero)
            yield partial(_feeds, order, extent, is_zero), longer


def _feeds(order: ReviewOrder, extent: Extent, is_zero: bool, count: int) -> Mapping[str, np.ndarray]:
    """Inputs of a trial run with so many rows; `is_zero`: whole numbers are 0."""
    made = synthetic(order.inputs, order.axes, order.task, replace(extent, batch=count))
    return {name: one * 0 if is_zero and one.dtype.kind in "iu" else one for name, one in made.items()}


@dataclass(slots=True)
class _Seen:
    """Shapes of all tensors at the top level, with each number of rows, and values of those that shapes make."""

    shapes: dict[str, tuple[tuple[int, ...], ...]] = field(default_factory=dict)
    values: dict[str, tuple[np.ndarray, ...]] = field(default_factory=dict)


def _seen(model: onnx.ModelProto, feeds: Feeds) -> _Seen:
    """Run the graph once for each number of rows, with all shapes as its outputs, which `model` has from then on.

    Raises: BadModel; Dependent for a graph that is too large.
    """
    if model.ByteSize() > GRAPH_BYTES_MAX:
        raise Dependent("the network is too large to be looked at")
    graph = model.graph
    stored = {tensor.name for tensor in graph.initializer}
    made = [name for node in graph.node for name in node.output if name]
    names = [*(value.name for value in graph.input if value.name not in stored), *made]
    known = _made_of_shapes(graph)
    wanted = {_SHAPE_OUTPUT + name: ("Shape", name) for name in names}
    wanted |= {_VALUE_OUTPUT + name: ("Identity", name) for name in names if name in known}
    graph.node.extend(helper.make_node(kind, [name], [output]) for output, (kind, name) in wanted.items())
    del graph.output[:]
    graph.output.extend(helper.make_empty_tensor_value_info(output) for output in wanted)
    runner = Runner(model.SerializeToString())
    runs = [runner.run(feeds(count)) for count in COUNTS]
    found = _Seen()
    for name in names:
        found.shapes[name] = tuple(tuple(int(side) for side in run[_SHAPE_OUTPUT + name]) for run in runs)
        if name in known and runs[-1][_VALUE_OUTPUT + name].size <= KNOWN_ELEMENTS_MAX:
            found.values[name] = tuple(run[_VALUE_OUTPUT + name] for run in runs)
    return found


def _made_of_shapes(graph: GraphProto) -> set[str]:
    """Names of tensors that are computed from shapes alone."""
    found: set[str] = set()
    known = {tensor.name for tensor in graph.initializer}
    for node in graph.node:
        if not _is_standard(node):
            continue
        if node.op_type == "Constant":
            known.update(node.output)
        elif node.op_type in _SHAPE_READERS or (
            node.op_type in _OF_SHAPES and all(not name or name in found or name in known for name in node.input)
        ):
            found.update(node.output)
    return found


_SHAPE_READERS = frozenset({"Shape", "Size"})
_OF_SHAPES = frozenset(
    "Add And Cast Ceil Concat ConstantOfShape Div Equal Expand Floor Gather Greater GreaterOrEqual Identity Less "
    "LessOrEqual Max Min Mod Mul Neg Not Or Range ReduceMax ReduceMin ReduceProd ReduceSum Reshape Slice Split Sqrt "
    "Squeeze Sub Unsqueeze Where".split()
)


class _Rows:
    """Follows the axis of the rows through one graph."""

    def __init__(self, model: onnx.ModelProto, feeds: Feeds) -> None:
        graph = model.graph
        self.nodes = _needed(graph)
        self.inputs = [value.name for value in graph.input]
        self.outputs = [value.name for value in graph.output]
        versions = [one.version for one in model.opset_import if one.domain in ("", "ai.onnx")]
        if len(versions) != 1:
            raise Dependent("it declares several operator sets")
        self.opset = versions[0]
        self.constants = {tensor.name: tensor for tensor in graph.initializer}
        self.states: dict[str, State] = dict.fromkeys(self.constants)
        self.seen = _seen(model, feeds)
        for name, tensor in self.constants.items():
            self.seen.shapes[name] = (tuple(tensor.dims),) * len(COUNTS)

    def follow(self) -> None:
        """Raises: Dependent."""
        for name in self.inputs:
            if name in self.constants:
                raise Dependent(f"input {name} has a default")
            self.states[name] = self._along(name, 0, f"input {name}")
        for node in self.nodes:
            for name, state in zip(node.output, self._node(node), strict=False):
                if name:
                    self.states[name] = self._along(name, state, node.op_type) if isinstance(state, int) else state
        for name in self.outputs:
            if self.states[name] != 0 or self.side(name, 0) != COUNTS:
                raise Dependent(f"output {name} does not hold a row for each row of the inputs")

    # -- one operator --------------------------------------------------------------------------------------------------

    def _node(self, node: NodeProto) -> Sequence[State]:
        """Return the states of a node's outputs."""
        count = len(node.output)
        if node.op_type in _SHAPE_READERS and _is_standard(node):
            return [self._counted(node.output[0])] if self.state(node.input[0]) is not None else [None]
        states = [self.state(name) for name in (*node.input, *facts.captured(node)) if name]
        if all(state is None for state in states):
            if node.op_type == "Constant" and _is_standard(node):
                self._keep_constant(node)
            if node.op_type in _RANDOM:
                raise Dependent(f"{node.op_type} draws numbers for all rows at once")
            return [None] * count
        if next(facts.subgraphs(node), None) is not None:
            raise Dependent(f"{node.op_type} is control flow over rows")
        is_known = all(name in self.seen.values for name in node.output)
        if is_known or all(state is None or isinstance(state, Count) for state in states):
            return [self._made_of_counts(node, name) for name in node.output]
        rule = _RULES.get((node.domain if node.domain != "ai.onnx" else "", node.op_type))
        if rule is None:
            raise Dependent(f"{node.op_type} is not known to keep rows apart")
        found = rule(self, node)
        return found if isinstance(found, list) else [found] * count

    def _counted(self, name: str) -> State:
        """A tensor of sizes: the same whatever the number of rows is, or not."""
        values = self.seen.values.get(name)
        if values is not None and all(np.array_equal(values[0], other) for other in values[1:]):
            return None
        return _COUNT

    def _made_of_counts(self, node: NodeProto, name: str) -> State:
        """What is made of sizes alone. A tensor of equal values whose shape holds the number of rows has rows."""
        values = self.seen.values.get(name)
        if values is None and node.op_type in ("ConstantOfShape", "Expand", "Tile"):
            if node.op_type == "ConstantOfShape" or self.state(node.input[0]) is None:
                return self._scaling(name, node.op_type)
        elif values is not None:
            return _row_of_equals(values) if self._counted(name) is not None else None
        raise Dependent(f"{node.op_type} makes values of the number of rows")

    def _keep_constant(self, node: NodeProto) -> None:
        for attribute in node.attribute:
            if attribute.name == "value":
                self.constants[node.output[0]] = attribute.t
            elif attribute.name in ("value_int", "value_ints"):
                numbers = [attribute.i] if attribute.name == "value_int" else list(attribute.ints)
                shape = [] if attribute.name == "value_int" else [len(numbers)]
                self.constants[node.output[0]] = helper.make_tensor("", TensorProto.INT64, shape, numbers)

    # -- facts ---------------------------------------------------------------------------------------------------------

    def state(self, name: str) -> State:
        """The state of a tensor that an input names; an input that is left out is None."""
        return self.states[name] if name else None

    def axis(self, node: NodeProto, place: int) -> int | None:
        """The axis of the rows in an input. Raises: Dependent for one that depends on their number."""
        state = self.state(node.input[place]) if place < len(node.input) else None
        if isinstance(state, Count):
            raise Dependent(f"{node.op_type} computes with the number of rows")
        return state

    def rank(self, name: str) -> int:
        return len(self.seen.shapes[name][0])

    def side(self, name: str, axis: int) -> tuple[int, ...]:
        """The size of an axis with each number of rows."""
        return tuple(shape[axis] for shape in self.seen.shapes[name])

    def _along(self, name: str, axis: int, what: str) -> int:
        """`axis`, if its size goes with the number of rows, and no other does. Raises: Dependent."""
        others = {shape[:axis] + shape[axis + 1 :] for shape in self.seen.shapes[name]}
        if 0 <= axis < self.rank(name) and len(others) == 1 and _goes_with_rows(self.side(name, axis)):
            return axis
        raise Dependent(f"{what} does not hold a row for each row of the inputs")

    def _scaling(self, name: str, what: str) -> State:
        """The one axis of a tensor that goes with the number of rows; None: the shape does not depend on it."""
        shapes = self.seen.shapes[name]
        if all(shape == shapes[0] for shape in shapes):
            return None
        changing = [axis for axis in range(len(shapes[0])) if len(set(self.side(name, axis))) > 1]
        if len(changing) != 1 or not _goes_with_rows(self.side(name, changing[0])):
            raise Dependent(f"{what}: its shape depends on the number of rows in more than one way")
        return changing[0]

    def numbers(self, node: NodeProto, place: int, attribute: str) -> list[int] | None:
        """Axes or sizes, from an attribute of old operator sets or an input; None: not stated, or not known."""
        for one in node.attribute:
            if one.name == attribute:
                return list(one.ints) if one.type == onnx.AttributeProto.INTS else [one.i]
        name = node.input[place] if place < len(node.input) else ""
        if name in self.constants:
            return [int(one) for one in numpy_helper.to_array(self.constants[name]).ravel()]
        return None  # computed: it may be another one with inputs of another length

    def has(self, node: NodeProto, place: int) -> bool:
        return place < len(node.input) and node.input[place] != ""


def _row_of_equals(values: tuple[np.ndarray, ...]) -> State:
    """The axis of the rows, where the values are equal along it and with each number of rows; else a `Count`."""
    for axis in range(values[0].ndim):
        others = {one.shape[:axis] + one.shape[axis + 1 :] for one in values}
        if len(others) == 1 and _goes_with_rows(tuple(one.shape[axis] for one in values)):
            first = values[0].take([0], axis)
            if all(bool((one == first).all()) for one in values):
                return axis
    return _COUNT


def _goes_with_rows(sides: tuple[int, ...]) -> bool:
    """Whether a size is a multiple of the number of rows, by the same factor."""
    first = sides[0] // COUNTS[0]
    return first > 0 and all(side == first * count for side, count in zip(sides, COUNTS, strict=True))


def _int(node: NodeProto, name: str, otherwise: int) -> int:
    return next((int(one.i) for one in node.attribute if one.name == name), otherwise)


def _is_standard(node: NodeProto) -> bool:
    return node.domain in ("", "ai.onnx")


def _needed(graph: GraphProto) -> list[NodeProto]:
    """The nodes that an output depends on, in their order."""
    wanted = {value.name for value in graph.output}
    found: list[NodeProto] = []
    for node in reversed(graph.node):
        if not wanted.isdisjoint(node.output):
            found.append(node)
            wanted.update((*node.input, *facts.captured(node)))
    return found[::-1]


def _axis_of(node: NodeProto, axis: int, rank: int) -> int:
    """An axis that may be counted from the last. Raises: Dependent for one that there is not."""
    if not -rank <= axis < rank:
        raise Dependent(f"{node.op_type}: there is no axis {axis}")
    return axis % rank


def _refuse(node: NodeProto) -> Dependent:
    return Dependent(f"{node.op_type} works across rows")


# -- rules: the state of the outputs, of a node with rows in some input ------------------------------------------------

Rule = Callable[[_Rows, NodeProto], State | list[State]]


def _elementwise(rows: _Rows, node: NodeProto) -> State:
    """Broadcasting: all inputs with rows have them on the same axis, counted from the last."""
    rank = rows.rank(node.output[0])
    found: set[int] = set()
    for place, name in enumerate(node.input):
        axis = rows.axis(node, place)
        if axis is not None:
            found.add(rank - rows.rank(name) + axis)
    if len(found) != 1:
        raise _refuse(node)
    return rows._along(node.output[0], found.pop(), node.op_type)


def _first_only(rows: _Rows, node: NodeProto) -> State | list[State]:
    """Rows are the items of the first input, axis 0, and in no other input."""
    is_trained = node.op_type == "BatchNormalization" and _int(node, "training_mode", 0)  # by the mean of all items
    has_more = any(node.output[1:])  # of MaxPool places in the whole tensor, of BatchNormalization what it has learnt
    if (
        is_trained
        or has_more
        or rows.axis(node, 0) != 0
        or any(rows.axis(node, place) is not None for place in range(1, len(node.input)))
    ):
        raise _refuse(node)
    return rows._along(node.output[0], 0, node.op_type)


def _dropped(rows: _Rows, node: NodeProto) -> State | list[State]:
    """Dropout passes its input on, unless it trains."""
    if rows.has(node, 2):
        raise _refuse(node)
    return rows.axis(node, 0)


def _items(rows: _Rows, node: NodeProto) -> State:
    """Rows are the items, axis 0, of every input that has rows."""
    if any(rows.axis(node, place) not in (None, 0) for place in range(len(node.input))):
        raise _refuse(node)
    return rows._along(node.output[0], 0, node.op_type)


def _scaled(rows: _Rows, node: NodeProto) -> State:
    """Quantising: scale and zero point come from constants."""
    axis = rows.axis(node, 0)
    if axis is None or any(rows.axis(node, place) is not None for place in range(1, len(node.input))):
        raise _refuse(node)
    return axis


def _reduced(rows: _Rows, node: NodeProto) -> State:
    axis = rows.axis(node, 0)
    rank = rows.rank(node.input[0])
    axes = rows.numbers(node, 1, "axes")
    if axes is None and rows.has(node, 1):
        raise Dependent(f"{node.op_type} reduces axes that are computed")
    if not axes and _int(node, "noop_with_empty_axes", 0) == 1:
        return axis
    over = {_axis_of(node, one, rank) for one in axes} if axes else set(range(rank))
    return _left(node, axis, over)


def _best(rows: _Rows, node: NodeProto) -> State:
    """ArgMax and ArgMin."""
    return _left(node, rows.axis(node, 0), {_axis_of(node, _int(node, "axis", 0), rows.rank(node.input[0]))})


def _left(node: NodeProto, axis: int | None, over: set[int]) -> int:
    """The axis of the rows after others were reduced."""
    if axis is None or axis in over:
        raise _refuse(node)
    return axis if _int(node, "keepdims", 1) == 1 else axis - sum(one < axis for one in over)


def _softmax(rows: _Rows, node: NodeProto) -> State:
    axis, rank = rows.axis(node, 0), rows.rank(node.input[0])
    is_flat = rows.opset < 13  # then all axes from `axis` on are one
    over = _axis_of(node, _int(node, "axis", 1 if is_flat else -1), rank)
    if axis is None or axis == over or (is_flat and axis > over):
        raise _refuse(node)
    return axis


def _normalised(rows: _Rows, node: NodeProto) -> State | list[State]:
    """LayerNormalization and its kin normalise all axes from `axis` on; the last one where there is no `axis`."""
    axis = rows.axis(node, 0)
    others = [rows.axis(node, place) for place in range(1, len(node.input))]
    over = _axis_of(node, _int(node, "axis", -1), rows.rank(node.input[0]))
    if axis is None or axis >= over or any(other is not None for other in others):
        raise _refuse(node)
    return axis


def _along_one_axis(rows: _Rows, node: NodeProto) -> State | list[State]:
    """TopK, LpNormalization, Split: every output keeps the axis of the rows, which is another one."""
    axis, rank = rows.axis(node, 0), rows.rank(node.input[0])
    default = 0 if node.op_type == "Split" else -1
    if any(rows.axis(node, place) is not None for place in range(1, len(node.input))):
        raise _refuse(node)
    if axis is None or axis == _int(node, "axis", default) % rank:
        raise _refuse(node)
    return axis


def _summed_up(rows: _Rows, node: NodeProto) -> State:
    axis, over = rows.axis(node, 0), rows.numbers(node, 1, "axis")
    if axis is None or over is None or axis == over[0] % rows.rank(node.input[0]):
        raise _refuse(node)
    return axis


def _over_axes(rows: _Rows, node: NodeProto) -> State:
    """MeanVarianceNormalization."""
    axis = rows.axis(node, 0)
    axes = next((list(one.ints) for one in node.attribute if one.name == "axes"), [0, 2, 3])
    over = {_axis_of(node, one, rows.rank(node.input[0])) for one in axes}
    if axis is None or axis in over:
        raise _refuse(node)
    return axis


def _product(rows: _Rows, node: NodeProto) -> State:
    """MatMul: rows among the batch axes of either side, the rows of the left or the columns of the right matrix."""
    right_place = 1 if node.op_type != "QLinearMatMul" else 3
    rank, found = rows.rank(node.output[0]), set()
    for place in (0, right_place):
        axis, size = rows.axis(node, place), rows.rank(node.input[place])
        if axis is None:
            continue
        contracted = size - 1 if place == 0 or size == 1 else size - 2
        is_vector = size == 1 or rows.rank(node.input[right_place if place == 0 else 0]) == 1
        if axis == contracted or is_vector:
            raise _refuse(node)
        found.add(rank - size + axis)
    if any(rows.axis(node, place) is not None for place in range(len(node.input)) if place not in (0, right_place)):
        raise _refuse(node)
    if len(found) != 1:
        raise _refuse(node)
    return rows._along(node.output[0], found.pop(), node.op_type)


def _gemm(rows: _Rows, node: NodeProto) -> State:
    left = rows.axis(node, 0)
    if left is None or left == 1 - _int(node, "transA", 0) or rows.axis(node, 1) is not None:
        raise _refuse(node)
    added = rows.axis(node, 2)
    if added is not None and added != rows.rank(node.input[2]) - 2:
        raise _refuse(node)
    return rows._along(node.output[0], 0, node.op_type)


def _einsum(rows: _Rows, node: NodeProto) -> State:
    equation = next(one.s.decode() for one in node.attribute if one.name == "equation").replace(" ", "")
    if "." in equation or "->" not in equation:
        raise _refuse(node)
    sides, _, result = equation.partition("->")
    letters, others = set(), ""
    for place, side in enumerate(sides.split(",")):
        axis = rows.axis(node, place)
        if axis is None:
            others += side
        else:
            letters.add(side[axis])
            others += side[:axis] + side[axis + 1 :]
    if len(letters) != 1 or letters & set(others) or not letters <= set(result):
        raise _refuse(node)
    return result.index(letters.pop())


def _transposed(rows: _Rows, node: NodeProto) -> State:
    axis, rank = rows.axis(node, 0), rows.rank(node.input[0])
    order = next((list(one.ints) for one in node.attribute if one.name == "perm"), list(range(rank))[::-1])
    assert axis is not None, "else there are no rows"
    return order.index(axis)


def _regrouped(rows: _Rows, node: NodeProto) -> State:
    """Reshape and its kin keep the order of the elements: rows stay whole where what is before them has the same size,
    and the axis behind that is made of them.
    """
    axis = _untorn(rows, node)
    before, after = rows.seen.shapes[node.input[0]], rows.seen.shapes[node.output[0]]
    leading = {prod(shape[:axis]) for shape in before}
    for candidate in range(len(after[0])):
        is_whole = len(leading) == 1 and {prod(shape[:candidate]) for shape in after} == leading
        if is_whole and _goes_with_rows(tuple(shape[candidate] for shape in after)):
            return candidate
    raise Dependent(f"{node.op_type} tears rows apart")


def _joined(rows: _Rows, node: NodeProto) -> State:
    """Concat: all inputs have the same rows, and are joined along another axis."""
    axes = {rows.axis(node, place) for place in range(len(node.input))}
    over = _int(node, "axis", 0) % rows.rank(node.output[0])
    if len(axes) != 1 or over in axes:
        raise _refuse(node)
    return axes.pop()


def _same_side(rows: _Rows, node: NodeProto) -> State:
    """Slice, Pad, Resize: what they do to the other axes leaves the rows as they are."""
    axis = _untorn(rows, node)
    if rows.side(node.input[0], axis) != rows.side(node.output[0], axis):
        raise _refuse(node)
    if node.op_type in ("Resize", "Upsample") and not _keeps_scale(rows, node, axis):
        raise _refuse(node)
    if node.op_type == "Pad" and not _pads_none(rows, node, axis):
        raise _refuse(node)
    if node.op_type == "Slice":
        axes, steps = rows.numbers(node, 3, "axes"), rows.numbers(node, 4, "steps")
        if axes is None and rows.has(node, 3):
            raise _refuse(node)
        over = (
            list(range(rows.rank(node.input[0]))) if axes is None else [one % rows.rank(node.input[0]) for one in axes]
        )
        if rows.has(node, 4) and axis in over and (steps is None or steps[over.index(axis)] != 1):
            raise _refuse(node)
    return axis


def _keeps_scale(rows: _Rows, node: NodeProto, axis: int) -> bool:
    """Whether a Resize leaves the rows exactly: a scale near 1 would mix neighbours."""
    words = {one.name: one.s for one in node.attribute}
    if words.get("coordinate_transformation_mode") == b"tf_crop_and_resize" or "axes" in words:
        return False
    if rows.has(node, 3):  # sizes
        return words.get("keep_aspect_ratio_policy", b"stretch") == b"stretch"
    stated = next((list(one.floats) for one in node.attribute if one.name == "scales"), None)
    place = 1 if node.op_type == "Upsample" or len(node.input) == 2 else 2
    if rows.has(node, place) and node.input[place] in rows.constants:
        stated = [float(one) for one in numpy_helper.to_array(rows.constants[node.input[place]]).ravel()]
    return stated is not None and axis < len(stated) and stated[axis] == 1.0


def _pads_none(rows: _Rows, node: NodeProto, axis: int) -> bool:
    """Whether a Pad neither adds rows nor cuts any: one at the beginning and one less at the end would shift them."""
    pads, rank = rows.numbers(node, 1, "pads"), rows.rank(node.input[0])
    axes = [one % rank for one in rows.numbers(node, 3, "axes") or ()] if rows.has(node, 3) else list(range(rank))
    if pads is None or 2 * len(axes) != len(pads):
        return False
    return all(not pads[place] and not pads[place + len(axes)] for place, one in enumerate(axes) if one == axis)


def _untorn(rows: _Rows, node: NodeProto) -> int:
    """The axis of the rows in the first input, where no other input says something by the values of rows."""
    axis = rows.state(node.input[0])
    if not isinstance(axis, int) or any(isinstance(rows.state(name), int) for name in node.input[1:]):
        raise _refuse(node)
    return axis


def _gathered(rows: _Rows, node: NodeProto) -> State:
    data, indices = rows.axis(node, 0), rows.axis(node, 1)
    over = _int(node, "axis", 0) % rows.rank(node.input[0])
    if data is None and indices is not None:
        return over + indices
    if data is None or indices is not None or data == over:
        raise _refuse(node)
    return data if data < over else data + rows.rank(node.input[1]) - 1


def _gathered_each(rows: _Rows, node: NodeProto) -> State:
    """GatherElements and ScatterElements: all that has rows has them on one axis, which is not the one that indices
    name.
    """
    axes = {rows.axis(node, place) for place in range(len(node.input))}
    over = _axis_of(node, _int(node, "axis", 0), rows.rank(node.input[0]))
    axis = axes.pop()
    if axis is None or axes or axis == over:
        raise _refuse(node)
    if len({rows.side(name, axis) for name in node.input}) != 1:  # rows of several lines beside rows of one
        raise _refuse(node)
    return axis


def _gathered_deep(rows: _Rows, node: NodeProto) -> State:
    """GatherND. The first number of an index may be that of the row."""
    data = rows.axis(node, 0)
    if isinstance(rows.state(node.input[1]), Count):
        is_whole = data == 0 and not _int(node, "batch_dims", 0) and rows.side(node.input[0], 0) == COUNTS
        found = _own_row(rows.seen.values.get(node.input[1], ())) if is_whole else None
        if found is None:
            raise _refuse(node)
        return found
    indices = rows.axis(node, 1)
    shared = _int(node, "batch_dims", 0)
    if data is None and indices is not None and indices < rows.rank(node.input[1]) - 1:
        return indices
    if data is None or data != indices or data >= shared:
        raise _refuse(node)
    return data


def _own_row(indices: tuple[np.ndarray, ...]) -> int | None:
    """The axis along which the first number of each index is its own place; None: there is none."""
    for axis in range(indices[0].ndim - 1 if indices else 0):
        if all(
            one.shape[axis] == count
            and bool((one[..., 0] == np.arange(count).reshape([-1] + [1] * (one.ndim - 2 - axis))).all())
            for one, count in zip(indices, COUNTS, strict=True)
        ):
            return axis
    return None


def _repeated(rows: _Rows, node: NodeProto) -> State:
    """Expand and Tile, of rows: along other axes, or from no axis at all."""
    axis = _untorn(rows, node)
    found = rows.rank(node.output[0]) - rows.rank(node.input[0]) + axis
    if rows.side(node.input[0], axis) != rows.side(node.output[0], found):
        raise _refuse(node)
    return found


def _hot(rows: _Rows, node: NodeProto) -> State:
    axis = rows.axis(node, 0)
    added = _int(node, "axis", -1) % rows.rank(node.output[0])
    if axis is None or any(rows.axis(node, place) is not None for place in (1, 2)):
        raise _refuse(node)
    return axis if axis < added else axis + 1


def _recurrent(rows: _Rows, node: NodeProto) -> list[State]:
    """LSTM, GRU and RNN: X is [time, rows, values], states are [directions, rows, values]."""
    wanted = {0: 1, 4: 0, 5: 1, 6: 1}
    for place in range(len(node.input)):
        if rows.axis(node, place) not in (None, wanted.get(place)):
            raise _refuse(node)
    if rows.axis(node, 0) != 1 or _int(node, "layout", 0):
        raise _refuse(node)
    return [(2, 1, 1)[place] for place in range(len(node.output))]


def _triangle(rows: _Rows, node: NodeProto) -> State:
    axis = rows.axis(node, 0)
    if axis is None or axis >= rows.rank(node.input[0]) - 2 or rows.axis(node, 1) is not None:
        raise _refuse(node)
    return axis


_RANDOM = frozenset(
    {"RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike", "Multinomial", "Bernoulli"}
)
_NAMES: Mapping[Rule, str] = {
    _elementwise: "Abs Acos Acosh Add And Asin Asinh Atan Atanh BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Cast Ceil "
    "Celu Clip Cos Cosh Div Elu Equal Erf Exp Floor Gelu Greater GreaterOrEqual HardSigmoid HardSwish Identity "
    "IsInf IsNaN LeakyRelu Less LessOrEqual Log Max Mean Min Mish Mod Mul Neg Not Or PRelu Pow Reciprocal Relu Round "
    "Selu Shrink Sigmoid Sign Sin Sinh Softplus Softsign Sqrt Sub Sum Swish Tan Tanh ThresholdedRelu Where Xor",
    _first_only: "AveragePool BatchNormalization Conv ConvInteger ConvTranspose DepthToSpace GlobalAveragePool "
    "GlobalLpPool GlobalMaxPool GroupNormalization InstanceNormalization LRN LpPool MaxPool QLinearConv SpaceToDepth",
    _dropped: "Dropout",
    _items: "GridSample",
    _scaled: "DequantizeLinear QuantizeLinear",
    _reduced: "ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum "
    "ReduceSumSquare",
    _best: "ArgMax ArgMin",
    _softmax: "Hardmax LogSoftmax Softmax",
    _normalised: "LayerNormalization RMSNormalization SimplifiedLayerNormalization",
    _along_one_axis: "LpNormalization Split TopK",
    _summed_up: "CumSum",
    _over_axes: "MeanVarianceNormalization",
    _product: "MatMul MatMulInteger QLinearMatMul",
    _gemm: "Gemm",
    _einsum: "Einsum",
    _transposed: "Transpose",
    _regrouped: "Flatten Reshape Squeeze Unsqueeze",
    _joined: "Concat",
    _same_side: "Pad Resize Slice Upsample",
    _gathered: "Gather",
    _gathered_each: "GatherElements ScatterElements",
    _gathered_deep: "GatherND",
    _repeated: "Expand Tile",
    _hot: "OneHot",
    _recurrent: "GRU LSTM RNN",
    _triangle: "Trilu",
}
_RULES: Mapping[tuple[str, str], Rule] = {("", name): rule for rule, names in _NAMES.items() for name in names.split()}
