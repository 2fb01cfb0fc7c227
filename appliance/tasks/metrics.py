"""How good answers are, as scores that add up over a set: against labels (accuracy) or against a reference answer
(fidelity).
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from appliance.domain.errors import BadMetadata
from appliance.tasks.base import Score
from appliance.tasks.boxes import iou_matrix
from appliance.tasks.opencv import opencv

_IOU_MIN = 0.5


def truth_list(truth: Mapping[str, Any], key: str, shape: str) -> list[Any]:
    """The list `key` of a truth, whose entries have the key `shape`.

    Raises: BadMetadata.
    """
    entries = truth.get(key)
    if not isinstance(entries, list) or not all(isinstance(entry, Mapping) and shape in entry for entry in entries):
        raise BadMetadata(reason=f"a truth of this task needs {key!r}: a list of objects with {shape!r}")
    return entries


def truth_text(truth: Mapping[str, Any]) -> str:
    """The text of a truth.

    Raises: BadMetadata.
    """
    if not isinstance(truth.get("text"), str):
        raise BadMetadata(reason="a truth of this task needs 'text'")
    return str(truth["text"])


def top_1(answer: Mapping[str, Any], truth: Mapping[str, Any]) -> Score:
    """Whether the first label is the true one; `truth["label"]` is a name or an index."""
    label = truth.get("label")
    if not isinstance(label, str | int):
        raise BadMetadata(reason="a truth of this task needs 'label': a name or an index")
    first = answer["labels"][0]
    return Score(float(label in (first["label"], first["index"])), 1.0, "top-1")


def f1_of_objects(found: Sequence[Mapping[str, Any]], true: Sequence[Mapping[str, Any]]) -> Score:
    """F1 of boxes that match at IoU ≥ 0.5 with the same label (an entry without a label matches any)."""
    overlaps = iou_matrix(_boxes(found), _boxes(true))
    for row, one in enumerate(found):
        for column, other in enumerate(true):
            if one.get("label") != other.get("label", one.get("label")):
                overlaps[row, column] = 0.0
    return f1(overlaps, [entry.get("score", 1.0) for entry in found])


def f1_of_regions(found: Sequence[Mapping[str, Any]], true: Sequence[Mapping[str, Any]]) -> Score:
    """F1 of quads that match at IoU ≥ 0.5."""
    overlaps = np.zeros((len(found), len(true)))
    for row, one in enumerate(found):
        for column, other in enumerate(true):
            overlaps[row, column] = quad_iou(np.array(one["quad"], np.float32), np.array(other["quad"], np.float32))
    return f1(overlaps, [entry.get("score", 1.0) for entry in found])


def f1(overlaps: np.ndarray, scores: Sequence[float]) -> Score:
    """F1 = 2·matches / (found + true); the surest find takes the free truth that it overlaps most.

    overlaps: float[found, true].
    """
    free = np.ones(overlaps.shape[1], bool)
    matches = 0
    for row in np.argsort(-np.asarray(scores, np.float64), kind="stable"):
        candidates = np.where(free, overlaps[row], 0.0)
        if candidates.size and candidates.max() >= _IOU_MIN:
            free[int(candidates.argmax())] = False
            matches += 1
    return Score(2.0 * matches, float(sum(overlaps.shape)), "f1@0.5")


def quad_iou(one: np.ndarray, other: np.ndarray) -> float:
    """Intersection over union of two convex quads, float32[4, 2]."""
    cv2 = opencv()
    common, _ = cv2.intersectConvexConvex(one, other)
    union = cv2.contourArea(one) + cv2.contourArea(other) - common
    return float(common / union) if union > 0 else 0.0


def _boxes(entries: Sequence[Mapping[str, Any]]) -> np.ndarray:
    return np.array([entry["box"] for entry in entries], np.float64).reshape(-1, 4)


def characters(text: str, true: str) -> Score:
    """1 − character error rate, weighted by length; text where there should be none counts fully."""
    if not true:
        return Score(0.0, float(len(text)), "1-cer")
    return Score(max(0.0, len(true) - float(edit_distance(text, true))), float(len(true)), "1-cer")


def edit_distance(one: str, other: str) -> int:
    """Levenshtein distance, O(len · len) with one numpy row per character."""
    codes = np.array([ord(character) for character in other], np.int64)
    steps = np.arange(len(codes) + 1)
    row = steps.copy()
    for at, character in enumerate(one):
        nearest = np.empty_like(row)
        nearest[0] = at + 1
        nearest[1:] = np.minimum(row[1:] + 1, row[:-1] + (codes != ord(character)))
        # Insertions run along the row: a running minimum of what each earlier column would cost from there.
        row = np.minimum.accumulate(nearest - steps) + steps
    return int(row[-1])


def cosine(one: Sequence[float], other: Sequence[float]) -> float:
    """Cosine of the angle between two vectors; 0 where one is zero, 1 where both are."""
    a, b = np.asarray(one, np.float64).ravel(), np.asarray(other, np.float64).ravel()
    if a.shape != b.shape:
        return 0.0
    lengths = float(np.linalg.norm(a) * np.linalg.norm(b))
    if lengths == 0:
        return float(not a.any() and not b.any())
    return float(a @ b) / lengths


def cosines(ones: Sequence[Sequence[float]], others: Sequence[Sequence[float]]) -> Score:
    """Mean cosine of vectors pair by pair; negative ones count as nothing. A vector without a partner counts as 0."""
    total = sum(max(0.0, cosine(one, other)) for one, other in zip(ones, others, strict=False))
    return Score(total, float(max(len(ones), len(others))), "cosine")


def nearness(found: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray]) -> Score:
    """Nearness of the expected output that was met worst: 1 - |found - expected| / |expected|, at least 0, of the whole
    tensors, so that direction and scale both count; of integers and text, the share of equal entries.

    An output that is missing, or of another shape, counts as 0; an entry that is not finite, as 0 in either tensor.
    """
    worst = min((_nearness(found.get(name), one) for name, one in expected.items()), default=1.0)
    return Score(worst, 1.0, "1-error")


def _nearness(found: np.ndarray | None, expected: np.ndarray) -> float:
    if found is None or found.shape != expected.shape:
        return 0.0
    kinds = {found.dtype.kind, expected.dtype.kind}
    if "f" not in kinds or not kinds <= set("biuf"):
        return float(np.mean(found == expected)) if expected.size else 1.0
    got, wanted = (np.nan_to_num(one.astype(np.float64), posinf=0.0, neginf=0.0) for one in (found, expected))
    error, length = float(np.linalg.norm(got - wanted)), float(np.linalg.norm(wanted))
    return max(0.0, 1.0 - error / length) if length else float(error == 0)


def retrieval(vectors: Sequence[Sequence[float]], groups: Sequence[object]) -> Score:
    """Share of vectors whose nearest other one, by cosine, is of the same group; a group of one asks nothing."""
    if len(vectors) != len(groups):
        raise BadMetadata(reason=f"there are {len(vectors)} embeddings but {len(groups)} groups")
    table = np.asarray(vectors, np.float64).reshape(len(groups), -1)
    lengths = np.linalg.norm(table, axis=1, keepdims=True)
    near = (table / np.where(lengths > 0, lengths, 1.0)) @ (table / np.where(lengths > 0, lengths, 1.0)).T
    np.fill_diagonal(near, -np.inf)
    asked = [at for at, group in enumerate(groups) if sum(group == other for other in groups) > 1]
    hits = sum(groups[int(near[at].argmax())] == groups[at] for at in asked)
    return Score(float(hits), float(len(asked)), "retrieval")


def agreement(found: Sequence[bool], true: Sequence[bool]) -> Score:
    """Share of frames on which two say the same; frames that only one has count as disagreement."""
    same = sum(bool(one) == bool(other) for one, other in zip(found, true, strict=False))
    return Score(float(same), float(max(len(found), len(true))), "agreement")
