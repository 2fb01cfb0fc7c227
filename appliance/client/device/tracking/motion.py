"""How boxes move from one picture to another.

The shift of the whole picture, by phase correlation of small copies, is the first guess; Lucas-Kanade then follows a
grid of points in each box, and what does not lead back to where it came from does not count. A box moves by the median
of its points and grows as they spread. One that has too few moves as the whole picture does.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from appliance.client.device.opencv import opencv

WORK_PX = 320
"""Longer side of the grey copies: half of 640."""
SMALL_PX = 80
"""Longer side of what is correlated: a quarter of the grey copy, and a shift of half of it is still told."""
GRID = 3
"""Points a side in each box."""
INSET = 0.1
"""Share of a box at its edges without points: what lies there often is background."""
WINDOW = (13, 13)
LEVELS = 1
STEPS_MAX, STEP_PX_MIN = 10, 0.03
"""Of Lucas-Kanade's search for one point: its first guess is good."""
BACK_PX_MAX = 0.7
"""Of the grey copy: further from its origin a point is not believed."""
SPREAD_PX_MAX = 2.0
"""Of the grey copy: points that move further from the median belong to something else."""
POINTS_MIN = 4
SPREADING_MIN = 6
"""Points that a change of size needs."""
STILL = 0.01
"""A change of size below it is noise."""
GROWTH_MAX = 1.3
RESPONSE_MIN = 0.03
"""Of the phase correlation: below it there is no shift of the whole picture."""


@dataclass(frozen=True, slots=True)
class Picture:
    """A frame as motion sees it."""

    grey: np.ndarray
    """uint8[h, w]"""
    small: np.ndarray
    """float32[h', w']"""
    factor: float
    """Pixels of the frame in one of `grey`."""


def picture_of(frame: np.ndarray) -> Picture:
    """Half-size grey, and what is correlated."""
    cv2 = opencv()
    height, width = frame.shape[:2]
    factor = max(2.0, max(height, width) / WORK_PX)
    grey = cv2.resize(
        frame, (max(16, round(width / factor)), max(16, round(height / factor))), interpolation=cv2.INTER_AREA
    )
    if grey.ndim == 3:
        grey = cv2.cvtColor(grey, cv2.COLOR_BGR2GRAY)
    least = max(1.0, max(grey.shape) / SMALL_PX)
    size = max(8, round(grey.shape[1] / least)), max(8, round(grey.shape[0] / least))
    small = cv2.resize(grey, size, interpolation=cv2.INTER_AREA).astype(np.float32)
    return Picture(grey, small, width / grey.shape[1])


def whole_shift(before: Picture, after: Picture) -> np.ndarray:
    """float64[2]: pixels of the frame by which the whole picture moved; 0 where it did not move as one."""
    cv2 = opencv()
    height, width = before.small.shape
    (x, y), response = cv2.phaseCorrelate(before.small, after.small, _hann(width, height))
    if response < RESPONSE_MIN:
        return np.zeros(2)
    scale = before.factor * before.grey.shape[1] / width
    return np.array((x * scale, y * scale))


def moved(boxes: np.ndarray, before: Picture, after: Picture, guess: np.ndarray) -> np.ndarray:
    """float64[N, 4]: where the boxes are after; `guess`: shift of the whole picture, in pixels of the frame."""
    if len(boxes) == 0:
        return boxes
    factor = after.factor
    points = _grid(boxes) / factor
    flat = points.reshape(-1, 1, 2).astype(np.float32)
    there, is_found = _followed(before.grey, after.grey, flat, flat + (guess / factor).astype(np.float32))
    back, is_back = _followed(after.grey, before.grey, there, flat.copy())
    strayed = np.abs(back - flat).max(axis=(1, 2))
    shape = points.shape[:2]
    is_good = (is_found & is_back & (strayed <= BACK_PX_MAX)).reshape(shape)
    steps = (there - flat).astype(np.float64).reshape(points.shape)
    median, count = _medians(steps, is_good)
    is_inner = is_good & (np.abs(steps - median[:, None]).max(axis=2) <= SPREAD_PX_MAX)
    growth = _growth(points, points + steps, is_inner)
    is_known = count >= POINTS_MIN
    shift = np.where(is_known[:, None], median * factor, _common(median, count, factor, guess))
    growth = np.where(is_known & (is_inner.sum(axis=1) >= SPREADING_MIN), growth, 1.0)
    centres = (boxes[:, :2] + boxes[:, 2:]) / 2.0 + shift
    halves = (boxes[:, 2:] - boxes[:, :2]) / 2.0 * growth[:, None]
    return np.concatenate([centres - halves, centres + halves], axis=1)


def _followed(
    before: np.ndarray, after: np.ndarray, points: np.ndarray, guess: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    cv2 = opencv()
    there, status, _ = cv2.calcOpticalFlowPyrLK(
        before,
        after,
        points,
        guess,
        winSize=WINDOW,
        maxLevel=LEVELS,
        criteria=(cv2.TERM_CRITERIA_COUNT | cv2.TERM_CRITERIA_EPS, STEPS_MAX, STEP_PX_MIN),
        flags=cv2.OPTFLOW_USE_INITIAL_FLOW,
    )
    return there, status.reshape(-1) == 1


def _grid(boxes: np.ndarray) -> np.ndarray:
    """float64[N, GRID², 2]: points in each box."""
    shares = INSET + (1.0 - 2.0 * INSET) * (np.arange(GRID) + 0.5) / GRID
    x, y = np.meshgrid(shares, shares)
    unit = np.stack([x.ravel(), y.ravel()], axis=1)
    return np.asarray(boxes[:, None, :2] + unit * (boxes[:, None, 2:] - boxes[:, None, :2]))


def _medians(steps: np.ndarray, is_good: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Median step of the good points of each box, and how many they are; no step where there are none."""
    count = is_good.sum(axis=1)
    ordered = np.sort(np.where(is_good[..., None], steps, np.inf), axis=1)
    rows = np.arange(len(steps))
    low, high = ordered[rows, np.maximum(count - 1, 0) // 2], ordered[rows, count // 2 * (count > 0)]
    return np.where(count[:, None] > 0, (low + high) / 2.0, 0.0), count


def _growth(points: np.ndarray, there: np.ndarray, is_inner: np.ndarray) -> np.ndarray:
    """How much the points of each box spread."""
    weight = is_inner[..., None]
    number = np.maximum(is_inner.sum(axis=1), 1)[:, None, None]
    p = (points - (points * weight).sum(axis=1, keepdims=True) / number) * weight
    q = (there - (there * weight).sum(axis=1, keepdims=True) / number) * weight
    spread = (p * p).sum(axis=(1, 2))
    growth = np.divide((p * q).sum(axis=(1, 2)), spread, out=np.ones(len(points)), where=spread > 0.0)
    growth = np.clip(growth, 1.0 / GROWTH_MAX, GROWTH_MAX)
    return np.where(np.abs(growth - 1.0) < STILL, 1.0, growth)


def _common(median: np.ndarray, count: np.ndarray, factor: float, guess: np.ndarray) -> np.ndarray:
    """What a box without points goes by: the guess, which the other boxes may correct where they lie near it."""
    known = median[count >= POINTS_MIN] * factor
    if len(known) == 0:
        return guess
    middle = np.median(known, axis=0)
    return np.asarray(middle if np.abs(middle - guess).max() <= SPREAD_PX_MAX * factor else guess)


@lru_cache(maxsize=4)
def _hann(width: int, height: int) -> np.ndarray:
    return np.asarray(opencv().createHanningWindow((width, height), opencv().CV_32F))
