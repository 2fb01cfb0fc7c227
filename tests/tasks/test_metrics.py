"""Scores: the fast ways agree with the definitions."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.domain.errors import BadMetadata
from appliance.tasks.metrics import (
    agreement,
    characters,
    cosine,
    cosines,
    edit_distance,
    f1,
    nearness,
    quad_iou,
    retrieval,
)

words = st.text("abcd", max_size=9)


def slow_distance(one: str, other: str) -> int:
    if not one or not other:
        return len(one) + len(other)
    if one[0] == other[0]:
        return slow_distance(one[1:], other[1:])
    return 1 + min(slow_distance(one[1:], other), slow_distance(one, other[1:]), slow_distance(one[1:], other[1:]))


@given(st.text("ab", max_size=6), st.text("ab", max_size=6))
def test_edit_distance_agrees_with_the_definition(one: str, other: str) -> None:
    """Against plain recursion."""
    assert edit_distance(one, other) == slow_distance(one, other)


@given(words, words, words)
def test_edit_distance_is_a_metric(one: str, other: str, third: str) -> None:
    """Symmetric, zero only for equals, no detour is shorter."""
    assert edit_distance(one, other) == edit_distance(other, one)
    assert (edit_distance(one, other) == 0) == (one == other)
    assert edit_distance(one, third) <= edit_distance(one, other) + edit_distance(other, third)


def test_character_score_is_weighted_by_length() -> None:
    """A long text counts more than a short one; text out of nothing counts against."""
    total = characters("abcd", "abcd") + characters("x", "yz")
    assert total.value == pytest.approx(4 / 6)
    assert characters("", "").weight == 0
    assert (characters("abc", "").value, characters("abc", "").weight) == (0.0, 3.0)


def test_f1_matches_each_truth_once() -> None:
    """Two finds on one object are one match and one mistake; the surer find chooses first."""
    overlaps = np.array([[0.9, 0.0], [0.8, 0.0], [0.0, 0.4]])
    assert f1(overlaps, [0.5, 0.9, 0.9]).value == pytest.approx(2 / 5)
    better = np.array([[0.6, 0.7], [0.0, 0.9]])
    assert f1(better, [0.5, 0.9]).value == 1.0
    assert f1(np.zeros((0, 2)), []).value == 0.0
    assert f1(np.zeros((2, 0)), [1, 1]).value == 0.0
    assert f1(np.zeros((0, 0)), []).value == 1.0


@given(st.integers(0, 30), st.integers(0, 30), st.integers(1, 30), st.integers(1, 30))
def test_upright_quads_overlap_like_boxes(x: int, y: int, width: int, height: int) -> None:
    one = np.array([[5, 5], [25, 5], [25, 25], [5, 25]], np.float32)
    other = np.array([[x, y], [x + width, y], [x + width, y + height], [x, y + height]], np.float32)
    common = max(0, min(25, x + width) - max(5, x)) * max(0, min(25, y + height) - max(5, y))
    assert quad_iou(one, other) == pytest.approx(common / (400 + width * height - common), abs=1e-4)


def test_cosine_score_handles_zeros_lengths_and_missing_partners() -> None:
    assert cosine([1, 0], [2, 0]) == 1.0
    assert cosine([1, 0], [0, 2]) == 0.0
    assert cosine([0, 0], [0, 0]) == 1.0
    assert cosine([0, 0], [1, 0]) == 0.0
    assert cosine([1, 0], [1, 0, 0]) == 0.0
    assert cosines([[1, 0], [1, 0]], [[1, 0], [-1, 0]]).value == 0.5
    assert cosines([[1, 0]], [[1, 0], [1, 0]]).value == 0.5


def near(found: object, expected: object) -> float:
    """The nearness of one output."""
    return nearness({"y": np.asarray(found)}, {"y": np.asarray(expected)}).value


def test_nearness_counts_scale_as_well_as_direction() -> None:
    """One number that is far off has a cosine of 1; of several outputs the worst counts."""
    assert near([0.1249], [245.9]) == pytest.approx(0.1249 / 245.9)
    assert near([3.0, 4.0], [3.0, 4.0]) == 1.0
    assert near([3.0, 4.5], [3.0, 4.0]) == pytest.approx(0.9)
    assert near([-3.0], [3.0]) == 0.0
    assert near([0.0], [0.0]) == 1.0
    assert near([0.1], [0.0]) == 0.0
    assert near([np.nan, 2.0], [np.nan, 2.0]) == 1.0
    assert near([np.inf, 2.0], [2.0, 2.0]) == pytest.approx(1 - 0.5**0.5)
    assert near([1.0, 2.0], [1.0]) == 0.0
    assert near([1, 2, 3, 4], [1, 2, 3, 5]) == 0.75
    assert near(["a", "b"], ["a", "c"]) == 0.5
    assert near(np.empty(0, np.int64), np.empty(0, np.int64)) == 1.0
    two = {"y": np.ones(2), "z": np.ones(2)}
    assert nearness({"y": np.ones(2), "z": np.array([1.0, 0.0])}, two).value == pytest.approx(1 - 0.5**0.5)
    assert nearness({"y": np.ones(2)}, two).value == 0.0
    assert nearness({}, {}).value == 1.0


def test_retrieval_score_leaves_out_groups_of_one() -> None:
    score = retrieval([[1, 0], [1, 0.1], [0, 1]], ["a", "a", "b"])
    assert (score.value, score.weight) == (1.0, 2.0)
    assert retrieval([[1, 0], [0, 1], [0.1, 1]], ["a", "a", "b"]).value == 0.0
    with pytest.raises(BadMetadata, match="2 embeddings but 1 groups"):
        retrieval([[1], [2]], ["a"])


def test_agreement_counts_missing_frames_as_disagreement() -> None:
    assert agreement([True, False, True], [True, True, True]).value == pytest.approx(2 / 3)
    assert agreement([True], [True, True]).value == 0.5
