"""What a variant's accuracy is measured on, and that it is measured right."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from onnx import numpy_helper

from appliance.domain.catalogue import Evidence, ImageSpec, Precision, TaskKind, TaskSpec
from appliance.domain.errors import BadMetadata
from appliance.modelstore.orders import Evaluated, EvaluateOrder, Inspection, MadeVariant, MakeOrder
from appliance.modelstore.stages.accuracy import evaluate
from appliance.modelstore.stages.variants import make
from tests.modelstore import lessons, networks
from tests.modelstore.stages.stage_runs import inspected, quiet
from tests.present import present

PICTURES = TaskSpec(TaskKind.IMAGE_CLASSIFICATION, image=ImageSpec(height=64, width=64, multiple=16))


def learnt(folder: Path, *precisions: Precision) -> tuple[Inspection, tuple[MadeVariant, ...]]:
    """The trained net and its variants."""
    inspection = inspected(lessons.trained(), folder, lessons.TENSOR)
    orders = [MakeOrder(inspection, lessons.TENSOR, precision, str(folder / "made")) for precision in precisions]
    return inspection, tuple(variant for order in orders for variant in make(order, quiet).variants)


def only(found: Evaluated) -> tuple[float, str, str, int]:
    accuracy = found.accuracies[0]
    assert accuracy is not None, found.reasons
    return accuracy.share, accuracy.metric, accuracy.against, accuracy.samples


def spoilt(variant: MadeVariant, folder: Path) -> MadeVariant:
    """A variant whose last weights are noise."""
    model = networks.load(variant.path)
    tensor = next(tensor for tensor in model.graph.initializer if tensor.name == "w2")
    noise = np.random.default_rng(0).standard_normal(tensor.dims).astype(np.float32)
    tensor.CopyFrom(numpy_helper.from_array(noise, "w2"))
    return replace(variant, name="spoilt", path=networks.write(model, folder, "spoilt.onnx"))


def test_accuracy_is_measured_on_labels_where_given(tmp_path: Path) -> None:
    """fp32 and int8 of a trained net reach on held-out samples what was learnt; a spoilt one falls to guessing."""
    inspection, variants = learnt(tmp_path, Precision.FP32, Precision.INT8)
    assert [variant.name for variant in variants] == ["fp32", "int8"]
    order = EvaluateOrder(
        inspection, lessons.TENSOR, (*variants, spoilt(variants[0], tmp_path)), lessons.labelled_folder(tmp_path / "e")
    )
    found = evaluate(order, quiet)
    values = [accuracy.share for accuracy in found.accuracies if accuracy]
    x, labels = lessons.strokes(60, seed=9)
    exact = float(np.mean(networks.run(inspection.model, x=x)[0].argmax(1) == labels))
    assert values[0] == pytest.approx(exact, abs=1e-6)
    assert values[0] > 0.85
    assert abs(values[1] - values[0]) <= 0.05
    assert values[2] < 0.6
    assert only(found)[1:] == ("top-1", "labels", 60)
    assert found.accuracies[0] is not None
    assert found.accuracies[0].data == "60 labelled samples"
    assert [round(sum(s.value_sum for s in a.scores) / 60, 6) for a in found.accuracies if a] == values
    again = evaluate(replace(order, variants=variants[1:], samples_max=60), quiet).accuracies[0]
    assert again == found.accuracies[1]  # another order over the same set: the scores can be compared in pairs
    assert again is not None
    fewer = present(evaluate(replace(order, variants=variants[1:], samples_max=20), quiet).accuracies[0])
    assert fewer.sample_set != again.sample_set != ""


def test_accuracy_without_labels_is_fidelity_to_fp32(tmp_path: Path) -> None:
    """The original is 1 by definition, int8 near it, a spoilt net far from it."""
    inspection, variants = learnt(tmp_path, Precision.FP32, Precision.INT8)
    calibration = lessons.unlabelled_files(tmp_path / "calibration")
    order = EvaluateOrder(
        inspection,
        lessons.TENSOR,
        (*variants, spoilt(variants[0], tmp_path)),
        calibration=calibration,
        held_out=calibration[::3],
    )
    found = evaluate(order, quiet)
    values = [accuracy.share for accuracy in found.accuracies if accuracy]
    assert only(found) == (1.0, "1-error", "fp32", 4)
    assert {one.evidence for one in found.accuracies if one} == {Evidence.SAMPLES}
    assert values[1] > 0.93
    assert values[2] < 0.9


def test_samples_that_variant_was_calibrated_with_do_not_verify_it(tmp_path: Path) -> None:
    """Where none is held out all are compared; what was not calibrated is verified by them."""
    inspection, variants = learnt(tmp_path, Precision.FP32, Precision.INT8, Precision.FP16)
    calibration = lessons.unlabelled_files(tmp_path / "calibration", count=7)
    found = evaluate(EvaluateOrder(inspection, lessons.TENSOR, variants, calibration=calibration), quiet)
    assert only(found)[3] == 7
    evidence = [one.evidence for one in found.accuracies if one]
    assert evidence == [Evidence.SAMPLES, Evidence.CALIBRATION, Evidence.SAMPLES]


def test_accuracy_without_samples_compares_outputs_on_synthetic_inputs(tmp_path: Path) -> None:
    """Such inputs say a little, and the record says that they were synthetic."""
    inspection, variants = learnt(tmp_path, Precision.FP16)
    found = evaluate(EvaluateOrder(inspection, lessons.TENSOR, variants), quiet)
    value, metric, against, samples = only(found)
    assert value > 0.999
    assert (metric, against, samples) == ("1-error", "fp32", 4)
    assert found.accuracies[0] is not None
    assert "synthetic" in found.accuracies[0].data
    assert found.accuracies[0].evidence is Evidence.NOISE


def test_accuracy_of_smaller_sizes_is_measured_against_full_size(tmp_path: Path) -> None:
    """The answers of a smaller input size are compared with those of fp32 at full size, on the same pictures."""
    inspection = inspected(networks.classifier(), tmp_path, PICTURES)
    variants = make(MakeOrder(inspection, PICTURES, Precision.FP32, str(tmp_path / "made")), quiet).variants
    calibration = lessons.pictures(tmp_path / "pictures", count=8)
    found = evaluate(EvaluateOrder(inspection, PICTURES, variants, calibration=calibration), quiet)
    accuracies = [accuracy for accuracy in found.accuracies if accuracy]
    assert [accuracy.metric for accuracy in accuracies] == ["top-1"] * 3
    assert accuracies[0].share == 1.0
    assert accuracies[0].data == "8 calibration inputs, against the answers of the original at 64x64"
    own = [networks.run(inspection.model, x=np.zeros((1, 3, side, side), np.float32)) for side in (64, 48, 32)]
    assert len(own) == len(accuracies), "each rung runs"


def test_unreadable_sample_is_skipped_in_calibration_and_refused_if_labelled(tmp_path: Path) -> None:
    """A broken calibration file costs nothing; a broken labelled one is the tenant's to repair."""
    inspection, variants = learnt(tmp_path, Precision.FP32)
    calibration = lessons.unlabelled_files(tmp_path / "calibration", count=3)
    (tmp_path / "broken.npz").write_bytes(b"PK no archive")
    order = EvaluateOrder(
        inspection, lessons.TENSOR, variants, calibration=(str(tmp_path / "broken.npz"), *calibration)
    )
    assert only(evaluate(order, quiet))[3] == 3
    folder = Path(lessons.labelled_folder(tmp_path / "e", count=4))
    (folder / "001.npz").write_bytes(b"PK no archive")
    with pytest.raises(BadMetadata, match=r"evaluation/001\.npz"):
        evaluate(replace(order, evaluation=str(folder)), quiet)


def test_labels_of_another_task_are_refused_by_name(tmp_path: Path) -> None:
    """The tenant learns which key the task needs."""
    inspection, variants = learnt(tmp_path, Precision.FP32)
    folder = Path(lessons.labelled_folder(tmp_path / "e", count=2))
    (folder / "truth.json").write_text(json.dumps({"samples": [{"file": "000.npz", "text": "hello"}]}))
    with pytest.raises(BadMetadata, match="label"):
        evaluate(EvaluateOrder(inspection, lessons.TENSOR, variants, str(folder)), quiet)


def test_variant_that_fails_evaluation_does_not_affect_others(tmp_path: Path) -> None:
    """The others are measured all the same, and the reason is kept."""
    inspection, variants = learnt(tmp_path, Precision.FP32)
    other = networks.model("y = Relu(x)", {"x": ("n", 3)}, {"y": ("n", 3)})
    broken = replace(variants[0], name="broken", path=networks.write(other, tmp_path, "broken.onnx"))
    calibration = lessons.unlabelled_files(tmp_path / "calibration", count=3)
    found = evaluate(EvaluateOrder(inspection, lessons.TENSOR, (broken, *variants), calibration=calibration), quiet)
    assert found.accuracies[0] is None
    assert "000.npz" in found.reasons[0]
    assert found.accuracies[1] is not None
    assert found.reasons[1] == ""


def test_group_labels_are_scored_over_whole_sample_set(tmp_path: Path) -> None:
    """An embedding is right when its nearest neighbour is of its group; one sample alone says nothing."""
    nodes = "p = GlobalAveragePool(x) y = Flatten(p)"
    model = networks.model(nodes, {"x": ("n", 3, 16, 16)}, {"y": ("n", 3)})
    task = TaskSpec(TaskKind.IMAGE_EMBEDDING, image=ImageSpec())
    inspection = inspected(model, tmp_path, task)
    variants = make(MakeOrder(inspection, task, Precision.FP32, str(tmp_path / "made")), quiet).variants
    folder = colours(tmp_path / "e", ["red", "blue", "red", "blue"])
    assert only(evaluate(EvaluateOrder(inspection, task, variants, folder), quiet)) == (1.0, "retrieval", "labels", 4)
    folder = colours(tmp_path / "f", ["red", "red", "blue", "blue"])
    assert only(evaluate(EvaluateOrder(inspection, task, variants, folder), quiet))[0] == 0.0


def colours(folder: Path, groups: list[str]) -> str:
    """Pictures that are red, blue, red, blue, with these groups as the truth."""
    import cv2

    folder.mkdir()
    for number in range(len(groups)):
        picture = np.full((16, 16, 3), (10, 20, 200 + number) if number % 2 == 0 else (200 + number, 20, 10), np.uint8)
        cv2.imwrite(str(folder / f"{number}.png"), picture)
    samples = [{"file": f"{number}.png", "group": group} for number, group in enumerate(groups)]
    (folder / "truth.json").write_text(json.dumps({"samples": samples}))
    return str(folder)


def test_evaluation_time_bounds_number_of_samples(tmp_path: Path) -> None:
    """At least one sample is used, and no further one is begun after the time."""
    inspection, variants = learnt(tmp_path, Precision.FP32)
    calibration = lessons.unlabelled_files(tmp_path / "calibration")
    order = EvaluateOrder(inspection, lessons.TENSOR, variants, calibration=calibration, seconds_max=0.0)
    assert only(evaluate(order, quiet))[3] == 1
    assert only(evaluate(replace(order, seconds_max=60.0, samples_max=5), quiet))[3] == 5
