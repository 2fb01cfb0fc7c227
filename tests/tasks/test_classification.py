"""Labels: scores of any habit become the five likeliest."""

import json
from typing import Any

import numpy as np
import pytest

from appliance.domain.catalogue import TaskKind, TaskSpec
from appliance.domain.errors import BadMetadata
from appliance.tasks import TASKS
from appliance.tasks.base import Decoded

TASK = TASKS[TaskKind.IMAGE_CLASSIFICATION]
NONE = Decoded([])


def labels_of(scores: np.ndarray, decoder: str = "", labels: tuple[str, ...] = ()) -> list[dict[str, Any]]:
    spec = TaskSpec(labels=labels, decoder=decoder)
    found: list[dict[str, Any]] = TASK.encode([{"y": scores}], NONE, spec).body["labels"]
    return found


def test_class_logits_become_probabilities_and_probabilities_stay() -> None:
    """Softmax is applied where it has not been."""
    logits = np.array([[1.0, 3.0, 2.0]], np.float32)
    chances = np.exp(logits) / np.exp(logits).sum()
    for scores in (logits, chances.astype(np.float32), chances.astype(np.float16)):
        found = labels_of(scores, labels=("a", "b", "c"))
        assert [entry["label"] for entry in found] == ["b", "c", "a"]
        np.testing.assert_allclose([entry["score"] for entry in found], np.sort(chances[0])[::-1], atol=1e-3)


def test_classification_decoder_that_is_named_is_used() -> None:
    """Several labels may be true at once, or the values are taken as they are."""
    assert [entry["score"] for entry in labels_of(np.array([[0.0, 5.0]]), "sigmoid")] == [0.993307, 0.5]
    assert [entry["score"] for entry in labels_of(np.array([[0.2, 0.7]]), "probabilities")] == [0.7, 0.2]
    assert [entry["score"] for entry in labels_of(np.array([[0.5, 0.5]]), "softmax")] == [0.5, 0.5]


def test_classification_answers_the_five_best_ties_in_class_order() -> None:
    """Classes without a name are called by their number."""
    found = labels_of(np.zeros((1, 10), np.float32))
    assert [(entry["label"], entry["index"]) for entry in found] == [(str(index), index) for index in range(5)]


def test_classification_of_nan_scores_is_valid_json() -> None:
    """A network that overflows gives a poor answer, not a failing one."""
    json.dumps(labels_of(np.array([[np.nan, np.inf, 1.0]], np.float32)), allow_nan=False)
    with pytest.raises(BadMetadata, match="class scores"):
        labels_of(np.array([[1]], np.int64))


def test_classification_accuracy_counts_the_first_label() -> None:
    """By name or index."""
    answer = {"labels": [{"label": "cat", "index": 3, "score": 0.9}, {"label": "dog", "index": 4, "score": 0.1}]}
    assert TASK.accuracy(answer, {"label": "cat"}).value == 1.0
    assert TASK.accuracy(answer, {"label": 3}).value == 1.0
    assert TASK.accuracy(answer, {"label": "dog"}).value == 0.0
    assert TASK.similarity(answer, answer).value == 1.0
    with pytest.raises(BadMetadata, match="label"):
        TASK.accuracy(answer, {"class": "cat"})
