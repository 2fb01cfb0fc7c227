"""Axis-aligned boxes: overlap and non-maximum suppression. Boxes are float[N, 4] as x1, y1, x2, y2."""

import numpy as np


def iou_matrix(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Intersection over union of each of N boxes with each of M: float64[N, M]; 0 where both are empty."""
    a, b = np.asarray(left, np.float64).reshape(-1, 1, 4), np.asarray(right, np.float64).reshape(1, -1, 4)
    overlap = np.minimum(a[..., 2:], b[..., 2:]) - np.maximum(a[..., :2], b[..., :2])
    common = np.prod(np.clip(overlap, 0, None), axis=2)
    union = areas(a) + areas(b) - common
    return np.asarray(np.divide(common, union, out=np.zeros_like(common), where=union > 0))


def areas(boxes: np.ndarray) -> np.ndarray:
    """Area of each box; 0 for one that is turned inside out."""
    sides = np.clip(boxes[..., 2:] - boxes[..., :2], 0, None)
    return np.asarray(sides[..., 0] * sides[..., 1])


def nms(boxes: np.ndarray, scores: np.ndarray, classes: np.ndarray, iou_max: float, keep_max: int = 100) -> np.ndarray:
    """Indices that greedy non-maximum suppression keeps within each class, best first; ties go to the lower index.

    O(N²) in time and memory: cut the candidates (`top_candidates`) before.
    """
    order = np.argsort(-scores, kind="stable")
    ordered = boxes[order]
    suppresses = (iou_matrix(ordered, ordered) > iou_max) & (classes[order][:, None] == classes[order][None, :])
    alive = np.ones(len(order), bool)
    kept: list[int] = []
    for index in range(len(order)):
        if not alive[index]:
            continue
        kept.append(index)
        if len(kept) == keep_max:
            break
        alive &= ~suppresses[index]
    return np.asarray(order[kept], np.intp)


def top_candidates(scores: np.ndarray, score_min: float, count_max: int) -> np.ndarray:
    """Indices of the scores ≥ `score_min`, best first, at most `count_max`."""
    found = np.flatnonzero(scores >= score_min)
    order = np.argsort(-scores[found], kind="stable")[:count_max]
    return np.asarray(found[order], np.intp)


def from_centres(centres: np.ndarray) -> np.ndarray:
    """cx, cy, w, h → x1, y1, x2, y2."""
    half = centres[:, 2:4] / 2
    return np.concatenate([centres[:, :2] - half, centres[:, :2] + half], axis=1)
