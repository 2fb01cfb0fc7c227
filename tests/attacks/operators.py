"""One-node networks of every reviewed operator, and hostile inputs for them, run by `kernel_child`.

A case that ends the child, or that it does not answer, has found an operator that does not belong on the list.
"""

import pickle
import select
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from onnx import TensorProto, helper, numpy_helper

from appliance.modelstore.stages.operators import CONTRIB, OPERATORS, Condition
from tests.attacks import kernel_child

SECONDS_MAX = 20.0
"""A case takes microseconds; what takes this long does not end."""
SIDES = (1, 2, 3, 5, 8)
FLOATS = (0.0, -0.0, 1.0, -1.0, 1e-45, -1e-40, 3.4e38, -3.4e38, float("inf"), float("-inf"), float("nan"), 0.5, 2.5e9)
ELEMENTS: Mapping[str, int] = {
    "float32": TensorProto.FLOAT,
    "float64": TensorProto.DOUBLE,
    "float16": TensorProto.FLOAT16,
    "int8": TensorProto.INT8,
    "uint8": TensorProto.UINT8,
    "int32": TensorProto.INT32,
    "int64": TensorProto.INT64,
    "bool": TensorProto.BOOL,
}
F, ALL = ("float32", "float64", "float16"), tuple(ELEMENTS)
NUMBERS = ("float32", "float64", "int32", "int64", "int8", "uint8")
INTEGERS = ("int32", "int64")

Input = tuple[Any, str] | np.ndarray
"""(types or a name of `ELEMENTS`, axes), or a constant. Axes: a letter is a size that is drawn, a digit one that
is not. The type is drawn once for all inputs that leave a choice."""


@dataclass(frozen=True, slots=True, eq=False)
class Network:
    """An operator in one of its uses."""

    name: str
    inputs: tuple[Input, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    domain: str = ""
    outputs: int = 1
    opset: int = 21


def _const(*values: float, kind: Any = np.int64) -> np.ndarray:
    return np.array(values, kind)


def _many(names: str, *inputs: Input, **attributes: Any) -> Iterator[Network]:
    for name in names.split():
        yield Network(name, inputs, attributes)


def _contrib(names: str, *inputs: Input, **attributes: Any) -> Iterator[Network]:
    for name in names.split():
        yield Network(name, inputs, attributes, CONTRIB)


ONE_F, ONE_U8 = np.array(0.1, np.float32), np.array(3, np.uint8)
KERNEL = np.ones((4, 3, 3, 3), np.float32)
KERNEL_U8 = np.ones((4, 3, 3, 3), np.uint8)
WEIGHT = np.ones((3, 4), np.float32)


def _all_networks() -> Iterator[Network]:
    yield from _many(
        "Acos Acosh Asin Asinh Atan Atanh Ceil Celu Cos Cosh Elu Erf Exp Floor Gelu HardSigmoid HardSwish IsInf IsNaN "
        "LeakyRelu Log Mish Reciprocal Round Selu Shrink Sigmoid Sin Sinh Softplus Softsign Sqrt Tan Tanh "
        "ThresholdedRelu",
        (F, "NC"),
    )
    yield Network("Swish", ((F, "NC"),), opset=24)
    yield from _many("Abs Neg Sign Identity Relu Not BitwiseNot", (ALL, "NC"))
    yield from _many(
        "Add Sub Mul Max Min Mean Sum Pow Equal Greater GreaterOrEqual Less LessOrEqual PRelu",
        (NUMBERS, "NC"),
        (NUMBERS, "NC"),
    )
    yield from _many("Add Sub Mul Max Min Pow Equal Less", (NUMBERS, "NC"), (NUMBERS, "1"))
    yield from _many("And Or Xor", ("bool", "NC"), ("bool", "NC"))
    yield from _many("BitwiseAnd BitwiseOr BitwiseXor", (INTEGERS, "NC"), (INTEGERS, "NC"))
    yield Network("Pow", (("int64", "NC"), ("float32", "NC")))
    yield Network("Where", (("bool", "NC"), (ALL, "NC"), (ALL, "NC")))
    yield Network("Clip", ((NUMBERS, "NC"), (NUMBERS, ""), (NUMBERS, "")))
    yield Network("CastLike", ((ALL, "NC"), ("int64", "1")))
    for to in ("float32", "float16", "int8", "uint8", "int32", "int64", "bool"):
        yield Network("Cast", ((ALL, "NC"),), {"to": ELEMENTS[to]})
    yield Network("Div", ((F, "NC"), (F, "NC")))
    yield Network("Mod", ((F, "NC"), (F, "NC")), {"fmod": 1})
    for divisor in (1, 2, -2, 7):
        for kind in (np.int32, np.int64):
            yield from _many("Div Mod", (np.dtype(kind).name, "NC"), np.array(divisor, kind))
    # products, windows
    yield Network("MatMul", ((NUMBERS, "NC"), (NUMBERS, "CM")))
    yield Network("Gemm", ((F, "N3"), WEIGHT), {"alpha": 0.5})
    yield Network("MatMulInteger", (("uint8", "NC"), ("int8", "CM"), ("uint8", ""), ("int8", "")))
    yield from _many("Conv", ("float32", "N388"), KERNEL, pads=[1, 1, 1, 1])
    yield Network("ConvTranspose", (("float32", "N4HW"), KERNEL), {"strides": [2, 2]})
    yield Network("ConvInteger", (("uint8", "N388"), KERNEL_U8, ("uint8", "")), {"pads": [1, 1, 1, 1]})
    yield from _many("AveragePool LpPool", (F, "NCHW"), kernel_shape=[2, 2], pads=[1, 1, 1, 1])
    yield Network("MaxPool", (("float32", "NCHW"),), {"kernel_shape": [2, 2], "pads": [1, 1, 1, 1]}, outputs=2)
    yield Network("MaxPool", (("uint8", "NCHW"),), {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1})
    yield from _many("GlobalAveragePool GlobalMaxPool GlobalLpPool", (F, "NCHW"))
    yield Network("LRN", (("float32", "NCHW"),), {"size": 3})
    # normal
    yield from _many("Softmax LogSoftmax Hardmax LpNormalization", (F, "NCH"), axis=-1)
    scale = np.ones(3, np.float32)
    yield Network("BatchNormalization", (("float32", "N3HW"), scale, scale, scale, ("float32", "3")))
    yield Network("InstanceNormalization", (("float32", "N3HW"), scale, scale))
    yield Network("GroupNormalization", (("float32", "N3HW"), scale, scale), {"num_groups": 3})
    yield Network("LayerNormalization", (("float32", "NH3"), scale, scale))
    yield Network("RMSNormalization", (("float32", "NH3"), scale), opset=23)
    yield Network("MeanVarianceNormalization", (("float32", "NCHW"),))
    # reduce, move
    reductions = (
        "ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMin ReduceProd ReduceSum ReduceSumSquare"
    )
    yield from _many(reductions, (NUMBERS, "NCH"), _const(1))
    yield from _many(reductions, (NUMBERS, "NCH"))
    yield Network("ReduceMean", ((F, "NCH"), _const(-1)))
    yield from _many("ArgMax ArgMin", (NUMBERS, "NCH"), axis=1)
    yield Network("ArgMax", ((F, "NC"),), {"select_last_index": 1})
    yield Network("CumSum", ((("float32", "float64", *INTEGERS), "NC"), _const(1).reshape(())))
    yield Network("Concat", ((ALL, "NC"), (ALL, "NC")), {"axis": 1})
    yield Network("DepthToSpace", ((F, "N4HW"),), {"blocksize": 2})
    yield Network("SpaceToDepth", ((F, "NC44"),), {"blocksize": 2})
    yield Network("Flatten", ((ALL, "NCHW"),))
    yield Network("Transpose", ((ALL, "NCH"),), {"perm": [2, 0, 1]})
    yield from _many("Shape Size", (ALL, "NC"))
    yield Network("Reshape", ((ALL, "NCH"), _const(0, -1)))
    yield Network("Squeeze", ((ALL, "N1C"), _const(1)))
    yield Network("Unsqueeze", ((ALL, "NC"), _const(0)))
    yield Network("Slice", ((ALL, "NCH"), _const(1), _const(2**31 - 1), _const(1), _const(2)))
    yield Network("Slice", ((ALL, "NCH"), _const(-1), _const(-(2**63)), _const(1), _const(-1)))
    yield Network("Split", ((ALL, "N4"), _const(1, 3)), {"axis": 1}, outputs=2)
    yield Network("Split", ((ALL, "N4"),), {"axis": 1, "num_outputs": 2}, outputs=2)
    yield Network("Trilu", ((NUMBERS, "NCC"), _const(0).reshape(())))
    # repeat
    yield Network("ConstantOfShape", (_const(2, 3),))
    yield Network("Expand", ((ALL, "N1C"), _const(1, 4, 1)))
    yield Network("Tile", ((ALL, "NC"), _const(2, 3)))
    yield Network("OneHot", (((*INTEGERS, "float32"), "NC"), _const(5).reshape(()), ("float32", "2")))
    for mode in ("constant", "edge", "reflect", "wrap"):
        yield Network("Pad", ((NUMBERS, "N4"), _const(0, 1, 0, 2)), {"mode": mode})
    yield Network("Pad", (("float32", "NC"), _const(0, 1, 0, 1), ("float32", "")))
    yield Network("Range", (_const(0).reshape(()), _const(9).reshape(()), _const(2).reshape(())))
    none, scales = np.zeros(0, np.float32), np.array([1, 1, 2, 1.5], np.float32)
    for mode in ("nearest", "linear", "cubic"):
        yield Network("Resize", ((("float32", "uint8", "int8"), "NCHW"), none, scales), {"mode": mode})
        yield Network("Resize", (("float32", "NCHW"), none, none, _const(1, 3, 5, 7)), {"mode": mode})
    # lookup
    yield Network("Gather", ((ALL, "NC"), (INTEGERS, "M")), {"axis": 1})
    yield Network("GatherElements", ((ALL, "NC"), (INTEGERS, "NC")), {"axis": 1})
    yield Network("GatherND", ((ALL, "NC"), ("int64", "M2")))
    yield Network("GatherND", ((ALL, "NCH"), ("int64", "N1")), {"batch_dims": 1})
    for how in ("none", "add", "mul", "max", "min"):
        yield Network(
            "ScatterElements", ((NUMBERS, "NC"), (INTEGERS, "NC"), (NUMBERS, "NC")), {"axis": 1, "reduction": how}
        )
        yield Network("ScatterND", ((NUMBERS, "NC"), ("int64", "M2"), (NUMBERS, "M")), {"reduction": how})
    # quantised
    yield Network("QuantizeLinear", (("float32", "N3"), ("float32", ""), ("uint8", "")))
    yield Network("QuantizeLinear", (("float32", "N3"), ("float32", "3"), ("int8", "3")), {"axis": 1})
    yield Network("DequantizeLinear", ((("uint8", "int8", "int32"), "N3"), ("float32", "")))
    yield Network("DequantizeLinear", (("int8", "N3"), ("float32", "3"), ("int8", "3")), {"axis": 1})
    yield Network("DynamicQuantizeLinear", (("float32", "NC"),), outputs=3)
    quantised: tuple[Input, ...] = (
        ("uint8", "N388"),
        ("float32", ""),
        ("uint8", ""),
        KERNEL_U8,
        ONE_F,
        ONE_U8,
        ("float32", ""),
        ("uint8", ""),
    )
    yield Network("QLinearConv", quantised, {"pads": [1, 1, 1, 1]})
    yield Network(
        "QLinearMatMul",
        (("uint8", "NC"), ONE_F, ONE_U8, ("uint8", "CM"), ("float32", ""), ("uint8", ""), ONE_F, ONE_U8),
    )
    # recurrent: no empty axis
    for name, gates in (("LSTM", 4), ("GRU", 3), ("RNN", 1)):
        weights = (np.ones((1, gates * 2, 3), np.float32), np.ones((1, gates * 2, 2), np.float32))
        outputs = 3 if name == "LSTM" else 2
        yield Network(name, (("float32", "LN3"), *weights), {"hidden_size": 2}, outputs=outputs)
    # contributed
    yield from _contrib("BiasGelu FastGelu", ("float32", "N3"), ("float32", "3"))
    yield from _contrib("Gelu QuickGelu", ("float32", "NC"))
    yield from _contrib("SkipLayerNormalization", ("float32", "NH3"), ("float32", "NH3"), scale, scale)
    yield from _contrib("FusedMatMul", ("float32", "NC"), ("float32", "CM"), alpha=2.0)
    yield from _contrib("FusedGemm", ("float32", "N3"), WEIGHT, activation="Relu")
    yield from _contrib("FusedConv", ("float32", "N388"), KERNEL, activation="Relu", pads=[1, 1, 1, 1])
    yield from _contrib("DynamicQuantizeMatMul", ("float32", "N3"), np.ones((3, 4), np.uint8), ONE_F, ONE_U8)
    yield from _contrib("MatMulIntegerToFloat", ("uint8", "N3"), np.ones((3, 4), np.uint8), ("float32", ""), ONE_F)
    yield from _contrib("QGemm", ("uint8", "N3"), ONE_F, ONE_U8, np.ones((3, 4), np.uint8), ONE_F, ONE_U8)
    yield from _contrib("QuantizeLinear", ("float32", "N3"), ("float32", ""), ("uint8", ""))
    yield from _contrib("DequantizeLinear", ("uint8", "N3"), ("float32", ""), ("uint8", ""))
    two: tuple[Input, ...] = (("uint8", "NC"), ("float32", ""), ("uint8", ""))
    yield from _contrib("QLinearAdd QLinearMul", *two, *two, ("float32", ""), ("uint8", ""))
    yield from _contrib("QLinearSigmoid QLinearLeakyRelu", *two, ("float32", ""), ("uint8", ""))
    picture: tuple[Input, ...] = (("uint8", "NCHW"), ONE_F, ONE_U8, ("float32", ""), ("uint8", ""))
    yield from _contrib("QLinearGlobalAveragePool", *picture)
    yield from _contrib("QLinearAveragePool", *picture, kernel_shape=[2, 2], pads=[1, 1, 1, 1])


NETWORKS = tuple(_all_networks())


@cache
def types_of(network: Network) -> tuple[str, ...]:
    """The types that the runtime has a kernel for; one word where nothing is left to choose."""
    wanted = next((one[0] for one in network.inputs if isinstance(one, tuple) and isinstance(one[0], tuple)), ("",))
    return tuple(kind for kind in wanted if _loads(model_of(network, kind)))


def _loads(model: bytes) -> bool:
    try:
        kernel_child.session(model)
    except Exception:  # the runtime's errors share no class
        return False
    return True


@cache
def model_of(network: Network, kind: str) -> bytes:
    """The network as a file, with free axes."""
    names, given, stored = [], [], []
    for place, one in enumerate(network.inputs):
        name = f"x{place}"
        if isinstance(one, tuple):
            element = ELEMENTS[kind if isinstance(one[0], tuple) else one[0]]
            shape = [int(axis) if axis.isdigit() else axis for axis in one[1]]
            given.append(helper.make_tensor_value_info(name, element, shape))
        else:
            stored.append(numpy_helper.from_array(np.asarray(one), name))
        names.append(name)
    outputs = [f"y{place}" for place in range(network.outputs)]
    node = helper.make_node(network.name, names, outputs, domain=network.domain, **network.attributes)
    results = [helper.make_value_info(name, helper.make_tensor_type_proto(0, None)) for name in outputs]
    for result in results:
        result.ClearField("type")
    graph = helper.make_graph([node], "g", given, results, stored)
    imports = [helper.make_opsetid("", network.opset), helper.make_opsetid(CONTRIB, 1)]
    made: bytes = helper.make_model(graph, opset_imports=imports, ir_version=10).SerializeToString()
    return made


def elements(kind: str) -> st.SearchStrategy[Any]:
    """Values at the edges of a type."""
    dtype = np.dtype(kind)
    if dtype.kind == "b":
        return st.booleans()
    if dtype.kind == "f":
        largest = float(np.finfo(dtype).max)
        return st.sampled_from([one if not abs(one) > largest or np.isinf(one) else largest for one in FLOATS]).map(
            lambda value: float(dtype.type(value))
        )
    low, high = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
    return st.sampled_from(sorted({low, low + 1, max(low, -1), 0, 1, 2, high - 1, high}))


@st.composite
def cases(draw: st.DrawFn, network: Network) -> tuple[bytes, dict[str, np.ndarray]]:
    """A network of one type, and inputs for it; sides may be empty where the operator is listed so."""
    kind = draw(st.sampled_from(types_of(network)))
    operator = OPERATORS[network.domain, network.name]
    least = () if operator.condition is Condition.NEVER_EMPTY else (0,)
    letters = sorted({axis for one in network.inputs if isinstance(one, tuple) for axis in one[1] if axis.isalpha()})
    sizes = {axis: draw(st.sampled_from((*SIDES, *least))) for axis in letters}
    feeds = {}
    for place, one in enumerate(network.inputs):
        if isinstance(one, tuple):
            dtype = kind if isinstance(one[0], tuple) else one[0]
            shape = tuple(int(axis) if axis.isdigit() else sizes[axis] for axis in one[1])
            feeds[f"x{place}"] = draw(hnp.arrays(dtype, shape, elements=elements(dtype)))
    return model_of(network, kind), feeds


class Child:
    """Runs cases one after another in a process of its own; a new one is started after one has died."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def run(self, model: bytes, feeds: Mapping[str, np.ndarray]) -> str:
        """`ok`, the runtime's refusal, or how the process ended: `died: -8`, `does not end`."""
        process = self._process = self._process or subprocess.Popen(
            [sys.executable, "-m", kernel_child.__name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        body = pickle.dumps((model, dict(feeds)))
        try:
            process.stdin.write(struct.pack("<I", len(body)) + body)
            process.stdin.flush()
        except BrokenPipeError:
            return self._end()
        if not select.select([process.stdout], [], [], SECONDS_MAX)[0]:
            self.close()
            return "does not end"
        return process.stdout.readline().decode().strip() or self._end()

    def _end(self) -> str:
        assert self._process is not None
        status = self._process.wait()
        self.close()
        return f"died: {status}"

    def close(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.communicate()


def attack(network: Network, child: Child, examples: int, seen: Callable[[str], None]) -> None:
    """Run so many hostile cases of a network; `seen` is told each answer."""

    @settings(max_examples=examples, database=None, deadline=None, suppress_health_check=list(HealthCheck))
    @given(cases(network))
    def go(case: tuple[bytes, dict[str, np.ndarray]]) -> None:
        seen(child.run(*case))

    go()


def is_harmless(answer: str) -> bool:
    """A result or a refusal is."""
    return answer == "ok" or answer.startswith("refused")


def unlisted() -> Sequence[tuple[str, str]]:
    """Reviewed operators that no network here tries."""
    tried = {(one.domain, one.name) for one in NETWORKS}
    return sorted(set(OPERATORS) - tried)
