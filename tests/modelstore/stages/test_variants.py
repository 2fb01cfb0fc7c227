"""What becomes of a network in other precisions: the recipes and the traps, on small networks with real weights."""

import math
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from appliance.domain.catalogue import ImageSpec, Precision, TaskKind, TaskSpec
from appliance.modelstore.orders import Inspection, Made, MakeOrder, Reviewed
from appliance.modelstore.stages import quantise
from appliance.modelstore.stages.variants import make
from tests.modelstore import lessons, networks
from tests.modelstore.stages.stage_runs import inspected, quiet

pytestmark = pytest.mark.gate("works on real networks and files")

PICTURES = TaskSpec(TaskKind.IMAGE_CLASSIFICATION, image=ImageSpec(height=64, width=64, multiple=16))


def made_of(
    model: onnx.ModelProto,
    folder: Path,
    precision: Precision,
    task: TaskSpec = PICTURES,
    calibration: tuple[str, ...] = (),
) -> tuple[Inspection, Made]:
    inspection = inspected(model, folder, task)
    order = MakeOrder(inspection, task, precision, str(folder / "made"), calibration)
    return inspection, make(order, quiet)


def relative_error(path: str, original: str, **inputs: np.ndarray) -> float:
    got, expected = networks.run(path, **inputs)[0], networks.run(original, **inputs)[0]
    return float(np.linalg.norm(got - expected) / np.linalg.norm(expected))


def picture(side: int = 64, seed: int = 7) -> np.ndarray:
    return np.random.default_rng(seed).uniform(0, 1, (1, 3, side, side)).astype(np.float32)


def stored_types(path: str) -> set[int]:
    return {t.data_type for t in networks.load(path).graph.initializer if math.prod(t.dims) > 1000}


def test_fp32_variant_is_normalised_file_at_every_size(tmp_path: Path) -> None:
    """Nothing is converted; rungs share the file and are named by size."""
    inspection, made = made_of(networks.classifier(), tmp_path, Precision.FP32)
    assert [variant.name for variant in made.variants] == ["fp32", "fp32-48x48", "fp32-32x32"]
    assert {variant.path for variant in made.variants} == {inspection.model}
    assert [(variant.height, variant.width) for variant in made.variants] == [(64, 64), (48, 48), (32, 32)]
    assert {variant.batch_max for variant in made.variants} == {8}


def test_fp16_variant_halves_file_and_keeps_interface(tmp_path: Path) -> None:
    """Weights are fp16, inputs and outputs stay fp32, answers stay close, metadata stays."""
    inspection, made = made_of(networks.classifier(), tmp_path, Precision.FP16)
    path = made.variants[0].path
    assert made.variants[0].size_bytes < 0.6 * inspection.size_bytes
    assert stored_types(path) == {TensorProto.FLOAT16}
    assert relative_error(path, inspection.model, x=picture()) < 0.01
    model = networks.load(path)
    assert model.graph.input[0].type.tensor_type.elem_type == TensorProto.FLOAT
    assert [(entry.key, entry.value) for entry in model.metadata_props] == [("classes", "a,b,c")]


def test_int8_variant_of_convolution_net_is_static_and_per_channel(tmp_path: Path) -> None:
    """Weights are int8 with a scale for each channel; calibrated on real pictures; runs at every size and batch;
    close to fp32.
    """
    calibration = lessons.pictures(tmp_path / "calibration")
    inspection, made = made_of(networks.classifier(opset=11), tmp_path, Precision.INT8, calibration=calibration)
    assert [variant.name for variant in made.variants] == ["int8", "int8-48x48", "int8-32x32"]
    assert "6 calibration inputs" in made.variants[0].notes
    path = made.variants[0].path
    assert made.variants[0].size_bytes < 0.5 * inspection.size_bytes
    model = networks.load(path)
    scales = [
        numpy_helper.to_array(t).shape for t in model.graph.initializer if t.name.startswith("w3") and "scale" in t.name
    ]
    assert scales == [(64,)]
    assert relative_error(path, inspection.model, x=picture()) < 0.15
    assert networks.run(path, x=np.concatenate([picture(48)] * 3))[0].shape == (3, 5)
    assert model.metadata_props[0].key == "classes"


def test_int8_variant_without_calibration_inputs_notes_lack(tmp_path: Path) -> None:
    """Synthetic inputs keep the network alive, and the note warns."""
    _, made = made_of(networks.classifier(), tmp_path, Precision.INT8)
    assert "synthetic inputs, as no calibration input was usable" in made.variants[0].notes
    broken = tmp_path / "broken.png"
    broken.write_bytes(b"no picture")
    (tmp_path / "again").mkdir()
    _, made = made_of(networks.classifier(), tmp_path / "again", Precision.INT8, calibration=(str(broken),))
    assert "broken.png" in made.variants[0].notes


def test_int8_variant_of_transformer_is_dynamic(tmp_path: Path) -> None:
    """MatMul weights and the large embedding table are int8, scores stay close, lengths and batches stay free."""
    inspection, made = made_of(networks.attention(), tmp_path, Precision.INT8, TaskSpec())
    assert inspection.family == "transformer"
    path = made.variants[0].path
    assert stored_types(path) == {TensorProto.INT8, TensorProto.UINT8}, "projections and table"
    assert made.variants[0].size_bytes < 0.35 * inspection.size_bytes
    ids = np.array([[4, 8, 15, 16, 23, 42]] * 2)
    assert networks.run(path, input_ids=ids)[0].shape == (2, 6, 64)
    assert relative_error(path, inspection.model, input_ids=ids) < 0.1


def test_int8_variant_keeps_padding_with_minus_infinity(tmp_path: Path) -> None:
    """A tensor without a finite range stays fp32; what is around it is quantised all the same."""
    rng = np.random.default_rng(0)
    weights = {
        "w1": rng.standard_normal((32, 3, 3, 3)).astype(np.float32) / 5,
        "w2": rng.standard_normal((64, 32, 3, 3)).astype(np.float32) / 17,
        "pads": np.array([0, 0, 0, 0, 0, 0, 1, 1]),
        "low": np.array(-np.inf, np.float32),
    }
    nodes = (
        "c = Conv<pads=[1, 1, 1, 1]>(x, w1) p = Pad(c, pads, low) "
        "m = MaxPool<kernel_shape=[3, 3], strides=[2, 2]>(p) y = Conv<pads=[1, 1, 1, 1]>(m, w2)"
    )
    made_model = networks.model(nodes, {"x": ("n", 3, 32, 32)}, {"y": ("n", 64, 16, 16)}, weights)
    inspection, made = made_of(made_model, tmp_path, Precision.INT8, TaskSpec())
    x = np.random.default_rng(1).uniform(0, 1, (1, 3, 32, 32)).astype(np.float32)
    assert relative_error(made.variants[0].path, inspection.model, x=x) < 0.1
    assert stored_types(made.variants[0].path) == {TensorProto.INT8}


def test_calibration_ranges_find_outliers_and_endless_tensors(tmp_path: Path) -> None:
    """Extremes keep a single outlier, the usual range drops it; a Relu's range goes to the tensor before it."""
    inspection = inspected(networks.classifier(), tmp_path, PICTURES)
    outlier = picture()
    outlier[0, 0, 0, 0] = 1000.0
    ranges = quantise.Ranges(
        Path(inspection.model), [{"x": picture(seed=seed)} for seed in range(4)] + [{"x": outlier}]
    )
    assert ranges.extremes["x"][1] == 1000.0
    assert ranges.usual["x"][1] < 2
    assert not ranges.endless
    before, after = next(iter(ranges.rectified.items()))
    data = ranges.data(is_clipped=False)
    assert data[before].range_value == data[after].range_value
    assert data[before].range_value[0] == 0


def test_quantisation_finds_depthwise_and_outer_layers(tmp_path: Path) -> None:
    """The layers that int8 hurts most have names; a large last layer is not among them."""
    inspection = inspected(networks.classifier(), tmp_path, PICTURES)
    nodes = {node.name: node for node in networks.load(inspection.model).graph.node}
    assert [list(nodes[name].input)[1] for name in quantise.depthwise(Path(inspection.model))] == ["wd"]
    assert [list(nodes[name].input)[1] for name in quantise.ends(Path(inspection.model))] == ["w1"]


def test_int8_weights_are_widened_before_other_precisions_are_made(tmp_path: Path) -> None:
    """Weight-only int8 is served as it is, and becomes fp16 and true int8 from its fp32 values."""
    rng = np.random.default_rng(0)
    weights: dict[str, np.ndarray] = {
        "q": rng.integers(-127, 128, (64, 256)).astype(np.int8),
        "scale": rng.uniform(0.001, 0.003, 256).astype(np.float32),
        "p": rng.integers(-127, 128, (256, 64)).astype(np.int8),
        "s": np.array(0.002, np.float32),
    }
    nodes = "w = DequantizeLinear<axis=1>(q, scale) h = MatMul(x, w) pf = Cast<to=1>(p) v = Mul(pf, s) y = MatMul(h, v)"
    model = networks.model(nodes, {"x": ("n", 64)}, {"y": ("n", 64)}, weights)
    x = rng.standard_normal((3, 64)).astype(np.float32)
    for precision, kind, error in (
        (Precision.FP16, TensorProto.FLOAT16, 0.01),
        (Precision.INT8, TensorProto.INT8, 0.3),  # sums of bytes saturate on processors without instructions for them
    ):
        inspection, made = made_of(model, tmp_path, precision, TaskSpec())
        assert inspection.weights == "int8"
        assert stored_types(made.variants[0].path) == {kind}
        assert relative_error(made.variants[0].path, inspection.model, x=x) < error
    _, original = made_of(model, tmp_path, Precision.FP32, TaskSpec())
    assert "int8 weights" in original.variants[0].notes


@pytest.mark.parametrize("precision", [Precision.FP16, Precision.INT8])
def test_weights_in_separate_file_are_converted(tmp_path: Path, precision: Precision) -> None:
    """The converters read external data; what they make is one file again."""
    inspection = inspected(networks.classifier(), tmp_path, PICTURES, rewrite_bytes_max=1000)
    made = make(MakeOrder(inspection, PICTURES, precision, str(tmp_path / "made")), quiet)
    assert made.variants[0].files == (made.variants[0].path,)
    assert relative_error(made.variants[0].path, inspection.model, x=picture()) < 0.2


@pytest.mark.parametrize("precision", [Precision.FP32, Precision.FP16, Precision.INT8])
def test_made_variant_is_reviewed_by_child(tmp_path: Path, precision: Precision) -> None:
    """Where none is made there is no review that could be taken for a good one."""
    assert made_of(networks.classifier(), tmp_path, precision, PICTURES)[1].reviewed == Reviewed(())
    found = helper.make_node("NonZero", ["x"], ["y"])
    values = networks.model([found], {"x": ("n", 4)}, {"y": (2, "m")}, types={"y": int(TensorProto.INT64)})
    assert "NonZero" in made_of(values, tmp_path, Precision.FP32, TaskSpec())[1].reviewed.hazards[0]
    assert Made((), "it cannot be made").reviewed.hazards


def test_review_of_precision_includes_hazards_of_original() -> None:
    """Each sentence once."""
    of_original, of_precision = Reviewed(("Loop",), ("Reshape",)), Reviewed(("Loop", "Scan"), ())
    assert of_original.joined(of_precision) == Reviewed(("Loop", "Scan"), ("Reshape",))


@pytest.mark.parametrize("precision", [Precision.FP16, Precision.INT8])
def test_precision_that_cannot_be_made_has_reason(tmp_path: Path, precision: Precision) -> None:
    """Quantised graphs, nothing to convert, int8 of half weights, whose fp16 is the upload itself: an answer with a
    reason, no error.
    """
    half = networks.model(
        "y = MatMul(x, w)",
        {"x": ("n", 64)},
        {"y": ("n", 64)},
        {"w": np.ones((64, 64), np.float16)},
        types={"x": int(TensorProto.FLOAT16), "y": int(TensorProto.FLOAT16)},
    )
    of_half = made_of(half, tmp_path, precision, TaskSpec())[1]
    assert [one.is_original for one in of_half.variants] == ([True] if precision is Precision.FP16 else [])
    assert ("weights are fp16" in of_half.reason) is (precision is Precision.INT8)
    nothing = made_of(networks.relu(), tmp_path, precision, TaskSpec())[1]
    assert not nothing.variants
    assert nothing.reason
    assert not nothing.reason.startswith(precision.value + ":")
    _, int8 = made_of(networks.classifier(), tmp_path, Precision.INT8)
    again = networks.load(int8.variants[0].path)
    assert "quantised already" in made_of(again, tmp_path, precision)[1].reason
