"""The review finds what may trap, run on or grow, and lets the others pass."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from appliance.modelstore.orders import Reviewed, ReviewOrder
from appliance.modelstore.stages.review import review, reviewed
from tests.modelstore.networks import FLOAT, INT64, attention, classifier, endless, model, nested, relu, write

I32 = TensorProto.INT32


def found(made: onnx.ModelProto) -> Reviewed:
    return reviewed(made, Path("."))


def one(name: str, inputs: dict[str, Any], weights: dict[str, Any] | None = None, **more: Any) -> Reviewed:
    """The review of one node over inputs and weights, in this order."""
    types = more.pop("types", {})
    attributes = more.pop("attributes", {})
    opset = more.pop("opset", 17)
    node = helper.make_node(name, more.pop("order", [*inputs, *(weights or {})]), ["y"], **attributes)
    stored = {key: np.asarray(value) for key, value in (weights or {}).items()}
    return found(model([node], inputs, {"y": ()}, stored, types={"y": FLOAT, **types}, opset=opset))


@pytest.mark.parametrize("made", [relu(), classifier(), attention()])
def test_review_finds_usual_networks_harmless(made: onnx.ModelProto) -> None:
    """Convolutions, attention over free lengths: nothing depends on values."""
    assert found(made) == Reviewed(())


@pytest.mark.parametrize(("divisor", "is_harmless"), [([2], True), ([-2, 7], True), ([-1], False), ([3, 0], False)])
def test_review_allows_integer_division_by_safe_constants_only(divisor: list[int], is_harmless: bool) -> None:
    """INT_MIN by -1 traps, so does 0."""
    for name in ("Div", "Mod"):
        given = one(name, {"x": ["n"]}, {"d": np.array(divisor, np.int32)}, types={"x": I32, "y": I32})
        assert (given == Reviewed(())) is is_harmless


def test_review_finds_integer_division_by_input_hazardous() -> None:
    """Floating point does not trap."""
    assert one("Div", {"x": ["n"], "d": ["n"]}, types={"x": I32, "d": I32, "y": I32}).hazards
    assert one("Div", {"x": ["n"], "d": ["n"]}) == Reviewed(())


def test_review_does_not_believe_declared_type_of_inner_tensor() -> None:
    """A file may say that an inner tensor is floating point; its producer decides."""
    nodes = [
        helper.make_node("Abs", ["x"], ["a"]),
        helper.make_node("Div", ["a", "d"], ["y"]),
    ]
    shape = ("n",)
    made = model(nodes, {"x": shape, "d": shape}, {"y": shape}, types={"x": I32, "d": I32, "y": I32})
    made.graph.value_info.append(helper.make_tensor_value_info("a", FLOAT, ["n"]))
    assert found(made).hazards


@pytest.mark.parametrize(("made", "words"), [(endless(), "Loop"), (nested(2), None), (relu(), None)])
def test_review_finds_loops_hazardous_and_constant_branches_harmless(made: onnx.ModelProto, words: str | None) -> None:
    """An If on a constant always takes the branch that was measured."""
    hazards = found(made).hazards
    assert hazards == () if words is None else words in hazards[0]


def test_review_finds_sizes_that_depend_on_input_values_hazardous() -> None:
    """How large a result is must not depend on values: shapes, counts, ranges, indices found."""
    types = {"s": INT64, "a": INT64, "b": INT64, "c": INT64}
    cases: dict[str, dict[str, Any]] = {
        "Reshape": {"x": ["n"], "s": [2]},
        "Expand": {"x": ["n"], "s": [2]},
        "Tile": {"x": ["n"], "s": [1]},
        "ConstantOfShape": {"s": [2]},
        "Range": {"a": [], "b": [], "c": []},
        "NonZero": {"x": ["n"]},
        "TopK": {"x": ["n"], "s": [1]},
    }
    for name, inputs in cases.items():
        assert one(name, inputs, types={key: types[key] for key in inputs if key in types}).hazards, name


def test_review_allows_sizes_of_input_shapes_if_every_shape_was_run() -> None:
    """x repeated as often as x is long: what a shorter x costs, the longest one does not tell."""
    nodes = [helper.make_node("Shape", ["x"], ["s"]), helper.make_node("Expand", ["x", "s"], ["y"])]
    given = found(model(nodes, {"x": ("n",)}, {"y": ("n",)}))
    assert given.hazards == ()
    assert "Expand" in given.unless_all_run[0]


def test_review_allows_recurrent_kernels_if_every_shape_was_run() -> None:
    """An empty axis ends the process, and what lies before them may make one."""
    weights = {"w": np.ones((1, 8, 3), np.float32), "r": np.ones((1, 8, 2), np.float32)}
    given = one("LSTM", {"x": ["l", "n", 3]}, weights, attributes={"hidden_size": 2})
    assert given.hazards == ()
    assert "LSTM" in given.unless_all_run[0]


@pytest.mark.parametrize(
    ("start", "end", "is_harmless"), [(0, 2**31 - 1, True), (1, -1, True), (-3, -1, True), (-10, 5, False)]
)
def test_review_allows_slices_that_grow_with_input(start: int, end: int, is_harmless: bool) -> None:
    """From the tenth last to the fifth: the shorter the input, the more of it."""
    weights = {"b": np.array([start]), "e": np.array([end]), "a": np.array([0])}
    assert (one("Slice", {"x": ["n"]}, weights) == Reviewed(())) is is_harmless


def test_review_finds_text_tensors_hazardous() -> None:
    """Text is of any length, as an input or made by a Cast."""
    assert one("Identity", {"x": ["n"]}, types={"x": TensorProto.STRING, "y": TensorProto.STRING}).hazards
    assert one("Cast", {"x": ["n"]}, attributes={"to": TensorProto.STRING}, types={"y": TensorProto.STRING}).hazards


@pytest.mark.parametrize(
    "made",
    [
        model(
            [helper.make_node("Gather", ["t", "i"], ["s"]), helper.make_node("Equal", ["s", "w"], ["y"])],
            {"i": ("n",)},
            {"y": ("n",)},
            {"t": np.array(["", "long" * 100], np.object_), "w": np.array(["w"], np.object_)},
            types={"i": INT64, "y": TensorProto.BOOL},
        ),
        model(
            [helper.make_node("CastLike", ["x", "w"], ["s"]), helper.make_node("Equal", ["s", "w"], ["y"])],
            {"x": ("n",)},
            {"y": ("n",)},
            {"w": np.array(["w"], np.object_)},
            types={"y": TensorProto.BOOL},
        ),
        model(
            [
                helper.make_node("Constant", [], ["w"], value_strings=["w"]),
                helper.make_node("CastLike", ["x", "w"], ["s"]),
                helper.make_node("Equal", ["s", "w"], ["y"]),
            ],
            {"x": ("n",)},
            {"y": ("n",)},
            types={"y": TensorProto.BOOL},
        ),
    ],
)
def test_review_finds_stored_text_hazardous(made: onnx.ModelProto) -> None:
    """A table of words has as much to copy as the indices say, of which a run with other indices says nothing."""
    assert "text" in found(made).hazards[0]


def test_review_needs_every_shape_run_for_slices_of_unknown_bounds() -> None:
    """The shorter the input, the more of it; told where the bounds cannot be read."""
    bounds = {"b": np.array([10]), "e": np.array([5]), "a": np.array([0])}
    computed = [helper.make_node("Neg", ["b"], ["s"]), helper.make_node("Slice", ["x", "s", "e", "a"], ["y"])]
    assert "Slice" in found(model(computed, {"x": ("n",)}, {"y": ()}, bounds)).unless_all_run[0]
    stepped = [helper.make_node("Neg", ["e"], ["p"]), helper.make_node("Slice", ["x", "b", "e", "a", "p"], ["y"])]
    assert "Slice" in found(model(stepped, {"x": ("n",)}, {"y": ()}, bounds)).unless_all_run[0]
    old = one("Slice", {"x": ["n"]}, attributes={"starts": [-10], "ends": [5], "axes": [0]}, opset=9)
    assert "Slice" in old.unless_all_run[0]


def test_review_treats_input_of_empty_name_as_absent() -> None:
    assert one("Squeeze", {"x": ["n", "m"]}, order=["x", ""]).unless_all_run
    parts = {"x": ["n"]}
    assert one("Split", parts, order=["x", ""], attributes={"num_outputs": 1}, opset=18).unless_all_run


def test_review_finds_floating_point_remainder_hazardous() -> None:
    """1e308 by 3 takes a hundred times as long as 5 by 3."""
    assert one("Mod", {"x": ["n"], "d": ["n"]}, attributes={"fmod": 1}).hazards


def test_review_finds_unknown_operators_hazardous() -> None:
    """The list says what is harmless; what is not on it is not."""
    assert one("Det", {"x": ["n", "n"]}).hazards
    assert one("Unheard", {"x": ["n"]}).hazards


def test_review_takes_input_with_default_for_no_constant() -> None:
    """An initialiser that is an input, too, is what the caller says."""
    made = model(
        [helper.make_node("Reshape", ["x", "s"], ["y"])],
        {"x": ("n",), "s": (1,)},
        {"y": ("n",)},
        {"s": np.array([-1])},
        types={"s": INT64},
    )
    assert found(made).hazards


def test_review_stage_reads_model_file(tmp_path: Path) -> None:
    """As the child does."""
    path = write(endless(), tmp_path)
    assert "Loop" in review(ReviewOrder(path), lambda share, words: None).hazards[0]
