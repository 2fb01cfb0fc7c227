"""The cut stage: a dissected network as files of its units, accepted only where they compute together what the whole
does. Runs in a child process.

A unit's file holds a graph alone: its weights are a share of the file that lies beside all of them, so nothing of it is
on the disk twice. A cut goes through every tensor that is made on one side and read on the other.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto, helper

from appliance.domain.errors import BadModel
from appliance.modelstore import arrays
from appliance.modelstore.orders import CutMade, CutOrder, CutUnit, DissectedOperator
from appliance.modelstore.stages import graph as facts
from appliance.modelstore.stages import normalise
from appliance.modelstore.stages.running import Runner, largest_error
from appliance.policies.dispatch.joining import joined
from appliance.policies.dispatch.partition import Operator

ERROR_MAX = 1e-3
"""Between the parts' results and the whole's, relative, as of every rewritten graph: kernels that are not fused across
a cut sum up in another order. Most networks compute the same to the last bit.
"""
STEP = 1e-7
"""Between numbers near one. What differs by less, in the mean square, is the same however small the results are: where
a Sigmoid ends in next to nothing, that is all that is left of what it was computed from.
"""
TRIALS = 3
"""Inputs of the smallest batch that are compared."""

Arrays = Mapping[str, np.ndarray]


def cut(order: CutOrder, report: Callable[[float, str], None]) -> CutMade:
    """Raises: BadModel where a part does not load or run."""
    groups = _units(order)
    if len(groups) < 2:
        return CutMade((), reason="all of it runs on the same kinds of processors")
    model = onnx.load(order.model, load_external_data=False)
    parts = _Parts(model, groups)
    folder = Path(order.target)
    paths = [parts.write(index, folder) for index in range(len(groups))]
    report(0.3, "running its parts")
    whole = Runner(order.model)
    runners = [Runner(path) for path in paths]
    kept, first = [], arrays.load(order.feeds[0])
    for place, file in enumerate(order.feeds):
        feeds = arrays.load(file)
        passed = _chained(runners, feeds)
        if not _same(whole.run(feeds), passed):
            return CutMade((), reason=f"its parts compute something else than the whole, in batch {place + 1}")
        kept.append(arrays.save(folder / f"passed{place}.npz", passed))
    for feeds in _others(first):
        if not _same(whole.run(feeds), _chained(runners, feeds)):
            return CutMade((), reason="its parts compute something else than the whole")
    passed = arrays.load(kept[0])
    return CutMade(tuple(_described(parts, index, path, passed) for index, path in enumerate(paths)), tuple(kept))


def _units(order: CutOrder) -> list[tuple[list[DissectedOperator], tuple[str, ...]]]:
    """Operators and kinds of each unit."""
    known = {one.name: one for one in order.operators}
    operators = [
        Operator(one.name, frozenset(kinds), one.inputs)
        for one, kinds in zip(order.operators, order.kinds, strict=True)
    ]
    ranks = [kind for kinds in order.kinds for kind in kinds]
    units = joined(operators, {one.name: one.flops for one in order.operators}, order.ops_min, order.units_max)
    return [([known[op.name] for op in unit], tuple(sorted(unit[0].processors, key=ranks.index))) for unit in units]


class _Parts:
    """The graph, and which tensors go into and come out of each unit."""

    def __init__(self, model: ModelProto, units: Sequence[tuple[Sequence[DissectedOperator], tuple[str, ...]]]) -> None:
        self._model = model
        self.units = units
        nodes = {node.name: node for node in model.graph.node}
        self.nodes: list[list[NodeProto]] = [[nodes[name] for op in ops for name in op.nodes] for ops, _kinds in units]
        self.constants = {tensor.name: tensor for tensor in model.graph.initializer}
        self._values = _values(model)
        made = [{name for node in part for name in node.output if name} for part in self.nodes]
        read = [{name for node in part for name in normalise.read_names(node) if name} for part in self.nodes]
        there = {value.name for value in model.graph.input}.union(*made)
        results = {value.name for value in model.graph.output}
        if strange := results - set().union(*made):
            raise BadModel(reason=f"its output {sorted(strange)[0]!r} is computed by no node")
        self.inputs = [sorted((names & there) - own) for names, own in zip(read, made, strict=True)]
        self.outputs = [
            sorted(own & results.union(*(read[other] for other in range(len(made)) if other != index)))
            for index, own in enumerate(made)
        ]
        _check_order(self.inputs, made, {value.name for value in model.graph.input})

    def constants_of(self, index: int) -> list[TensorProto]:
        read = {name for node in self.nodes[index] for name in normalise.read_names(node)}
        return [tensor for name, tensor in self.constants.items() if name in read]

    def write(self, index: int, folder: Path) -> str:
        """Raises: BadModel where the type of a tensor between two parts is not known."""
        sides = [[self._value(name) for name in names] for names in (self.inputs[index], self.outputs[index])]
        graph = helper.make_graph(self.nodes[index], f"u{index}", sides[0], sides[1], self.constants_of(index))
        imports = self._model.opset_import
        part = helper.make_model(graph, opset_imports=imports, ir_version=self._model.ir_version)
        path = folder / f"u{index}.onnx"
        path.write_bytes(part.SerializeToString())
        return str(path)

    def _value(self, name: str) -> ValueInfoProto:
        value = self._values.get(name)
        if value is None or not value.type.tensor_type.elem_type:
            raise BadModel(reason=f"the type of {name!r} is not known")
        return value


def _values(model: ModelProto) -> dict[str, ValueInfoProto]:
    shaped = normalise.with_shapes(model).graph
    return {value.name: value for value in (*shaped.input, *shaped.value_info, *shaped.output)}


def _check_order(inputs: Sequence[Sequence[str]], made: Sequence[set[str]], given: set[str]) -> None:
    """Raises: BadModel unless each unit needs earlier ones only: then none of them waits for itself."""
    there = set(given)
    for needed, own in zip(inputs, made, strict=True):
        if not there.issuperset(needed):
            raise BadModel(reason="a part would wait for itself")
        there |= own


def _chained(runners: Sequence[Runner], feeds: Arrays) -> dict[str, np.ndarray]:
    """Every tensor that goes into or comes out of a part."""
    passed = dict(feeds)
    for runner in runners:
        names = [one.name for one in runner.session.get_inputs()]
        passed |= runner.run({name: passed[name] for name in names})
    return passed


def _same(wanted: Arrays, found: Arrays) -> bool:
    return all(
        largest_error({name: found[name]}, {name: array}) <= ERROR_MAX or _is_within_a_step(array, found[name])
        for name, array in wanted.items()
    )


def _is_within_a_step(wanted: np.ndarray, found: np.ndarray) -> bool:
    if wanted.dtype.kind != "f" or wanted.shape != found.shape or not wanted.size:
        return False
    apart = found.astype(np.float64) - wanted.astype(np.float64)
    return bool(np.sqrt(np.mean(np.square(apart))) <= STEP)  # false where they are no numbers


def _others(feeds: Arrays) -> Iterator[dict[str, np.ndarray]]:
    """More inputs like these: other fractions, and whole numbers in another order, which stay legal."""
    rng = np.random.default_rng(0)
    for _trial in range(TRIALS - 1):
        yield {
            name: rng.standard_normal(array.shape).astype(array.dtype)
            if array.dtype.kind == "f"
            else rng.permuted(array, axis=-1)
            if array.ndim
            else array
            for name, array in feeds.items()
        }


def _described(parts: _Parts, index: int, path: str, passed: Arrays) -> CutUnit:
    operators, kinds = parts.units[index]
    inputs, outputs = parts.inputs[index], parts.outputs[index]
    weights = sum(facts.tensor_bytes(tensor) for tensor in parts.constants_of(index))
    return CutUnit(
        path=path,
        size_bytes=Path(path).stat().st_size + weights,
        operators=len(operators),
        op_types=dict(Counter(node.op_type for node in parts.nodes[index]).most_common()),
        kinds=kinds,
        inputs=tuple(inputs),
        outputs=tuple(outputs),
        flops=sum(one.flops for one in operators),
        tensor_bytes=sum(passed[name].nbytes for name in (*inputs, *outputs)),
    )
