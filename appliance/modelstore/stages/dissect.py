"""The dissect stage: which operators a network has for a cut, what each costs, and how kinds of processors are asked
about each. Runs in a child process.

An operator here is what no cut goes through: a node with the nodes that quantize its inputs and its result, and with
those that only compute constants for it. Nodes in a circle of such groups are one, too. What a body of If or Loop reads
from outside counts as an input of its node, which is one operator with all that is in it.

A kind is asked by small networks of one node each, one for each operator type with its attributes and the types of its
inputs: a real network has a few dozen.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from appliance.domain.errors import BadModel
from appliance.modelstore import arrays
from appliance.modelstore.orders import Dissected, DissectedOperator, DissectOrder
from appliance.modelstore.stages import graph as facts
from appliance.modelstore.stages import normalise
from appliance.modelstore.stages.equivalents import DEQUANTIZE, QUANTIZE, rewrite
from appliance.modelstore.stages.running import Runner
from appliance.modelstore.stages.vendor_limits import Asked, Shape, takes

NODES_MAX = 4096
"""A larger graph stays whole."""
_CONTENT_BYTES_MAX = 8192
"""Of a constant that an operator may go by; of larger ones only the shape counts."""
_WEIGHTED = frozenset({"LSTM", "GRU", "RNN"})


def dissect(order: DissectOrder, report: Callable[[float, str], None]) -> Dissected:
    """Raises: BadModel where the graph cannot be cut."""
    model = onnx.load(order.source)
    if len(model.graph.node) > NODES_MAX:
        raise BadModel(reason=f"the graph has more than {NODES_MAX} nodes")
    rewrite(model)
    known = _Known(model, arrays.load(order.feeds), Path(order.target))
    _declare(model, known)
    folder = Path(order.target)
    probes = _Probes(known, folder / "probes")
    groups = _groups(model)
    place = {name: index for index, group in enumerate(groups) for node in group for name in node.output}
    operators = []
    for index, group in enumerate(groups):
        needed = {place[name] for node in group for name in normalise.read_names(node) if name in place} - {index}
        operators.append(
            DissectedOperator(
                name=group[-1].name,
                nodes=tuple(node.name for node in group),
                inputs=tuple(groups[other][-1].name for other in sorted(needed)),
                flops=sum(known.flops(node) for node in group),
                probes=probes.of(group),
                tables=tuple(kind for kind in order.tables if all(takes(kind, known.asked(node)) for node in group)),
            )
        )
    report(0.5, "writing the rewritten graph")
    path, *_weights = normalise.write(model, folder, is_external=True)
    return Dissected(str(path), tuple(operators), probes.paths)


# -- what is known of tensors ------------------------------------------------------------------------------------------


@dataclass(slots=True, init=False)
class _Known:
    """Types of all tensors, and their shapes in one run."""

    types: dict[str, int]
    shapes: dict[str, tuple[int, ...]]
    constants: dict[str, TensorProto]
    fixed: set[str]
    """Constants, and what is computed of them alone: dequantized weights."""
    opsets: list[onnx.OperatorSetIdProto]

    def __init__(self, model: ModelProto, feeds: Mapping[str, np.ndarray], folder: Path) -> None:
        """`folder`: where there is room for a copy of the model."""
        fixed = ModelProto()
        fixed.CopyFrom(model)
        del fixed.graph.value_info[:]
        for value in fixed.graph.input:
            elem_type = value.type.tensor_type.elem_type
            value.CopyFrom(helper.make_tensor_value_info(value.name, elem_type, feeds[value.name].shape))
        for value in fixed.graph.output:
            value.type.tensor_type.ClearField("shape")
        graph = normalise.with_shapes(fixed).graph
        self.constants = {tensor.name: tensor for tensor in model.graph.initializer}
        self.types = {name: tensor.data_type for name, tensor in self.constants.items()}
        self.shapes = {name: tuple(tensor.dims) for name, tensor in self.constants.items()}
        self.fixed = set(self.constants)
        for node in model.graph.node:
            if self.fixed.issuperset(name for name in normalise.read_names(node) if name):
                self.fixed |= set(node.output)
        self.opsets = list(model.opset_import)
        for value in (*graph.input, *graph.value_info, *graph.output):
            if value.type.tensor_type.elem_type:
                self.types[value.name] = value.type.tensor_type.elem_type
            if value.type.tensor_type.HasField("shape"):
                self.shapes[value.name] = facts.dims(value)
        unknown = [
            name
            for node in model.graph.node
            for name in node.output
            if name and (name not in self.types or min(self.shapes.get(name, (-1,)), default=0) < 0)
        ]
        if unknown:
            self._look(model, feeds, unknown, folder)

    def _look(self, model: ModelProto, feeds: Mapping[str, np.ndarray], unknown: Sequence[str], folder: Path) -> None:
        """Operators that onnx does not know, or whose results depend on values: a run shows what comes out."""
        told = ModelProto()
        told.CopyFrom(model)
        results = {value.name for value in told.graph.output}
        told.graph.output.extend(onnx.ValueInfoProto(name=name) for name in unknown if name not in results)
        found = Runner(normalise.write(told, folder, "looked-at", is_external=True)[0]).run(feeds)
        for name in unknown:
            if isinstance(found[name], np.ndarray) and found[name].dtype != object:
                self.types[name] = helper.np_dtype_to_tensor_dtype(found[name].dtype)
                self.shapes[name] = found[name].shape

    def shape(self, name: str) -> Shape:
        return self.shapes.get(name)

    def elements(self, name: str) -> int:
        shape = self.shapes.get(name)
        return 0 if shape is None else int(np.prod([max(size, 1) for size in shape], dtype=np.int64))

    def asked(self, node: NodeProto) -> Asked:
        given = [name for name in node.input if name]
        return Asked(
            node,
            [self.shape(name) for name in given],
            [self.shape(name) for name in node.output if name],
            [name in self.fixed for name in given],
        )

    def flops(self, node: NodeProto) -> float:
        """Two for each multiplication with an addition; one for each element of anything else's results."""
        results = sum(self.elements(name) for name in node.output if name)
        weights = self.shapes.get(node.input[1], ()) if len(node.input) > 1 else ()
        if node.op_type in ("Conv", "ConvInteger", "QLinearConv"):
            weights = self.shapes.get(node.input[3], ()) if node.op_type == "QLinearConv" else weights
            return 2.0 * results * np.prod(weights[1:], dtype=np.float64)
        if node.op_type == "ConvTranspose":
            return 2.0 * self.elements(node.input[0]) * np.prod(weights[1:], dtype=np.float64)
        if node.op_type in facts.MATMUL:
            first = self.shapes.get(node.input[0], ())
            inner = first[-1] if first else 1
            if node.op_type == "Gemm" and any(one.name == "transA" and one.i for one in node.attribute):
                inner = first[0]
            return 2.0 * results * max(inner, 1)
        if node.op_type in _WEIGHTED:
            steps = (self.shapes.get(node.input[0], ()) or (1,))[0]
            return 2.0 * max(steps, 1) * sum(self.elements(name) for name in node.input[1:3])
        return float(results)


def _declare(model: ModelProto, known: _Known) -> None:
    """Types of tensors that onnx does not infer, with their ranks: a part that takes them must say them."""
    shaped = normalise.with_shapes(model).graph
    inferred = {value.name for value in (*shaped.value_info, *shaped.output) if value.type.tensor_type.elem_type}
    for node in model.graph.node:
        for name in node.output:
            if name in known.types and name not in inferred:
                shape = [None] * len(known.shapes[name])
                model.graph.value_info.append(helper.make_tensor_value_info(name, known.types[name], shape))


# -- what stays together -----------------------------------------------------------------------------------------------


def _groups(model: ModelProto) -> list[list[NodeProto]]:
    """Nodes that no cut parts, in an order in which the groups can run, as can the nodes in each."""
    nodes = list(model.graph.node)
    made_by = {name: index for index, node in enumerate(nodes) for name in node.output if name}
    reads = [[made_by[name] for name in normalise.read_names(node) if name in made_by] for node in nodes]
    readers: list[list[int]] = [[] for _ in nodes]
    for index, needed in enumerate(reads):
        for other in needed:
            readers[other].append(index)
    given = {value.name for value in model.graph.input}
    varies = [False] * len(nodes)
    for index, node in enumerate(nodes):
        own = any(name in given for name in normalise.read_names(node))
        varies[index] = own or any(varies[other] for other in reads[index])
    group = list(range(len(nodes)))

    def root(index: int) -> int:
        while group[index] != index:
            index = group[index]
        return index

    for index, node in enumerate(nodes):
        if (node.op_type == DEQUANTIZE or not varies[index]) and readers[index]:
            group[root(index)] = root(readers[index][0])
        elif node.op_type in (QUANTIZE, DEQUANTIZE) and node.input[0] in made_by:
            group[root(index)] = root(made_by[node.input[0]])
        elif node.op_type == QUANTIZE and readers[index]:
            group[root(index)] = root(readers[index][0])
    return _in_order(nodes, reads, [root(index) for index in range(len(nodes))])


def _in_order(nodes: Sequence[NodeProto], reads: Sequence[Sequence[int]], group: list[int]) -> list[list[NodeProto]]:
    """The groups sorted; those in a circle become one (Tarjan's components come out each after what it needs)."""
    needs: dict[int, set[int]] = {one: set() for one in sorted(set(group))}
    for index, needed in enumerate(reads):
        needs[group[index]] |= {group[other] for other in needed} - {group[index]}
    members: dict[int, list[int]] = {one: [] for one in needs}
    for index, one in enumerate(group):
        members[one].append(index)
    return [
        [nodes[index] for index in sorted(index for one in component for index in members[one])]
        for component in _components(needs)
    ]


def _components(needs: Mapping[int, set[int]]) -> list[list[int]]:
    """Strongly connected components, each after those that it needs; without recursion."""
    number: dict[int, int] = {}
    lowest: dict[int, int] = {}
    open_: list[int] = []
    found: list[list[int]] = []
    done: set[int] = set()
    for start in needs:
        if start in number:
            continue
        number[start] = lowest[start] = len(number)
        open_.append(start)
        path = [(start, iter(sorted(needs[start])))]
        while path:
            one, ahead = path[-1]
            for other in ahead:
                if other not in number:
                    number[other] = lowest[other] = len(number)
                    open_.append(other)
                    path.append((other, iter(sorted(needs[other]))))
                    break
                if other not in done:
                    lowest[one] = min(lowest[one], number[other])
            else:
                path.pop()
                if path:
                    lowest[path[-1][0]] = min(lowest[path[-1][0]], lowest[one])
                if lowest[one] == number[one]:
                    at = open_.index(one)
                    component, open_[at:] = open_[at:], []
                    done.update(component)
                    found.append(component)
    return found


# -- how kinds are asked -----------------------------------------------------------------------------------------------


class _Probes:
    """The small networks, written as they are first wanted."""

    def __init__(self, known: _Known, folder: Path) -> None:
        self._known = known
        self._folder = folder
        self._numbers: dict[bytes, int | None] = {}
        self._paths: list[str] = []

    @property
    def paths(self) -> tuple[str, ...]:
        return tuple(self._paths)

    def of(self, group: Sequence[NodeProto]) -> tuple[int, ...] | None:
        numbers = [self._number(node) for node in group]
        if any(number is None for number in numbers):
            return None
        return tuple(sorted({number for number in numbers if number is not None}))

    def _number(self, node: NodeProto) -> int | None:
        """Of its sort; None where it cannot be asked about alone."""
        if any(True for _body in facts.subgraphs(node)):
            return None
        key = self._key(node)
        if key not in self._numbers:
            network = self._network(node)
            self._numbers[key] = None if network is None else len(self._paths)
            if network is not None:
                self._folder.mkdir(parents=True, exist_ok=True)
                path = self._folder / f"{len(self._paths)}.onnx"
                path.write_bytes(network.SerializeToString())
                self._paths.append(str(path))
        return self._numbers[key]

    def _key(self, node: NodeProto) -> bytes:
        """Equal for nodes that a kind takes alike: operator, attributes, and of each input its type, rank, and whether
        it is a constant.
        """
        known = self._known
        plain = NodeProto(op_type=node.op_type, domain=node.domain)
        plain.attribute.extend(sorted(node.attribute, key=lambda one: one.name))
        inputs = [
            (known.types.get(name), len(known.shapes.get(name, ())), name in known.fixed) if name else None
            for name in node.input
        ]
        return plain.SerializeToString(deterministic=True) + repr((inputs, len(node.output))).encode()

    def _network(self, node: NodeProto) -> ModelProto | None:
        known = self._known
        given = [name for name in dict.fromkeys(node.input) if name]
        results = [name for name in node.output if name]
        if not all(known.types.get(name) and name in known.shapes for name in (*given, *results)):
            return None
        copy = NodeProto()
        copy.CopyFrom(node)
        values = [[self._value(name) for name in names] for names in (given, results)]
        stored = [self._constant(name) for name in given if name in known.fixed]
        values[0] = [value for value in values[0] if value.name not in known.fixed]
        graph = helper.make_graph([copy], "probe", values[0], values[1], stored)
        return helper.make_model(graph, opset_imports=known.opsets, ir_version=normalise.IR_VERSION)

    def _value(self, name: str) -> onnx.ValueInfoProto:
        shape = [size if size >= 0 else None for size in self._known.shapes[name]]
        return helper.make_tensor_value_info(name, self._known.types[name], shape)

    def _constant(self, name: str) -> TensorProto:
        """Itself where it is small; else one like it of zeros, for its values decide nothing."""
        tensor = self._known.constants.get(name)
        if tensor is not None and facts.tensor_bytes(tensor) <= _CONTENT_BYTES_MAX:
            return tensor
        elem_type = helper.tensor_dtype_to_np_dtype(self._known.types[name])
        return numpy_helper.from_array(np.zeros([max(size, 1) for size in self._known.shapes[name]], elem_type), name)
