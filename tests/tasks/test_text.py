"""Text in pictures: places from probability maps, characters from time steps."""

from typing import Any

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.domain.catalogue import TaskKind, TaskSpec
from appliance.domain.errors import BadMetadata
from appliance.tasks import TASKS
from appliance.tasks.base import Decoded
from appliance.tasks.image import Frame
from appliance.tasks.metrics import quad_iou
from appliance.tasks.text_detection import db_quads, reading_order
from appliance.tasks.text_recognition import ctc_greedy

DETECTION = TASKS[TaskKind.TEXT_DETECTION]
RECOGNITION = TASKS[TaskKind.TEXT_RECOGNITION]


def shrunken(quad: np.ndarray, ratio: float = 1.6) -> np.ndarray:
    """The rectangle whose unclipping gives `quad`: each side d further in, where d = area · ratio / perimeter of the
    small one.
    """
    (centre, (width, height), angle) = cv2.minAreaRect(quad.astype(np.float32))
    low, high = 0.0, min(width, height) / 2
    for _ in range(50):
        inset = (low + high) / 2
        small_width, small_height = width - 2 * inset, height - 2 * inset
        too_little = small_width * small_height * ratio / (2 * (small_width + small_height)) > inset
        low, high = (inset, high) if too_little else (low, inset)
    return np.asarray(cv2.boxPoints((centre, (width - 2 * inset, height - 2 * inset), angle)))


def map_of(*quads: np.ndarray, height: int = 240, width: int = 320, value: float = 0.9) -> np.ndarray:
    canvas = np.zeros((height, width), np.float32)
    for quad in quads:
        cv2.fillPoly(canvas, [shrunken(quad).round().astype(np.int32)], value)
    return canvas


def rectangle(x: float, y: float, width: float, height: float, angle: float = 0.0) -> np.ndarray:
    return np.asarray(cv2.boxPoints(((x, y), (width, height), angle)))


@pytest.mark.parametrize("angle", [0, 7, -12, 30, 90])
def test_text_line_is_found_at_its_place_and_slope(angle: float) -> None:
    """A shrunken line on the map comes back in full."""
    true = rectangle(160, 120, 150, 30, angle)
    ((score, quad),) = db_quads(map_of(true), TaskSpec())
    assert quad_iou(true, quad) > 0.8
    assert score == pytest.approx(0.9, abs=0.1)


def test_text_quad_corners_go_clockwise_from_the_top_left() -> None:
    """The order that a cut-out needs."""
    ((_, quad),) = db_quads(map_of(rectangle(160, 120, 150, 30, 10)), TaskSpec())
    top_left, top_right, bottom_right, bottom_left = quad
    assert top_left[0] < top_right[0]
    assert bottom_left[0] < bottom_right[0]
    assert top_left[1] < bottom_left[1]
    assert top_right[1] < bottom_right[1]


def test_faint_and_tiny_marks_are_no_text() -> None:
    """Below the score, or a few pixels: nothing."""
    faint = map_of(rectangle(100, 100, 90, 30), value=0.4)
    assert db_quads(faint, TaskSpec()) == []
    assert len(db_quads(faint, TaskSpec(params={"score_min": 0.3}))) == 1
    speck = np.zeros((50, 50), np.float32)
    speck[10:12, 10:12] = 1
    assert db_quads(speck, TaskSpec()) == []
    assert db_quads(np.full((50, 50), np.nan, np.float32), TaskSpec()) == []


def test_text_regions_are_in_reading_order_and_original_pixels() -> None:
    """Line by line, left to right, even when the right word of a line sits a little higher."""
    places = [
        rectangle(250, 48, 80, 24),
        rectangle(80, 54, 80, 24),
        rectangle(90, 120, 120, 24),
        rectangle(160, 180, 200, 24),
    ]
    frame = Frame(640, 240, 320, 240, 2.0, 1.0)
    body = DETECTION.encode([{"maps": map_of(*places)[None, None]}], Decoded([], frame), TaskSpec()).body
    centres = [np.mean(region["quad"], axis=0).round(-1).tolist() for region in body["regions"]]
    assert centres == [[160.0, 50.0], [500.0, 50.0], [180.0, 120.0], [320.0, 180.0]]
    assert (body["width"], body["height"]) == (640, 240)
    with pytest.raises(BadMetadata, match="db"):
        DETECTION.encode([{"y": np.zeros((1, 2, 8, 8), np.float32)}], Decoded([], frame), TaskSpec())


@given(st.lists(st.tuples(st.integers(0, 300), st.integers(0, 200)), max_size=12))
def test_reading_order_keeps_every_region(centres: list[tuple[int, int]]) -> None:
    quads = [(float(at), rectangle(x, y, 30, 10)) for at, (x, y) in enumerate(centres)]
    assert sorted(score for score, _ in reading_order(quads)) == [score for score, _ in quads]


def test_text_region_score_is_f1_at_half_overlap() -> None:
    quad = rectangle(50, 50, 40, 20).tolist()
    moved = rectangle(52, 50, 40, 20).tolist()
    answer = {"regions": [{"score": 0.9, "quad": quad}]}
    assert DETECTION.similarity(answer, {"regions": [{"score": 0.5, "quad": moved}]}).value == 1.0
    assert DETECTION.accuracy(
        answer, {"regions": [{"quad": moved}, {"quad": rectangle(200, 50, 40, 20).tolist()}]}
    ).value == pytest.approx(2 / 3)
    assert DETECTION.accuracy({"regions": []}, {"regions": []}).value == 1.0


def one_hot(classes: list[int], count: int, value: float = 0.8) -> np.ndarray:
    steps = np.full((len(classes), count), (1 - value) / (count - 1), np.float32)
    steps[np.arange(len(classes)), classes] = value
    return steps


DIALECTS: list[Any] = [("", "a", "b", " "), ("a", "b", " "), ("a", "b")]


@pytest.mark.parametrize("labels", DIALECTS)
def test_ctc_decoding_drops_repeats_and_blanks(labels: tuple[str, ...]) -> None:
    """With any habit of writing a dictionary: with blank and space, without the blank, without either."""
    text, score = ctc_greedy(one_hot([0, 1, 1, 0, 1, 2, 3, 2, 0], 4), labels)
    assert text == "aab b"
    assert score == pytest.approx(0.8)


@given(st.text("ab ", max_size=12))
def test_ctc_decoding_inverts_the_encoding_of_any_text(text: str) -> None:
    """A blank between any two characters, each lasting two steps."""
    codes = [code for character in text for code in (0, " ab ".index(character, 1), " ab ".index(character, 1))] + [0]
    assert ctc_greedy(one_hot(codes, 4), ("a", "b", " "))[0] == text


def test_text_recognition_reads_logits_silence_and_missing_labels() -> None:
    """Logits are fine, silence is empty, missing labels are visible, other shapes are refused."""
    logits = np.log(one_hot([1, 2], 4))[np.newaxis] * 3
    body = RECOGNITION.encode([{"y": logits}], Decoded([]), TaskSpec(labels=("", "a", "b", " "))).body
    assert body["text"] == "ab"
    assert body["score"] > 0.8
    silent = RECOGNITION.encode([{"y": one_hot([0, 0], 4)[np.newaxis]}], Decoded([]), TaskSpec(labels=("a",)))
    assert silent.body == {"text": "", "score": 0.0}
    assert ctc_greedy(one_hot([1], 4), ())[0] == "\N{REPLACEMENT CHARACTER}"
    with pytest.raises(BadMetadata, match="ctc"):
        RECOGNITION.encode([{"y": np.zeros((1, 4), np.float32)}], Decoded([]), TaskSpec())


def test_text_recognition_score_is_one_minus_error_rate() -> None:
    """Never below zero."""
    assert RECOGNITION.accuracy({"text": "N0 PARKING"}, {"text": "NO PARKING"}).value == pytest.approx(0.9)
    assert RECOGNITION.similarity({"text": "entirely different"}, {"text": "ab"}).value == 0.0
    with pytest.raises(BadMetadata, match="text"):
        RECOGNITION.accuracy({"text": ""}, {})
