"""Boxes that overlap: float[N, 4] as x1, y1, x2, y2."""

import numpy as np

IOU_SAME = 0.3
"""Two boxes of one label that overlap so much are one object."""


def overlaps(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Intersection over union of each with each: float64[N, M]."""
    a, b = np.asarray(left, np.float64).reshape(-1, 1, 4), np.asarray(right, np.float64).reshape(1, -1, 4)
    sides = np.clip(np.minimum(a[..., 2:], b[..., 2:]) - np.maximum(a[..., :2], b[..., :2]), 0.0, None)
    common = sides[..., 0] * sides[..., 1]
    union = _areas(a) + _areas(b) - common
    return np.asarray(np.divide(common, union, out=np.zeros_like(common), where=union > 0.0))


def pairs(left: np.ndarray, right: np.ndarray, same_label: np.ndarray) -> list[tuple[int, int, float]]:
    """(Left, right, overlap) of boxes that are one object: the largest overlap first, each box once."""
    found = np.where(same_label, overlaps(left, right), 0.0)
    result = []
    while found.size and (best := float(found.max())) >= IOU_SAME:
        i, j = np.unravel_index(int(found.argmax()), found.shape)
        result.append((int(i), int(j), best))
        found[i, :] = 0.0
        found[:, j] = 0.0
    return result


def agreement(left: np.ndarray, right: np.ndarray, same_label: np.ndarray) -> float:
    """How far two sets of boxes are one, 0 to 1: twice the overlap of those that are one object, by the number of all
    boxes; 1 where there are none.
    """
    count = len(left) + len(right)
    return 1.0 if count == 0 else 2.0 * sum(overlap for _, _, overlap in pairs(left, right, same_label)) / count


def _areas(boxes: np.ndarray) -> np.ndarray:
    sides = np.clip(boxes[..., 2:] - boxes[..., :2], 0.0, None)
    return np.asarray(sides[..., 0] * sides[..., 1])
