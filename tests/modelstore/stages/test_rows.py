"""Which graphs keep the rows of a batch apart: small ones with every operator that is known, and those that do not."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest

from appliance.domain.catalogue import TaskSpec
from appliance.modelstore.orders import Extent, ReviewOrder
from appliance.modelstore.stages import graph as facts
from appliance.modelstore.stages import rows
from tests.modelstore import networks

ROW = "float[N,4] x"
PICTURE = "float[N,3,8,8] x"
SERIES = "float[N,6,4] x"
W44 = "float[4,4] w = {1,2,0,0, 0,1,0,0, 0,0,1,3, 0,0,0,1}"


def review(folder: Path, inputs: str, body: str, constants: str = "", opset: int = 17) -> ReviewOrder:
    """A graph with output `y`; its first input's first axis, and every other's, counts rows."""
    model = networks.parsed(inputs, body, constants, opset=opset)
    del model.graph.output[0].type.tensor_type.shape.dim[:]
    model.graph.output[0].type.tensor_type.ClearField("shape")
    path = folder / "model.onnx"
    onnx.save(model, path)
    specs = tuple(facts.spec(value) for value in model.graph.input)
    axes = {spec.name: ("batch", *("" for _ in spec.shape[1:])) if spec.shape else () for spec in specs}
    return ReviewOrder(str(path), specs, axes, TaskSpec())


APART = {
    "elementwise": (ROW, "a = Relu(x) b = Add(a, w) y = Mul(b, x)", "float[4] w = {1,2,3,4}"),
    "product": (ROW, "y = MatMul(x, w)", W44),
    "product of rows with rows": (SERIES, "t = Transpose<perm=[0,2,1]>(x) y = MatMul(t, x)", ""),
    "columns of the right": (
        SERIES,
        "t = Transpose<perm=[1,2,0]>(x) a = MatMul(w, t) y = Transpose<perm=[2,0,1]>(a)",
        W44,
    ),
    "gemm": (ROW, "y = Gemm<transB=1>(x, w, c)", W44 + ", float[4] c = {1,1,1,1}"),
    "gemm that adds rows": (ROW, "y = Gemm(x, w, x)", W44),
    "einsum": (SERIES, 'y = Einsum<equation="bij,jk->bik">(x, w)', W44),
    "convolution": (PICTURE, "a = Conv(x, w) b = GlobalAveragePool(a) y = Flatten(b)", "float[1,3,1,1] w = {1,2,3}"),
    "instance norm": (PICTURE, "y = InstanceNormalization(x, s, s)", "float[3] s = {1,1,1}"),
    "reduction inside a row": (PICTURE, "a = ReduceMax<axes=[1,3]>(x) y = ReduceMean<axes=[1,2],keepdims=0>(a)", ""),
    "reduction with axes as an input": (ROW, "y = ReduceSum(x, a)", "int64[1] a = {1}"),
    "no reduction at all": (ROW, "y = ReduceSum<noop_with_empty_axes=1>(x)", ""),
    "argmax": (ROW, "a = ArgMax<axis=1,keepdims=0>(x) y = Cast<to=1>(a)", ""),
    "softmax": (ROW, "y = Softmax<axis=1>(x)", ""),
    "layer norm": (SERIES, "y = LayerNormalization(x, s)", "float[4] s = {1,2,1,1}"),
    "sort": (ROW, "y, i = TopK<axis=1>(x, k)", "int64[1] k = {2}"),
    "cumulative sum in a row": (ROW, "y = CumSum(x, a)", "int64 a = {1}"),
    "mean and variance of a picture": (PICTURE, "y = MeanVarianceNormalization<axes=[2,3]>(x)", ""),
    "reshape and back": (
        SERIES,
        "a = Reshape(x, s) b = MatMul(a, w) y = Reshape(b, t)",
        W44 + ", int64[2] s = {-1,4}, int64[3] t = {-1,6,4}",
    ),
    "shape read": (
        SERIES,
        "n = Shape(x) b = Slice(n, z, o, z) s = Concat<axis=0>(b, m) y = Reshape(x, s)",
        "int64[1] z = {0}, int64[1] o = {1}, int64[1] m = {24}",
    ),
    "a size read that does not change": (
        SERIES,
        "n = Shape(x) w = Gather(n, o) f = Cast<to=1>(w) y = Div(x, f)",
        "int64 o = {2}",
    ),
    "joined along another axis": (ROW, "a = Neg(x) y = Concat<axis=1>(x, a)", ""),
    "split": (ROW, "a, b = Split<axis=1>(x) y = Sub(a, b)", ""),
    "slice": (ROW, "y = Slice(x, s, e, a)", "int64[1] s = {1}, int64[1] e = {3}, int64[1] a = {1}"),
    "slice of all rows": (
        ROW,
        "y = Slice(x, s, e, a, t)",
        "int64[1] s = {0}, int64[1] e = {99}, int64[1] a = {0}, int64[1] t = {1}",
    ),
    "pad": (ROW, "y = Pad(x, p)", "int64[4] p = {0,1,0,1}"),
    "resize": (PICTURE, "y = Resize(x, , s)", "float[4] s = {1,1,2,2}"),
    "gathered columns": (ROW, "y = Gather<axis=1>(x, i)", "int64[2] i = {3,0}"),
    "table of words": ("int64[N,5] x", "y = Gather(w, x)", W44),
    "gathered each": ("float[N,4] x, int64[N,2] i", "y = GatherElements<axis=1>(x, i)", ""),
    "gathered deep in each": ("float[N,4] x, int64[N,2,1] i", "y = GatherND<batch_dims=1>(x, i)", ""),
    "gathered deep in a table": ("int64[N,5,1] x", "y = GatherND(w, x)", W44),
    "gathered by the own place": (
        ROW,
        "n = Shape(x) c = Gather(n, z) r = Range(z, c, o) u = Unsqueeze(r, m) k = Add(u, f) j = Mul(k, f)"
        " i = Concat<axis=1>(u, j) y = GatherND(x, i)",
        "int64 z = {0}, int64 o = {1}, int64[1] m = {1}, int64[1] f = {0}",
    ),
    "table repeated for each row": (
        ROW,
        "n = Shape(x) e = Expand(w, n) y = Add(x, e)",
        "float[1,4] w = {1,2,3,4}",
    ),
    "state of zeros": (ROW, "n = Shape(x) e = ConstantOfShape(n) y = Add(x, e)", ""),
    "tiled": (ROW, "y = Tile(x, t)", "int64[2] t = {1,3}"),
    "one hot": ("int64[N,4] x", "y = OneHot<axis=1>(x, d, v)", "int64 d = {5}, float[2] v = {0,1}"),
    "triangle": (SERIES, "y = Trilu(x)", ""),
    "quantised": (ROW, "q = QuantizeLinear(x, s, z) y = DequantizeLinear(q, s, z)", "float s = {0.1}, uint8 z = {0}"),
    "whole numbers": (
        "uint8[N,4] x",
        "a = MatMulInteger(x, w) y = Cast<to=1>(a)",
        "int8[4,4] w = {1,2,0,0, 0,1,0,0, 0,0,1,3, 0,0,0,1}",
    ),
    "branch on a constant": (
        ROW,
        "h = If(c) <then_branch = t () => (float[4] u) { u = Relu(w) }, "
        "else_branch = e () => (float[4] v) { v = Neg(w) }> y = Add(x, h)",
        "bool c = {1}, float[4] w = {1,2,3,4}",
    ),
    "class token repeated for each row": (
        SERIES,
        "n = Shape(x) b = Slice(n, z, o, z) s = Concat<axis=0>(b, o, m) t = Expand(c, s) y = Concat<axis=1>(t, x)",
        "int64[1] z = {0}, int64[1] o = {1}, int64[1] m = {4}, float[1,1,4] c = {1,2,3,4}",
    ),
    "what leads to no output": (ROW, "m = ReduceMax(x) y = Relu(x)", ""),
}
TOGETHER = {
    "largest of the batch": (
        ROW,
        "m = ReduceMax<keepdims=1>(x) l = Less(m, t) f = Cast<to=1>(l) y = Mul(x, f)",
        "float t = {60}",
    ),
    "mean over the rows": (ROW, "m = ReduceMean<axes=[0]>(x) y = Sub(x, m)", ""),
    "reduction of computed axes": (
        ROW,
        "i = Cast<to=7>(x) a = ReduceMax<keepdims=0>(i) u = Unsqueeze(a, z) y = ReduceSum(x, u)",
        "int64[1] z = {0}",
    ),
    "softmax over the rows": (ROW, "y = Softmax<axis=0>(x)", ""),
    "best row": (ROW, "a = ArgMax<axis=0>(x) f = Cast<to=1>(a) y = Add(x, f)", ""),
    "sorted rows": (ROW, "y, i = TopK<axis=0>(x, k)", "int64[1] k = {1}"),
    "cumulative sum over the rows": (ROW, "y = CumSum(x, a)", "int64 a = {0}"),
    "attention between rows": (ROW, "t = Transpose<perm=[1,0]>(x) a = MatMul(x, t) y = MatMul(a, x)", ""),
    "gram matrix of the rows": (ROW, "t = Transpose<perm=[1,0]>(x) a = MatMul(t, x) y = MatMul(x, a)", ""),
    "einsum over the rows": (SERIES, 'y = Einsum<equation="bij,cij->bij">(x, x)', ""),
    "a row for all": (ROW, "r = Gather(x, z) y = Add(x, r)", "int64 z = {0}"),
    "rows in reverse": (
        ROW,
        "y = Slice(x, s, e, a, t)",
        "int64[1] s = {-1}, int64[1] e = {-99}, int64[1] a = {0}, int64[1] t = {-1}",
    ),
    "rows moved": (ROW, "y = Pad(x, p)", "int64[4] p = {1,0,-1,0}"),
    "rows torn apart": (SERIES, "a = Transpose<perm=[1,0,2]>(x) y = Reshape(a, s)", "int64[3] s = {-1,6,4}"),
    "number of rows": (ROW, "n = Shape(x) c = Gather(n, z) f = Cast<to=1>(c) y = Div(x, f)", "int64 z = {0}"),
    "place of the row": (
        ROW,
        "n = Shape(x) c = Gather(n, z) r = Range(z, c, o) f = Cast<to=1>(r) u = Unsqueeze(f, m) y = Add(x, u)",
        "int64 z = {0}, int64 o = {1}, int64[1] m = {1}",
    ),
    "mean and variance of all": (PICTURE, "y = MeanVarianceNormalization(x)", ""),
    "norm of training": (
        PICTURE,
        "y, m, v = BatchNormalization<training_mode=1>(x, s, s, s, s)",
        "float[3] s = {1,1,1}",
    ),
    "scale of the batch": (ROW, "q, s, z = DynamicQuantizeLinear(x) y = DequantizeLinear(q, s, z)", ""),
    "control flow": (
        ROW,
        "m = ReduceMax<keepdims=0>(x) c = Less(m, t) y = If(c) <then_branch = t () => (float[N,4] u) { u = Relu(x) },"
        " else_branch = e () => (float[N,4] v) { v = Neg(x) }>",
        "float t = {60}",
    ),
    "branch that reads rows": (
        ROW,
        "y = If(c) <then_branch = t () => (float[N,4] u) { u = Relu(x) }, "
        "else_branch = e () => (float[N,4] v) { v = Neg(x) }>",
        "bool c = {1}",
    ),
    "noise": (ROW, "r = RandomNormal<shape=[1,4]>() y = Add(x, r)", ""),
    "output without rows": (ROW, "y = ReduceSum<keepdims=0>(x)", ""),
    "unknown operator": (ROW, "y = NonZero(x)", ""),
    "compressed": (ROW, "b = Cast<to=9>(x) y = Compress(x, b)", ""),
    "rows in reverse by computed axes": (
        ROW,
        "a = Abs(i) y = Slice(x, s, e, a, t)",
        "int64[2] i = {1,0}, int64[2] s = {0,-1}, int64[2] e = {99,-99}, int64[2] t = {1,-1}",
    ),
    "scale near 1": (ROW, 'y = Resize<mode="linear">(x, , s)', "float[2] s = {1.1,2}"),
    "flag of an odd value": (ROW, "r = ReduceSum<noop_with_empty_axes=2>(x) y = Add(x, r)", ""),
    "negative axes": (PICTURE, "y = MeanVarianceNormalization<axes=[-4,2,3]>(x)", ""),
    "half a row beside rows": (
        "float[N,2,4] x, int64[N,4] i",
        "a = Reshape(x, s) y = GatherElements<axis=1>(a, i)",
        "int64[2] s = {-1,4}",
    ),
    "two lines a row": ("float[N,2,4] x", "y = Reshape(x, s)", "int64[2] s = {-1,4}"),
    "place of the row among lines": (
        "float[N,2,4] x",
        "a = Reshape(x, s) n = Shape(x) c = Gather(n, z) r = Range(z, c, o) u = Unsqueeze(r, m) y = GatherND(a, u)",
        "int64[2] s = {-1,4}, int64 z = {0}, int64 o = {1}, int64[1] m = {1}",
    ),
    "row of another from the fourth on": (
        ROW,
        "n = Shape(x) c = Gather(n, z) r = Range(z, c, o) u = Unsqueeze(r, m) v = Mod(u, t) g = GatherND(x, v)"
        " b = Greater(g, f) y = Where(b, g, x)",
        "int64 z = {0}, int64 o = {1}, int64[1] m = {1}, int64 t = {3}, float f = {900}",
    ),
    "as often as there are rows": (
        ROW,
        "n = Shape(x) c = Slice(n, z, o, z) u = Unsqueeze(x, o) s = Concat<axis=0>(c, c, m) e = Expand(u, s)"
        " y = ReduceSum<keepdims=0>(e, o)",
        "int64[1] z = {0}, int64[1] o = {1}, int64[1] m = {4}",
    ),
    "row that is lost where it is alone": ("float[N,1,4] x", "y = Squeeze(x)", ""),
    "places in the whole tensor": (PICTURE, "p, y = MaxPool<kernel_shape=[8,8]>(x)", ""),
    "training": (ROW, "y = Dropout(x, r, t)", "float r = {0.5}, bool t = {1}"),
}


def numeric(order: ReviewOrder) -> bool:
    """Whether rows of random inputs come out among others as they do alone."""
    session = onnxruntime.InferenceSession(order.source, providers=["CPUExecutionProvider"])
    generator = np.random.default_rng(3)
    feeds = {}
    for spec in order.inputs:
        shape = [5, *spec.shape[1:]]
        is_float = spec.datatype == "FP32"
        drawn = (
            generator.normal(0, 3, shape) if is_float else generator.integers(0, 1 if "i" in spec.name else 4, shape)
        )
        feeds[spec.name] = drawn.astype({"FP32": np.float32, "INT64": np.int64, "UINT8": np.uint8}[spec.datatype])
    whole = session.run(["y"], feeds)[0]
    alone = [session.run(["y"], {name: one[row : row + 1] for name, one in feeds.items()})[0] for row in range(5)]
    return bool(np.allclose(whole, np.concatenate(alone), atol=1e-4))


@pytest.mark.parametrize("name", APART)
def test_graph_that_keeps_rows_apart_has_no_row_dependence(name: str, tmp_path: Path) -> None:
    """The graph shows it, and so do numbers."""
    order = review(tmp_path, *APART[name])
    assert rows.dependence(order) == ""
    assert numeric(order)


@pytest.mark.parametrize("name", TOGETHER)
def test_graph_whose_rows_influence_each_other_has_row_dependence(name: str, tmp_path: Path) -> None:
    """Whether numbers show it or not."""
    assert rows.dependence(review(tmp_path, *TOGETHER[name])) != ""


@pytest.mark.parametrize(("axis", "is_apart"), [(1, True), (0, False)])
def test_row_dependence_of_old_softmax_counts_all_later_axes(axis: int, is_apart: bool, tmp_path: Path) -> None:
    """Before operator set 13 all axes from `axis` on were one."""
    found = rows.dependence(review(tmp_path, SERIES, f"y = Softmax<axis={axis}>(x)", opset=11))
    assert (found == "") is is_apart


def test_row_dependence_reason_names_operator(tmp_path: Path) -> None:
    assert rows.dependence(review(tmp_path, *TOGETHER["sorted rows"])) == "TopK works across rows"
    assert rows.dependence(review(tmp_path, *TOGETHER["control flow"])).startswith("ReduceMax")


def test_row_dependence_ignores_inputs_without_rows(tmp_path: Path) -> None:
    """Such inputs share no runs whatever the graph says."""
    order = review(tmp_path, "float[4] x", "y = ReduceMax(x)")
    assert rows.dependence(order) == ""


def test_row_dependence_is_tried_at_sizes_of_trial_run(tmp_path: Path) -> None:
    """Without them usual sizes are tried, and none of these has a multiple of 7."""
    order = review(tmp_path, "float[N,T] x", "y = Reshape(x, s)", "int64[3] s = {0,7,-1}")
    order = replace(order, axes={"x": ("batch", "sequence")})
    assert rows.dependence(order).startswith("it does not run with several rows")
    assert rows.dependence(replace(order, trial=Extent(length=21))) == ""


def test_row_dependence_does_not_rely_on_length_of_trial(tmp_path: Path) -> None:
    """Rows are kept apart by a constant that happens to be the length of the trial."""
    body = (
        "t = Transpose<perm=[1,0,2]>(x) r = Reshape(t, s) v = Transpose<perm=[1,0,2]>(r) n = Shape(x) y = Reshape(v, n)"
    )
    order = review(tmp_path, "float[N,T,4] x", body, "int64[3] s = {16,-1,4}")
    order = replace(order, axes={"x": ("batch", "sequence", "")}, trial=Extent(length=16))
    assert rows.dependence(order) == "Reshape tears rows apart"


def test_row_dependence_takes_input_with_default_for_no_constant(tmp_path: Path) -> None:
    order = review(tmp_path, "float[N,4] x, float[N,4] w", "t = ReduceMax<axes=[0]>(w) y = Add(x, t)")
    model = onnx.load(order.source)
    model.graph.initializer.append(onnx.helper.make_tensor("w", onnx.TensorProto.FLOAT, [1, 4], [0.0] * 4))
    onnx.save(model, order.source)
    assert rows.dependence(order) == "input w has a default"


def test_graph_with_two_versions_of_operator_set_has_row_dependence(tmp_path: Path) -> None:
    """ONNX Runtime takes the last one, whichever that is."""
    order = review(tmp_path, ROW, "y = Relu(x)")
    model = onnx.load(order.source)
    model.opset_import.append(onnx.helper.make_opsetid("ai.onnx", 11))
    onnx.save(model, order.source)
    assert rows.dependence(order) == "it declares several operator sets"
