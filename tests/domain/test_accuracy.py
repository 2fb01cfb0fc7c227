"""One unit of accuracy, and the ways into it and out of it."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.domain.accuracy import UNMEASURED_POINTS, meaning_of, points, share
from appliance.domain.catalogue import Accuracy, Model, Precision, TaskKind, TaskSpec
from tests.fakes.engine import make_variant
from tests.present import present


def test_accuracy_points_are_a_hundred_times_the_share() -> None:
    assert (points(0.902), share(90.2)) == (90.2, 0.902)
    assert (points(0.57), share(57.0)) == (57.0, 0.57)  # 100 * 0.57 is 56.99999999999999


@given(st.decimals(0, 1, places=6))
def test_accuracy_share_survives_conversion_to_points_and_back(value: object) -> None:
    """To the six digits that are measured."""
    written = float(str(value))
    assert share(points(written)) == written


@pytest.mark.parametrize(
    ("against", "original", "called"),
    [
        ("labels", "fp16", "accuracy"),
        ("fp32", "fp32", "agreement with fp32"),
        ("fp32", "fp16", "agreement with the original"),
    ],
)
def test_quality_is_called_accuracy_only_where_labels_measured_it(against: str, original: str, called: str) -> None:
    assert meaning_of(against, original) == called


def test_model_quality_is_called_as_that_of_its_original() -> None:
    """Else of what is measured; a model of which nothing is measured waits for its labels."""
    labelled = replace(present(make_variant("t/m", "a", accuracy=90).accuracy), against="labels")
    original = replace(make_variant("t/m", "half"), precision=Precision.FP16, is_original=True)
    own = make_variant("t/m", "own", accuracy=90)
    alike = replace(own, precision=Precision.OWN, accuracy=replace(labelled, against="fp32"))
    model = Model("t/m", "t", "m", TaskSpec(TaskKind.TENSOR), (alike, original))
    assert model.meaning == model.meaning_of(alike) == "agreement with the original"
    on_labels = replace(original, accuracy=labelled)
    assert replace(model, variants=(alike, on_labels)).meaning == "accuracy"
    assert replace(model, variants=(alike,)).meaning == "agreement with fp32"
    assert replace(model, variants=(original,)).meaning == model.meaning_of(original) == "accuracy"


def test_unmeasured_variant_counts_as_accurate_as_the_original() -> None:
    assert make_variant("t/m", "v").accuracy_points == UNMEASURED_POINTS == 100
    assert make_variant("t/m", "v", accuracy=71.8).accuracy_points == 71.8
    assert Accuracy(71.8, "top-1", "labels", 10).share == 0.718
