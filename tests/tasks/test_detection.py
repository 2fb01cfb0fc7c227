"""Detectors: outputs written the way each family writes them come back as the boxes they stand for."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from appliance.domain.catalogue import TaskKind, TaskSpec
from appliance.domain.errors import BadMetadata
from appliance.tasks import TASKS
from appliance.tasks.base import Decoded
from appliance.tasks.detection_decoders import DECODERS, Candidates, InputSize
from appliance.tasks.image import Frame

SIZE = InputSize(128, 96)
BOX = np.array([20.0, 28.0, 60.0, 84.0])
"""Its centre, (40, 56), lies in cell (5, 7) of stride 8 less half a cell."""


def decode(name: str, outputs: Mapping[str, np.ndarray], **params: float | str) -> Candidates:
    labels = tuple(f"class {index}" for index in range(3))
    return DECODERS[name](outputs, SIZE, TaskSpec(labels=labels, params=params))


def assert_one(found: Candidates, label: int = 1, score: float = 0.9, box: np.ndarray = BOX) -> None:
    assert found.classes.tolist() == [label]
    np.testing.assert_allclose(found.scores, [score], atol=1e-3)
    np.testing.assert_allclose(found.boxes, [box], atol=1e-2)


def nanodet_maps(bins: int = 11) -> list[tuple[np.ndarray, np.ndarray]]:
    """Per stride: scores [cells, 3] and distances [cells, 4 · bins], with BOX at stride 8, cell (4, 6)."""
    maps = []
    for stride in (8, 16, 32):
        cells = math.ceil(SIZE.width / stride) * math.ceil(SIZE.height / stride)
        maps.append((np.full((cells, 3), 0.01, np.float32), np.zeros((cells, 4, bins), np.float32)))
    scores, distances = maps[0]
    cell = 6 * 16 + 4  # centre (36, 52)
    scores[cell] = (0.1, 0.9, 0.2)
    for side, distance in enumerate(np.array([36 - 20, 52 - 28, 60 - 36, 84 - 52]) / 8):
        distances[cell, side, int(distance)] = 30.0  # a sharp peak: the expected value is its place
    return [(scores, distances.reshape(len(distances), -1)) for scores, distances in maps]


def test_nanodet_takes_maps_in_any_order_and_form() -> None:
    """Outputs are matched to strides by their cells: flat, with a batch, as NCHW maps, shuffled, as logits, or in
    one.
    """
    maps = nanodet_maps()
    flat = {f"o{at}{part}": array for at, pair in enumerate(maps) for part, array in enumerate(pair)}
    assert_one(decode("nanodet", flat))
    shuffled = {name: flat[name][np.newaxis] for name in ("o21", "o00", "o11", "o20", "o10", "o01")}
    assert_one(decode("nanodet", shuffled))
    nchw = {}
    for at, (stride, pair) in enumerate(zip((8, 16, 32), maps, strict=True)):
        for part, array in enumerate(pair):
            nchw[f"o{at}{part}"] = array.T.reshape(1, -1, 96 // stride, 128 // stride)
    assert_one(decode("nanodet", nchw))
    logits = {name: np.log(array / (1 - array)) if name.endswith("0") else array for name, array in flat.items()}
    assert_one(decode("nanodet", logits))
    assert_one(decode("nanodet", flat, distance_bins=11))
    joined = np.concatenate([np.concatenate(pair, axis=1) for pair in maps])[np.newaxis]
    assert_one(decode("nanodet", {"output": joined}))


def test_nanodet_drops_boxes_below_the_score_bound() -> None:
    """The score bound is the caller's."""
    flat = {f"o{at}{part}": array for at, pair in enumerate(nanodet_maps()) for part, array in enumerate(pair)}
    assert len(decode("nanodet", flat, score_min=0.95).boxes) == 0
    assert len(decode("nanodet", flat, score_min=0.005).boxes) == 16 * 12 + 8 * 6 + 4 * 3


def test_centerface_reads_its_four_maps() -> None:
    """Size as logarithm, height first; offsets and points y first; all in strides of 4."""
    heat, size, offset, points = (np.zeros((1, channels, 24, 32), np.float32) for channels in (1, 2, 2, 10))
    y, x = 13, 9
    heat[0, 0, y, x] = 0.9
    size[0, :, y, x] = np.log([56 / 4, 40 / 4])
    offset[0, :, y, x] = (56 / 4 - 13.5, 40 / 4 - 9.5)
    points[0, 2:4, y, x] = (0.25, 0.75)  # the second point: y, x as shares of the box
    found = DECODERS["centerface"]({"a": heat, "b": size, "c": offset, "d": points}, SIZE, TaskSpec())
    assert_one(found, label=0)
    assert found.landmarks is not None
    np.testing.assert_allclose(found.landmarks[0, 1], [20 + 0.75 * 40, 28 + 0.25 * 56], atol=1e-3)


def test_blazeface_reads_anchors() -> None:
    """Boxes and points in pixels from their anchor's centre, on both grids."""
    size = InputSize(128, 128)
    outputs = {
        "s1": np.full((1, 512, 1), -9.0, np.float32),
        "s2": np.full((1, 384, 1), -9.0, np.float32),
        "b1": np.zeros((1, 512, 16), np.float32),
        "b2": np.zeros((1, 384, 16), np.float32),
    }
    outputs["s1"][0, (3 * 16 + 5) * 2 + 1] = 2.0
    outputs["b1"][0, (3 * 16 + 5) * 2 + 1, :6] = (1, 2, 20, 30, 7, 8)
    outputs["s2"][0, (6 * 8 + 2) * 6 + 5] = 3.0
    outputs["b2"][0, (6 * 8 + 2) * 6 + 5, :4] = (0, 0, 40, 40)
    found = DECODERS["blazeface"](outputs, size, TaskSpec())
    np.testing.assert_allclose(found.boxes, [[20, 84, 60, 124], [45 - 10, 30 - 15, 45 + 10, 30 + 15]], atol=1e-3)
    np.testing.assert_allclose(found.scores, 1 / (1 + np.exp([-3.0, -2.0])), atol=1e-5)
    assert found.landmarks is not None
    np.testing.assert_allclose(found.landmarks[1, 0], [44 + 7, 28 + 8])


def yolo_table(before: int) -> np.ndarray:
    table = np.zeros((50, before + 3), np.float32)
    table[7, :4] = (40, 56, 40, 56)
    return table


def test_yolo_heads_are_read_with_channels_first_or_last() -> None:
    """v8 without objectness, v5 with it."""
    v8 = yolo_table(4)
    v8[7, 5] = 0.9
    assert_one(decode("yolov8", {"output0": v8[np.newaxis]}))
    assert_one(decode("yolov8", {"output0": v8.T[np.newaxis]}))
    v5 = yolo_table(5)
    v5[7, 4:] = (0.9, 0.1, 1.0, 0.1)
    assert_one(decode("yolov5", {"output0": v5[np.newaxis]}))


def test_ssd_heads_are_read_in_every_known_form() -> None:
    """Pixels or shares, corners or centres, x or y first, logits, background, one score per box with classes apart."""
    boxes = np.zeros((1, 30, 4), np.float32)
    boxes[0, 3] = BOX
    scores = np.zeros((1, 30, 3), np.float32)
    scores[0, 3] = (0.05, 0.9, 0.05)
    shares = boxes / (128, 96, 128, 96)
    assert_one(decode("ssd", {"boxes": boxes, "scores": scores}))
    assert_one(decode("ssd", {"scores": scores, "boxes": shares}))
    assert_one(decode("ssd", {"boxes": shares[..., [1, 0, 3, 2]], "scores": scores}, box_format="yxyx"))
    centres = np.concatenate([(boxes[..., :2] + boxes[..., 2:]) / 2, boxes[..., 2:] - boxes[..., :2]], axis=2)
    assert_one(decode("ssd", {"boxes": centres, "scores": scores}, box_format="cxcywh"))
    assert_one(decode("ssd", {"boxes": boxes, "scores": scores}, background=0), label=0)
    assert_one(decode("ssd", {"boxes": boxes, "scores": np.log(scores + 1e-9)}))
    flat, classes = scores[..., 1], np.zeros((1, 30), np.float32)
    classes[0, 3] = 2
    count = np.array([30.0], np.float32)
    assert_one(decode("ssd", {"boxes": boxes, "classes": classes, "scores": flat, "count": count}), label=2)
    assert_one(decode("ssd", {"a": boxes, "b": flat, "c": classes}), label=2)


def test_end_to_end_heads_are_read_with_six_or_seven_columns() -> None:
    """The seventh is the batch's image in front."""
    six = np.zeros((1, 10, 6), np.float32)
    six[0, 2] = (*BOX, 0.9, 1)
    assert_one(decode("end2end", {"o": six}))
    assert_one(decode("end2end", {"o": np.array([[0, *BOX, 1, 0.9]], np.float32)}))


@pytest.mark.parametrize("name", DECODERS)
def test_detection_outputs_of_another_family_are_refused_by_name(name: str) -> None:
    """The error tells the shapes and the choice."""
    with pytest.raises(BadMetadata, match=r"other \[1, 5\].*choose another of nanodet"):
        decode(name, {"other": np.zeros((1, 5), np.float32)})


def answer_of(
    outputs: dict[str, np.ndarray], spec: TaskSpec, kind: TaskKind = TaskKind.OBJECT_DETECTION
) -> dict[str, object]:
    frame = Frame(256, 96, 128, 96, 2.0, 2.0)  # a picture of 256 x 96 letterboxed into 128 x 48 of 128 x 96
    return TASKS[kind].encode([outputs], Decoded([], frame), spec).body


def test_detection_boxes_are_in_pixels_of_the_original() -> None:
    """Scaled, clipped to the picture, doubles suppressed, boxes in the padding left out, plain JSON numbers."""
    table = np.zeros((1, 40, 6), np.float16)
    rows = [
        (10, 10, 30, 40, 0.9, 1),
        (11, 10, 31, 40, 0.8, 1),
        (100, 20, 140, 60, 0.7, 7),
        (10, 60, 30, 90, 0.6, 0),
        (np.nan, 1, 5, 5, 0.5, 0),
    ]
    for at, row in enumerate(rows):
        table[0, at] = row
    spec = TaskSpec(decoder="end2end", labels=("a", "b"), params={"iou_max": 0.5})
    body = answer_of({"o": table}, spec)
    assert body == {
        "objects": [
            {"label": "b", "score": 0.8999, "box": [20.0, 20.0, 60.0, 80.0]},
            {"label": "7", "score": 0.7002, "box": [200.0, 40.0, 256.0, 96.0]},
        ],
        "width": 256,
        "height": 96,
    }


def test_detection_of_absurd_outputs_is_still_an_answer() -> None:
    """Classes without a label, or that are no numbers, and boxes without end."""
    endless = [(-np.inf, -np.inf, np.inf, np.inf, 0.95, 0), (np.inf, 0, 1, 1, 0.94, 0), (-3e38, 0, 3e38, 40, 0.93, 1)]
    rows = [(10, 10, 30, 40, 0.9 - at / 100, klass) for at, klass in enumerate((np.nan, -5, -1, 1e9, 1e30, np.inf))]
    spec = TaskSpec(decoder="end2end", labels=("a", "b"), params={"iou_max": 1.0})
    body = answer_of({"o": np.array([endless + rows], np.float32)}, spec)
    assert labels_of(body) == ["a", "b", "-1", "-5", "-1", "1000000000", "-1", "-1"]
    for labels_said in (np.nan, -7.0):
        outputs = {
            "boxes": np.array([[[0.1, 0.1, 0.4, 0.4]]], np.float32),
            "scores": np.array([[0.9]], np.float32),
            "labels": np.array([[labels_said]], np.float32),
        }
        assert labels_of(answer_of(outputs, TaskSpec(decoder="ssd", labels=("a", "b")))) in (["-1"], ["-7"])


def labels_of(body: Mapping[str, Any]) -> list[str]:
    return [one["label"] for one in body["objects"]]


def test_face_detection_has_landmarks_in_original_pixels() -> None:
    """Five points in pixels of the original, and the label face."""
    heat, size, offset, points = (np.zeros((1, channels, 24, 32), np.float32) for channels in (1, 2, 2, 10))
    heat[0, 0, 3, 3] = 0.8
    size[0, :, 3, 3] = np.log(4)
    body = answer_of(
        {"a": heat, "b": size, "c": offset, "d": points}, TaskSpec(decoder="centerface"), TaskKind.FACE_DETECTION
    )
    assert body["objects"] == [
        {"label": "face", "score": 0.8, "box": [12.0, 12.0, 44.0, 44.0], "landmarks": [[12.0, 12.0]] * 5}
    ]


def test_unknown_detection_decoder_is_refused_by_name() -> None:
    """A spec that came from elsewhere than `parse_spec` still fails in words."""
    with pytest.raises(BadMetadata, match="no detection decoder 'nope'"):
        answer_of({}, TaskSpec(decoder="nope"))


def test_detection_scores_are_f1_against_reference_and_labels() -> None:
    task = TASKS[TaskKind.OBJECT_DETECTION]
    objects = [
        {"label": "a", "score": 0.9, "box": [0, 0, 10, 10]},
        {"label": "b", "score": 0.8, "box": [20, 20, 30, 30]},
    ]
    answer = {"objects": objects}
    assert task.similarity(answer, answer).value == 1.0
    assert task.similarity(answer, {"objects": objects[:1]}).value == pytest.approx(2 / 3)
    assert task.accuracy(answer, {"objects": [{"label": "c", "box": [0, 0, 10, 10]}]}).value == 0.0
    assert task.accuracy(answer, {"objects": [{"box": [0, 1, 10, 10]}, {"box": [20, 20, 30, 31]}]}).value == 1.0
    with pytest.raises(BadMetadata, match="objects"):
        task.accuracy(answer, {"boxes": []})
