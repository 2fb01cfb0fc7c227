"""Networks are cut where support for their operators changes, and compute in parts what they do whole."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import ModelProto, helper

from appliance.domain.catalogue import Precision
from appliance.domain.errors import BadModel
from appliance.modelstore.importing.profiling import DIFFERENCE_MAX, DIFFERENCE_MAX_OTHERS
from appliance.modelstore.orders import InspectOrder
from appliance.modelstore.stages import quantise
from appliance.modelstore.stages.cut import _same
from appliance.modelstore.stages.inspect import inspect
from appliance.modelstore.stages.running import Runner
from appliance.policies.dispatch.partition import Operator, units_of
from appliance.runtime.processors.measuring.same import difference
from tests.demo.zoo.fetched import model_of
from tests.modelstore.networks import classifier, model, nested, write
from tests.modelstore.stages.dissected import Feeds, chained, cut_by, dissected, types_in
from tests.modelstore.stages.stage_runs import quiet

pytestmark = pytest.mark.gate("works on real networks and files")

LIGHT = Path(onnx.__file__).parent / "backend/test/data/light"
"""Networks of the onnx package; their weights are random."""
DLA_LIKE = frozenset(
    {"Conv", "BatchNormalization", "Relu", "Clip", "Add", "Sub", "Mul", "MaxPool", "AveragePool", "GlobalAveragePool"}
)


def normalised(source: Path, folder: Path) -> Path:
    return Path(inspect(InspectOrder(str(source), str(folder)), quiet).model)


def quantised(source: Path, feeds: Feeds) -> Path:
    target = source.with_name("int8.onnx")
    quantise.static_int8(source, target, quantise.Ranges(source, [feeds]), True, [])
    return target


def picture(name: str, *shape: int) -> Feeds:
    return {name: np.random.default_rng(0).standard_normal(shape).astype(np.float32)}


def naive_units(path: Path) -> int:
    """Units of the graph as it stands, by operator types alone (Band §4.2)."""
    nodes = list(onnx.load(path, load_external_data=False).graph.node)
    made = {name: str(index) for index, node in enumerate(nodes) for name in node.output}
    return len(
        units_of(
            [
                Operator(
                    str(index),
                    frozenset({"cpu", "dla"} if node.op_type in DLA_LIKE else {"cpu"}),
                    tuple({made[name] for name in node.input if name in made}),
                )
                for index, node in enumerate(nodes)
            ]
        )
    )


def check(path: Path, folder: Path, feeds: Feeds, difference_max: float = DIFFERENCE_MAX_OTHERS) -> tuple[int, float]:
    """Cut by the vendor's table; returns the units, and the share of the work that the accelerator can have."""
    found = dissected(path, folder, feeds, "dla")
    made = cut_by(found, [feeds], lambda one: bool(one.tables))
    assert not made.reason
    wanted = Runner(path).run(feeds)
    there = chained(made, feeds)
    for name, array in wanted.items():
        assert difference(array, there[name]) < difference_max
    work = sum(unit.flops for unit in made.units)
    return len(made.units), sum(unit.flops for unit in made.units if "npu" in unit.kinds) / work


@pytest.mark.nightly("a large network")
def test_resnet_is_cut_into_two_parts(tmp_path: Path) -> None:
    """As it stands it would be 35, for its sums are `Sum`, and quantized far more."""
    path = normalised(LIGHT / "light_resnet50.onnx", tmp_path / "net")
    feeds = picture("gpu_0/data_0", 1, 3, 224, 224)
    assert naive_units(path) >= 33
    units, share = check(path, tmp_path, feeds)
    assert units == 2
    assert share > 0.99
    int8 = quantised(path, feeds)
    assert naive_units(int8) > 100
    units, share = check(int8, tmp_path / "int8", feeds, DIFFERENCE_MAX[Precision.INT8])
    assert units == 2
    assert share > 0.99


@pytest.mark.usefixtures("package_index")
@pytest.mark.parametrize(
    "name",
    [
        pytest.param("read-text", marks=pytest.mark.nightly("a large network")),
        "find-text",
        "faces-tiny",
        "pitch",
        "digits",
    ],
)
def test_real_networks_are_cut_into_few_parts(name: str, tmp_path: Path) -> None:
    """Whole in parts, whatever their form: a recogniser of 1,000 operators, too."""
    path = normalised(model_of(name, "ci", "small").model, tmp_path / "net")
    values = onnx.load(path, load_external_data=False).graph.input
    sizes = {"read-text": (48, 320), "find-text": (320, 320)}.get(name, (64, 64))
    feeds: Feeds = {}
    for value in values:
        dims = [dim.dim_value or None for dim in value.type.tensor_type.shape.dim]
        free = iter((1, *sizes) if len(dims) == 4 and dims[0] is None else (1024,))
        feeds |= picture(value.name, *(next(free) if size is None else size for size in dims))
    found = dissected(path, tmp_path, feeds, "dla")
    made = cut_by(found, [feeds], lambda one: bool(one.tables))
    assert len(made.units) <= 16
    assert naive_units(path) >= len(made.units)
    if made.units:
        wanted, there = Runner(path).run(feeds), chained(made, feeds)
        for output, array in wanted.items():
            np.testing.assert_allclose(there[output], array, rtol=1e-3, atol=1e-4)  # of noise all is next to nothing


def split_at(made: ModelProto, folder: Path, feeds: Feeds, on_cpu: frozenset[str], ops_min: int = 1) -> list[list[str]]:
    """Operator types of each unit where those types are the first kind's alone; the answer is the whole's."""
    path = write(made, folder)
    found = dissected(path, folder, feeds)
    types = types_in(found)
    parts = cut_by(found, [feeds], lambda one: not on_cpu & {types[name] for name in one.nodes}, ops_min)
    for name, array in Runner(path).run(feeds).items():
        assert difference(array, chained(parts, feeds)[name]) < DIFFERENCE_MAX_OTHERS
    return [sorted(unit.op_types) for unit in parts.units]


def test_cut_passes_on_every_tensor_between_parts(tmp_path: Path) -> None:
    """A shortcut over a part, and an output from the middle."""
    nodes = "a = Conv(x, w) b = Relu(a) c = Softmax(b) d = Add(c, b) y = Sum(d, a, x)"
    weights = {"w": np.eye(3, dtype=np.float32).reshape(3, 3, 1, 1)}
    shape = ("n", 3, 4, 4)
    made = model(nodes, {"x": shape}, {"y": shape, "b": shape}, weights)
    feeds = picture("x", 2, 3, 4, 4)
    assert split_at(made, tmp_path, feeds, frozenset({"Softmax"})) == [["Conv", "Relu"], ["Softmax"], ["Add"]]


def test_cut_keeps_quantizing_nodes_with_quantized_operator(tmp_path: Path) -> None:
    """What passes between two parts is quantized, and each has its own way back; so it is a quarter of the bytes."""
    path = Path(write(classifier(), tmp_path))
    feeds = picture("x", 1, 3, 16, 16)
    source = normalised(path, tmp_path / "net")
    found = dissected(quantised(source, feeds), tmp_path, feeds)
    types = types_in(found)
    kept = [sorted(types[name] for name in one.nodes) for one in found.operators]
    assert all(set(one) - {"QuantizeLinear", "DequantizeLinear"} for one in kept[1:])
    convolutions = [one.name for one in found.operators if "Conv" in {types[name] for name in one.nodes}]
    made = cut_by(found, [feeds], lambda one: one.name != convolutions[2], ops_min=1)
    assert len(made.units) == 3
    there = chained(made, feeds)
    assert {there[name].dtype.kind for name in made.units[1].inputs} == {"u"}
    assert {there[name].dtype.kind for name in made.units[1].outputs} == {"u"}


def test_cut_keeps_bodies_whole_and_passes_on_tensors_read_in_bodies(tmp_path: Path) -> None:
    """An If whose branches read a tensor of another part."""
    nodes = (
        "a = Relu(x) s = ReduceSum<keepdims=0>(x) is = Greater(s, zero) "
        "b = If(is) <then_branch = then () => (float[n,4] t) { t = Neg(a) }, "
        "else_branch = else () => (float[n,4] t) { t = Identity(a) }> y = Exp(b)"
    )
    shape = ("n", 4)
    made = model(nodes, {"x": shape}, {"y": shape}, {"zero": np.array(0, np.float32)})
    feeds = picture("x", 2, 4)
    assert dissected(write(made, tmp_path), tmp_path, feeds).operators[-2].probes is None
    units = split_at(made, tmp_path, feeds, frozenset({"If"}))
    assert units == [["Relu"], ["Greater", "ReduceSum"], ["If"], ["Exp"]]


def test_cut_counts_deep_body_as_one_operator(tmp_path: Path) -> None:
    found = dissected(write(nested(3), tmp_path), tmp_path, picture("x", 2, 4))
    assert all(one.probes is None for one in found.operators if "If" in one.name)


def test_cut_keeps_constants_with_reading_operator(tmp_path: Path) -> None:
    """A node that depends on no input is no operator of its own."""
    nodes = "s = Shape(w) a = Relu(x) b = Reshape(a, s) y = Exp(b)"
    made = model(nodes, {"x": (2, 8)}, {"y": (4, 4)}, {"w": np.zeros((4, 4), np.float32)})
    found = dissected(write(made, tmp_path), tmp_path, picture("x", 2, 8))
    types = types_in(found)
    assert [[types[name] for name in one.nodes] for one in found.operators] == [["Relu"], ["Shape", "Reshape"], ["Exp"]]


def test_cut_joins_operator_groups_in_a_circle(tmp_path: Path) -> None:
    """A quantized input goes with the product that reads it, and what it is multiplied by needs it, too."""
    weights: Feeds = {"scale": np.array(0.1, np.float32), "zero": np.array(0, np.uint8)}
    nodes = (
        "q = QuantizeLinear(x, scale, zero) a = DequantizeLinear(q, scale, zero) "
        "b = DequantizeLinear(q, scale, zero) c = Exp(b) y = Mul(a, c)"
    )
    made = model(nodes, {"x": (2, 4)}, {"y": (2, 4)}, weights)
    found = dissected(write(made, tmp_path), tmp_path, picture("x", 2, 4))
    assert [len(one.nodes) for one in found.operators] == [5]


def test_probe_networks_are_made_for_each_sort_of_operator(tmp_path: Path) -> None:
    """Each runs by itself; large weights are left out of it."""
    feeds = picture("x", 1, 3, 16, 16)
    found = dissected(write(classifier(), tmp_path), tmp_path, feeds)
    assert len(found.probes) == 8, "two convolutions and both rectifiers are alike"
    assert found.operators[1].probes == found.operators[4].probes
    for path in found.probes:
        assert Runner(path)
    assert sum(Path(path).stat().st_size for path in found.probes) < 400_000


def test_cut_finds_tensor_types_after_operators_unknown_to_onnx(tmp_path: Path) -> None:
    """After an operator of ONNX Runtime's own, and one whose result depends on values, tensors still have types."""
    nodes = (
        "a = com.microsoft.QuickGelu<alpha=1.7>(x) b = Relu(a) c = NonZero(b) d = Cast<to=1>(c) "
        "e = Softmax(d) y = ReduceSum<keepdims=0>(e)"
    )
    made = model(nodes, {"x": ("n", 4)}, {"y": ()})
    feeds = {"x": np.abs(picture("x", 2, 4)["x"])}
    found = dissected(write(made, tmp_path), tmp_path, feeds)
    assert all(one.probes is not None for one in found.operators)
    assert all(Runner(path) for path in found.probes)
    types = types_in(found)
    parts = cut_by(found, [feeds], lambda one: types[one.nodes[-1]] not in ("QuickGelu", "Softmax"), ops_min=1)
    assert [sorted(unit.op_types) for unit in parts.units] == [
        ["QuickGelu"],
        ["Cast", "NonZero", "Relu"],
        ["Softmax"],
        ["ReduceSum"],
    ]
    np.testing.assert_allclose(chained(parts, feeds)["y"], 2.0)


def test_operator_costs_are_floating_point_operations(tmp_path: Path) -> None:
    """Two for each multiplication of a convolution and of a product of matrices."""
    found = dissected(write(classifier(), tmp_path), tmp_path, picture("x", 1, 3, 16, 16))
    types = types_in(found)
    flops = {types[one.nodes[-1]]: one.flops for one in found.operators[:1]} | {
        types[one.nodes[-1]]: one.flops for one in found.operators[-1:]
    }
    assert flops == {"Conv": 2 * 8 * 8 * 16 * 3 * 9, "Gemm": 2 * 64 * 5}


def test_network_with_other_results_in_parts_stays_whole(tmp_path: Path) -> None:
    """Random numbers: no run is like another."""
    nodes = "r = RandomNormalLike(x) s = Softmax(r) t = RandomNormalLike(s) y = Mul(s, t)"
    path = write(model(nodes, {"x": (2, 4)}, {"y": (2, 4)}), tmp_path)
    found = dissected(path, tmp_path, picture("x", 2, 4))
    made = cut_by(found, [picture("x", 2, 4)], lambda one: "Softmax" not in one.name, ops_min=1)
    assert made.units == ()
    assert "something else" in made.reason


def test_part_results_near_zero_are_compared_by_absolute_difference() -> None:
    """Results of a Sigmoid near zero are the same when no number near one would show the difference; of results of any
    other size a thousandth is the most.
    """
    tiny = np.full(1000, 1e-6, np.float32)
    assert _same({"y": tiny}, {"y": tiny + np.float32(5e-8)})
    assert not _same({"y": tiny}, {"y": tiny + np.float32(5e-7)})
    ones = np.ones(1000, np.float32)
    assert _same({"y": ones}, {"y": ones * np.float32(1.0005)})
    assert not _same({"y": ones}, {"y": ones * np.float32(1.005)})
    assert not _same({"y": ones}, {"y": ones * np.float32(np.nan)})
    assert not _same({"y": np.arange(3)}, {"y": np.arange(3) + 1})


def test_network_of_one_unit_is_not_cut(tmp_path: Path) -> None:
    """Where every kind takes all of it, nothing is made."""
    feeds = picture("x", 1, 3, 16, 16)
    found = dissected(write(classifier(), tmp_path), tmp_path, feeds)
    for takes in (True, False):
        made = cut_by(found, [feeds], lambda one, takes=takes: takes)  # type: ignore[misc]
        assert made.units == ()
        assert made.reason
    assert not list((tmp_path / "cut").glob("u*.onnx"))


def test_weights_of_parts_are_stored_once(tmp_path: Path) -> None:
    """Parts share the file that lies beside them."""
    rng = np.random.default_rng(0)
    weights = {f"w{index}": rng.standard_normal((200, 200)).astype(np.float32) for index in range(4)}
    nodes = []
    for index in range(4):
        nodes += [
            helper.make_node("MatMul", [f"x{index}", f"w{index}"], [f"m{index}"]),
            helper.make_node("Softmax", [f"m{index}"], [f"x{index + 1}"]),
        ]
    made = model(nodes, {"x0": ("n", 200)}, {"x4": ("n", 200)}, weights)
    feeds = picture("x0", 2, 200)
    found = dissected(write(made, tmp_path), tmp_path, feeds)
    parts = cut_by(found, [feeds], lambda one: "MatMul" in one.name, ops_min=1)
    assert len(parts.units) == 8
    written = sum(file.stat().st_size for file in (tmp_path / "cut").glob("*") if file.suffix in (".onnx", ".bin"))
    assert written < 1.1 * 4 * 200 * 200 * 4
    assert sum(unit.size_bytes for unit in parts.units) > 4 * 200 * 200 * 4


def test_network_of_too_many_nodes_is_not_cut(tmp_path: Path) -> None:
    nodes = [helper.make_node("Relu", [f"x{index}"], [f"x{index + 1}"]) for index in range(5000)]
    path = write(model(nodes, {"x0": (2,)}, {"x5000": (2,)}), tmp_path)
    with pytest.raises(BadModel, match="more than 4096 nodes"):
        dissected(path, tmp_path, picture("x0", 2))


@pytest.mark.parametrize(
    ("node", "inputs", "weights", "is_taken"),
    [
        (("Conv", {"kernel_shape": [3, 3]}), (1, 3, 40, 40), (8, 3, 3, 3), True),
        (("Conv", {"kernel_shape": [33, 33]}), (1, 3, 40, 40), (8, 3, 33, 33), False),
        (("Conv", {"strides": [9, 9]}), (1, 3, 40, 40), (8, 3, 3, 3), False),
        (("MaxPool", {"kernel_shape": [8, 8]}), (1, 3, 40, 40), None, True),
        (("MaxPool", {"kernel_shape": [9, 9]}), (1, 3, 40, 40), None, False),
        (("Concat", {"axis": 1}), (1, 3, 4, 4), (1, 3, 4, 4), True),
        (("Concat", {"axis": 2}), (1, 3, 4, 4), (1, 3, 4, 4), False),
        (("GlobalAveragePool", {}), (1, 3, 7, 7), None, True),
        (("GlobalAveragePool", {}), (1, 3, 70, 70), None, False),
        (("Relu", {}), (1, 3, 4, 9000), None, False),
        (("Softmax", {}), (1, 3, 4, 4), None, False),
    ],
)
def test_operator_beyond_vendor_limits_is_not_taken(
    node: tuple[str, dict[str, Any]],
    inputs: tuple[int, ...],
    weights: tuple[int, ...] | None,
    is_taken: bool,
    tmp_path: Path,
) -> None:
    name, attributes = node
    made = model(
        [helper.make_node(name, ["x", *(["w"] if weights else [])], ["y"], **attributes)],
        {"x": inputs},
        {"y": ()},
        {"w": np.zeros(weights, np.float32)} if weights else {},
    )
    made.graph.output[0].type.tensor_type.ClearField("shape")
    found = dissected(write(made, tmp_path), tmp_path, picture("x", *inputs), "dla")
    assert found.operators[0].tables == (("dla",) if is_taken else ())
