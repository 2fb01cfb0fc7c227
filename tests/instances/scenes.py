"""Pictures with something in them at every scale, and things in them with boxes; no file, equal for equal seeds."""

from typing import Any

import cv2
import numpy as np

Boxes = np.ndarray[Any, np.dtype[np.float64]]


def scene(seed: int, width: int = 1400, height: int = 1000) -> np.ndarray:
    """uint8[H, W, 3]: soft shades, shapes and fine grain, as photographs have them."""
    random = np.random.default_rng(seed)
    picture = np.zeros((height, width, 3), np.float32)
    for cells, strength in ((4, 60.0), (16, 35.0), (64, 18.0), (200, 10.0)):
        coarse = random.normal(0.0, strength, (max(2, cells * height // width), cells, 3)).astype(np.float32)
        picture += cv2.resize(coarse, (width, height), interpolation=cv2.INTER_CUBIC)
    picture = np.clip(picture + 120.0, 0, 255).astype(np.uint8)
    for _ in range(120):
        at = int(random.integers(0, width)), int(random.integers(0, height))
        size = int(random.integers(6, 60)), int(random.integers(6, 60))
        colour = tuple(int(value) for value in random.integers(20, 236, 3))
        cv2.ellipse(picture, at, size, float(random.integers(0, 180)), 0, 360, colour, -1, cv2.LINE_AA)
    return np.asarray(cv2.GaussianBlur(picture, (3, 3), 0))


def things(seed: int, count: int, width: int, height: int) -> Boxes:
    """float64[count, 4]: boxes of 40 to 160 pixels a side, anywhere in a picture."""
    random = np.random.default_rng(seed)
    sides = random.uniform(40.0, 160.0, (count, 2))
    corners = random.uniform(0.0, 1.0, (count, 2)) * (np.array([width, height]) - sides)
    return np.concatenate([corners, corners + sides], axis=1)
