"""The trial stage: what it compares, and what counts as no agreement."""

import base64
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import pytest

from appliance.domain.catalogue import TaskKind, TaskSpec, TensorSpec
from appliance.domain.errors import BadModel
from appliance.domain.trial import Comparison
from appliance.modelstore import arrays
from appliance.modelstore.orders import PIXELS, Size, TrialOrder, TrialRequest
from appliance.modelstore.stages.trial import trial
from tests import toys
from tests.modelstore import networks
from tests.modelstore.stages.stage_runs import quiet

LABELS = 10


def coded(**tensors: np.ndarray) -> str:
    return base64.b64encode(arrays.packed(tensors)).decode()


def order(path: Path, task: TaskKind, *requests: TrialRequest, size: Size | None = None) -> TrialOrder:
    inputs = (TensorSpec("image", "FP32", (-1, 3, -1, -1)),)
    return TrialOrder(str(path), (str(path),), inputs, (), size, TaskSpec(task), requests)


def agreements(order: TrialOrder) -> tuple[float, ...]:
    return tuple(one.agreement for one in comparisons(order))


def comparisons(order: TrialOrder) -> tuple[Comparison, ...]:
    return trial(order, quiet).comparisons


@pytest.mark.parametrize("is_decoded", [True, False])
def test_trial_agrees_only_on_label_that_variant_reads(tmp_path: Path, is_decoded: bool) -> None:
    """A picture that came decoded, and one as a file; at the variant's own size."""
    picture = np.random.default_rng(5).integers(0, 255, (48, 48, 3), np.uint8)
    if is_decoded:
        asked = TrialRequest(pixels=coded(**{PIXELS: picture}), width=48, height=48)
    else:
        asked = TrialRequest(base64.b64encode(cv2.imencode(".png", picture)[1].tobytes()).decode(), "image/png")
    requests = [replace(asked, read={"labels": [{"index": index}]}) for index in range(LABELS)]
    path = toys.conv_net(tmp_path / "net.onnx", 0.2, seed=3)
    found = agreements(order(path, TaskKind.IMAGE_CLASSIFICATION, *requests, size=Size(32, 32)))
    assert sorted(found) == [0.0] * (LABELS - 1) + [1.0]


def test_trial_agreement_of_tensors_is_nearness_to_original_answer(tmp_path: Path) -> None:
    """y = x for positive x, answered 1.05 x: off by 0.05 / 1.05, or by 0.05 where this is the original."""
    x = np.ones((1, 4), np.float32)
    path = networks.write(networks.relu(), tmp_path)
    request = TrialRequest(inputs=coded(x=x), outputs=coded(y=np.float32(1.05) * x))
    one = order(Path(path), TaskKind.TENSOR, request)
    assert agreements(one) == pytest.approx((1 - 0.05 / 1.05,), abs=1e-6)
    assert agreements(replace(one, is_original=True)) == pytest.approx((0.95,), abs=1e-6)


def test_trial_request_that_fails_counts_as_no_agreement(tmp_path: Path) -> None:
    path = networks.write(networks.relu(), tmp_path)
    y = np.ones((1, 4), np.float32)
    wrong = TrialRequest(inputs=coded(x=np.ones((1, 4), np.int64)), outputs=coded(y=y))
    assert agreements(order(Path(path), TaskKind.TENSOR, wrong)) == (0.0,)


def test_trial_of_network_that_cannot_be_loaded_fails(tmp_path: Path) -> None:
    path = tmp_path / "broken.onnx"
    path.write_bytes(b"no network")
    with pytest.raises(BadModel, match="cannot load"):
        agreements(order(path, TaskKind.TENSOR))


@pytest.mark.parametrize("is_original", [True, False])
def test_trial_knows_equal_inputs_and_answers_that_tell_nothing(tmp_path: Path, is_original: bool) -> None:
    """y = x for positive x. The original's answer counts, whichever of the two runs."""
    path = networks.write(networks.relu(), tmp_path)
    rows = ([1, 2, 3, 4], [1, 2, 3, 4], [1, 2, 3, 4.00001], [0, 0, 0, 0], [5, 5, 5, 5], [-1, -2, -3, -4])
    answers = [np.array([row], np.float32) for row in rows]
    requests = [TrialRequest(inputs=coded(x=one), outputs=coded(y=np.maximum(one, 0))) for one in answers]
    found = comparisons(replace(order(Path(path), TaskKind.TENSOR, *requests), is_original=is_original))
    assert len({one.input for one in found}) == 5
    assert found[0] == found[1] != found[2]
    assert found[0].answer == found[2].answer != "", "equal to five digits"
    assert [one.answer for one in found[3:]] == ["", "", ""]


@pytest.mark.parametrize(
    ("answer", "tells"),
    [
        (np.array([0.0]), False),
        (np.array([7.5]), True),
        (np.array([3]), True),
        (np.array(["a", "a"], object), False),
        (np.array(["a", "b"], object), True),
        (np.zeros((0, 4)), False),
    ],
)
def test_trial_of_other_outputs_knows_what_tells_nothing(tmp_path: Path, answer: np.ndarray, tells: bool) -> None:
    path = networks.write(networks.relu(), tmp_path)
    request = TrialRequest(inputs=coded(x=np.ones((1, 4), np.float32)), outputs=coded(y=answer))
    (found,) = comparisons(order(Path(path), TaskKind.TENSOR, request))
    assert bool(found.answer) == tells


def test_trial_of_media_knows_equal_pictures(tmp_path: Path) -> None:
    picture = np.random.default_rng(5).integers(0, 255, (48, 48, 3), np.uint8)
    body = base64.b64encode(cv2.imencode(".png", picture)[1].tobytes()).decode()
    other = base64.b64encode(cv2.imencode(".png", 255 - picture)[1].tobytes()).decode()
    asked = [
        TrialRequest(each, "image/png", read={"labels": [{"index": 3, "label": "3"}]}) for each in (body, body, other)
    ]
    path = toys.conv_net(tmp_path / "net.onnx", 0.2, seed=3)
    for is_original in (False, True):
        order_ = order(path, TaskKind.IMAGE_CLASSIFICATION, *asked, size=Size(32, 32))
        found = comparisons(replace(order_, is_original=is_original))
        assert found[0] == found[1]
        assert found[0].input != found[2].input
        assert found[0].answer
