"""Boxes: the vectorised overlap and suppression agree with the slow and obvious ones."""

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from appliance.tasks.boxes import from_centres, iou_matrix, nms, top_candidates

corner = st.integers(0, 20)


@st.composite
def boxes(draw: Any) -> np.ndarray:
    rows = draw(st.lists(st.tuples(corner, corner, st.integers(0, 10), st.integers(0, 10)), min_size=1, max_size=25))
    return np.array([(x, y, x + w, y + h) for x, y, w, h in rows], np.float32)


def slow_iou(a: np.ndarray, b: np.ndarray) -> float:
    width = min(a[2], b[2]) - max(a[0], b[0])
    height = min(a[3], b[3]) - max(a[1], b[1])
    common = max(0.0, float(width)) * max(0.0, float(height))
    union = float((a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1])) - common
    return common / union if union > 0 else 0.0


def slow_nms(table: np.ndarray, scores: np.ndarray, classes: np.ndarray, iou_max: float) -> list[int]:
    kept: list[int] = []
    for index in sorted(range(len(table)), key=lambda at: (-scores[at], at)):
        if all(classes[index] != classes[other] or slow_iou(table[index], table[other]) <= iou_max for other in kept):
            kept.append(index)
    return kept


@given(boxes(), boxes())
def test_box_overlap_agrees_with_the_definition(one: np.ndarray, other: np.ndarray) -> None:
    """Every pair, empty boxes included."""
    wanted = [[slow_iou(a, b) for b in other] for a in one]
    np.testing.assert_allclose(iou_matrix(one, other), wanted, atol=1e-6)


@given(boxes(), st.data(), st.sampled_from([0.0, 0.3, 0.5, 1.0]))
def test_box_suppression_agrees_with_brute_force(table: np.ndarray, data: Any, iou_max: float) -> None:
    """The same indices in the same order, ties included."""
    numbers = st.lists(st.integers(0, 5), min_size=len(table), max_size=len(table))
    scores = np.array(data.draw(numbers), np.float32) / 5
    classes = np.array(data.draw(numbers)) % 2
    assert nms(table, scores, classes, iou_max).tolist() == slow_nms(table, scores, classes, iou_max)
    assert nms(table, scores, classes, iou_max, keep_max=2).tolist() == slow_nms(table, scores, classes, iou_max)[:2]


@given(st.lists(st.floats(0, 1, width=32), max_size=30), st.integers(1, 10))
def test_detection_candidates_are_the_best_above_the_bound(scores: list[float], count_max: int) -> None:
    """Bounded in number, best first, nothing below the bound."""
    array = np.array(scores, np.float32)
    found = top_candidates(array, 0.5, count_max)
    wanted = sorted((value for value in array if value >= 0.5), reverse=True)[:count_max]
    assert array[found].tolist() == wanted


def test_box_functions_accept_empty_input() -> None:
    empty = np.zeros((0, 4), np.float32)
    assert nms(empty, np.zeros(0), np.zeros(0), 0.5).tolist() == []
    assert iou_matrix(empty, np.zeros((3, 4))).shape == (0, 3)


def test_boxes_are_converted_from_centres_to_corners() -> None:
    """cx, cy, w, h → x1, y1, x2, y2."""
    assert from_centres(np.array([[10.0, 20.0, 4.0, 6.0]])).tolist() == [[8.0, 17.0, 12.0, 23.0]]
