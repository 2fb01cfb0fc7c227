"""The review finds what may trap, run on or grow, and lets the others pass."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

from appliance.modelstore.orders import Reviewed, ReviewOrder
from appliance.modelstore.stages.review import review, reviewed
from tests.modelstore.networks import FLOAT, INT64, attention, classifier, endless, model, nested, parsed, relu, write
from tests.modelstore.stages.stage_runs import quiet

HARMLESS = Reviewed(())


def found(made: onnx.ModelProto) -> Reviewed:
    return reviewed(made, Path("."))


def of(inputs: str, body: str, constants: str = "", output: str = "float y", opset: int = 17) -> Reviewed:
    """The review of a network as it is written."""
    return found(parsed(inputs, body, constants, output, opset))


@pytest.mark.parametrize("made", [relu(), classifier(), attention()])
def test_review_finds_usual_networks_harmless(made: onnx.ModelProto) -> None:
    """Convolutions, attention over free lengths: nothing depends on values."""
    assert found(made) == HARMLESS


@pytest.mark.parametrize(("divisor", "is_harmless"), [("2", True), ("-2,7", True), ("-1", False), ("3,0", False)])
@pytest.mark.parametrize("name", ["Div", "Mod"])
def test_review_allows_integer_division_by_safe_constants_only(name: str, divisor: str, is_harmless: bool) -> None:
    """INT_MIN by -1 traps, so does 0."""
    constant = f"int32[{divisor.count(',') + 1}] d = {{{divisor}}}"
    assert (of("int32[n] x", f"y = {name}(x, d)", constant, "int32 y") == HARMLESS) is is_harmless


def test_review_finds_integer_division_by_input_hazardous() -> None:
    """Floating point does not trap."""
    assert of("int32[n] x, int32[n] d", "y = Div(x, d)", output="int32 y").hazards
    assert of("float[n] x, float[n] d", "y = Div(x, d)") == HARMLESS


def test_review_does_not_believe_declared_type_of_inner_tensor() -> None:
    """A file may say that an inner tensor is floating point; its producer decides."""
    made = parsed("int32[n] x, int32[n] d", "a = Abs(x) y = Div(a, d)", output="int32[n] y")
    made.graph.value_info.append(helper.make_tensor_value_info("a", FLOAT, ["n"]))
    assert found(made).hazards


@pytest.mark.parametrize(("made", "words"), [(endless(), "Loop"), (nested(2), None), (relu(), None)])
def test_review_finds_loops_hazardous_and_constant_branches_harmless(made: onnx.ModelProto, words: str | None) -> None:
    """An If on a constant always takes the branch that was measured."""
    hazards = found(made).hazards
    assert hazards == () if words is None else words in hazards[0]


@pytest.mark.parametrize(
    ("inputs", "body"),
    [
        ("float[n] x, int64[2] s", "y = Reshape(x, s)"),
        ("float[n] x, int64[2] s", "y = Expand(x, s)"),
        ("float[n] x, int64[1] s", "y = Tile(x, s)"),
        ("int64[2] s", "y = ConstantOfShape(s)"),
        ("int64 a, int64 b, int64 c", "y = Range(a, b, c)"),
        ("float[n] x", "y = NonZero(x)"),
        ("float[n] x, int64[1] s", "y = TopK(x, s)"),
    ],
)
def test_review_finds_sizes_that_depend_on_input_values_hazardous(inputs: str, body: str) -> None:
    """How large a result is must not depend on values: shapes, counts, ranges, indices found."""
    assert of(inputs, body).hazards


def test_review_allows_sizes_of_input_shapes_if_every_shape_was_run() -> None:
    """x repeated as often as x is long: what a shorter x costs, the longest one does not tell."""
    given = of("float[n] x", "s = Shape(x) y = Expand(x, s)", output="float[n] y")
    assert given.hazards == ()
    assert "Expand" in given.unless_all_run[0]


def test_review_allows_recurrent_kernels_if_every_shape_was_run() -> None:
    """An empty axis ends the process, and what lies before them may make one."""
    weights = {"w": np.ones((1, 8, 3), np.float32), "r": np.ones((1, 8, 2), np.float32)}
    given = found(model("y = LSTM<hidden_size=2>(x, w, r)", {"x": ["l", "n", 3]}, {"y": ()}, weights))
    assert given.hazards == ()
    assert "LSTM" in given.unless_all_run[0]


@pytest.mark.parametrize(
    ("start", "end", "is_harmless"), [(0, 2**31 - 1, True), (1, -1, True), (-3, -1, True), (-10, 5, False)]
)
def test_review_allows_slices_that_grow_with_input(start: int, end: int, is_harmless: bool) -> None:
    """From the tenth last to the fifth: the shorter the input, the more of it."""
    bounds = f"int64[1] b = {{{start}}}, int64[1] e = {{{end}}}, int64[1] a = {{0}}"
    assert (of("float[n] x", "y = Slice(x, b, e, a)", bounds) == HARMLESS) is is_harmless


def test_review_finds_text_tensors_hazardous() -> None:
    """Text is of any length, as an input or made by a Cast."""
    assert of("string[n] x", "y = Identity(x)", output="string y").hazards
    assert of("float[n] x", f"y = Cast<to={onnx.TensorProto.STRING}>(x)", output="string y").hazards


@pytest.mark.parametrize(
    ("inputs", "body", "constants"),
    [
        ("int64[n] i", "s = Gather(t, i) y = Equal(s, w)", 'string[2] t = {"", "longlong"}, string[1] w = {"w"}'),
        ("float[n] x", "s = CastLike(x, w) y = Equal(s, w)", 'string[1] w = {"w"}'),
        ("float[n] x", 'w = Constant<value_strings=["w"]>() s = CastLike(x, w) y = Equal(s, w)', ""),
    ],
)
def test_review_finds_stored_text_hazardous(inputs: str, body: str, constants: str) -> None:
    """A table of words has as much to copy as the indices say, of which a run with other indices says nothing."""
    assert "text" in of(inputs, body, constants, "bool[n] y").hazards[0]


@pytest.mark.parametrize(
    ("body", "opset"),
    [
        ("s = Neg(b) y = Slice(x, s, e, a)", 17),
        ("p = Neg(e) y = Slice(x, b, e, a, p)", 17),
        ("y = Slice<starts=[-10], ends=[5], axes=[0]>(x)", 9),
    ],
)
def test_review_needs_every_shape_run_for_slices_of_unknown_bounds(body: str, opset: int) -> None:
    """The shorter the input, the more of it; told where the bounds cannot be read."""
    bounds = "int64[1] b = {10}, int64[1] e = {5}, int64[1] a = {0}"
    assert "Slice" in of("float[n] x", body, bounds, opset=opset).unless_all_run[0]


def test_review_treats_input_of_empty_name_as_absent() -> None:
    for node in (
        helper.make_node("Squeeze", ["x", ""], ["y"]),
        helper.make_node("Split", ["x", ""], ["y"], num_outputs=1),
    ):
        assert found(model([node], {"x": ("n", "m")}, {"y": ()}, opset=18)).unless_all_run


def test_review_finds_floating_point_remainder_hazardous() -> None:
    """1e308 by 3 takes a hundred times as long as 5 by 3."""
    assert of("float[n] x, float[n] d", "y = Mod<fmod=1>(x, d)").hazards


@pytest.mark.parametrize("name", ["Det", "Unheard"])
def test_review_finds_unknown_operators_hazardous(name: str) -> None:
    """The list says what is harmless; what is not on it is not."""
    assert of("float[n,n] x", f"y = {name}(x)").hazards


def test_review_takes_input_with_default_for_no_constant() -> None:
    """An initialiser that is an input, too, is what the caller says."""
    default = {"s": np.array([-1])}
    made = model("y = Reshape(x, s)", {"x": ("n",), "s": (1,)}, {"y": ("n",)}, default, types={"s": INT64})
    assert found(made).hazards


def test_review_stage_reads_model_file(tmp_path: Path) -> None:
    """As the child does."""
    assert "Loop" in review(ReviewOrder(write(endless(), tmp_path)), quiet).hazards[0]
