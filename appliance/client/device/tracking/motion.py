"""How boxes move from one picture to another.

The shift of the whole picture, by phase correlation of small copies, is the first guess; Lucas-Kanade then follows a
grid of points in each box and some all over the picture. What is flat, or does not lead back to where it came from,
does not count. A box moves by the median of its points and grows as they spread; one that has too few moves as the
picture does, by the median of those all over it: phase correlation alone is a third too small for small shifts.
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
WINDOW = (11, 11)
LEVELS = 1
"""Of the pyramid on the way there; the way back begins where it should end, and needs none."""
STEPS_MAX, STEP_PX_MIN = 10, 0.03
"""Of Lucas-Kanade's search for one point: its first guess is good."""
BACK_PX_MAX = 0.7
"""Of the grey copy: further from its origin a point is not believed."""
SPREAD_PX_MAX = 4.0
"""Points that move further from the median belong to something else."""
EIGENVALUE_MIN = 1e-3
"""Of a point's gradients: what is flatter stays where the guess puts it, and says nothing."""
EVERYWHERE = (5, 4)
EVERYWHERE_MIN = 5
"""Points all over the picture, and how many of them must be followed to say how it moved."""
POINTS_MIN = 4
SPREADING_MIN = 6
"""Points that a change of size needs."""
STILL = 0.01
"""A change of size below it is noise."""
GROWTH_MAX = 1.3
RESPONSE_MIN = 0.03
"""Of the phase correlation: below it there is no shift of the whole picture."""
_SHARES = INSET + (1.0 - 2.0 * INSET) * (np.arange(GRID) + 0.5) / GRID
_EVERYWHERE = np.stack(np.meshgrid(*((np.arange(number) + 0.5) / number for number in EVERYWHERE)), axis=2).reshape(
    -1, 2
)
_UNIT = np.stack(np.meshgrid(_SHARES, _SHARES), axis=2).reshape(-1, 2)


@dataclass(frozen=True, slots=True)
class Picture:
    """A frame as motion sees it."""

    grey: np.ndarray
    """uint8[h, w]"""
    factor: float
    """Pixels of the frame in one of `grey`."""


def picture_of(frame: np.ndarray) -> Picture:
    """Half-size grey."""
    cv2 = opencv()
    height, width = frame.shape[:2]
    factor = max(2.0, max(height, width) / WORK_PX)
    grey = cv2.resize(
        frame, (max(16, round(width / factor)), max(16, round(height / factor))), interpolation=cv2.INTER_AREA
    )
    if grey.ndim == 3:
        grey = cv2.cvtColor(grey, cv2.COLOR_BGR2GRAY)
    return Picture(grey, width / grey.shape[1])


def whole_shift(before: Picture, after: Picture) -> np.ndarray:
    """float64[2]: pixels of the frame by which the whole picture moved, about; 0 where it did not move as one."""
    cv2 = opencv()
    height, width = before.grey.shape
    least = max(1.0, max(height, width) / SMALL_PX)
    size = max(8, round(width / least)), max(8, round(height / least))
    small = [cv2.resize(one.grey, size, interpolation=cv2.INTER_AREA).astype(np.float32) for one in (before, after)]
    (x, y), response = cv2.phaseCorrelate(*small, _hann(*size))
    if response < RESPONSE_MIN:
        return np.zeros(2)
    scale = before.factor * width / size[0]
    return np.array((x * scale, y * scale))


def moved(boxes: np.ndarray, before: Picture, after: Picture, guess: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """float64[N, 4]: where the boxes are after; float64[2]: the shift of the whole picture, exactly. `guess`: about.

    Both in pixels of the frame.
    """
    factor, here = after.factor, _grid(boxes)
    everywhere = _EVERYWHERE * (before.grey.shape[1], before.grey.shape[0])
    flat = np.concatenate([everywhere, here.reshape(-1, 2) / factor]).reshape(-1, 1, 2).astype(np.float32)
    there, is_found = _followed(before.grey, after.grey, flat, flat + (guess / factor).astype(np.float32), LEVELS)
    back, is_back = _followed(after.grey, before.grey, there, flat.copy(), 0)
    steps = (there - flat).reshape(-1, 2).astype(np.float64) * factor
    is_good = is_found & is_back & (np.abs(back - flat).max(axis=(1, 2)) <= BACK_PX_MAX)
    count = len(everywhere)
    shift = _shift(steps[:count], is_good[:count], guess)
    if len(boxes) == 0:
        return boxes, shift
    return _displaced(
        boxes, here, steps[count:].reshape(here.shape), is_good[count:].reshape(here.shape[:2]), shift
    ), shift


def _displaced(
    boxes: np.ndarray, points: np.ndarray, steps: np.ndarray, is_good: np.ndarray, shift: np.ndarray
) -> np.ndarray:
    """Boxes moved and grown as their points did; by `shift` where too few of those are known."""
    median, count = _medians(steps, is_good)
    is_inner = is_good & (np.abs(steps - median[:, None]).max(axis=2) <= SPREAD_PX_MAX)
    is_known = count >= POINTS_MIN
    growth = np.where(
        is_known & (is_inner.sum(axis=1) >= SPREADING_MIN), _growth(points, points + steps, is_inner), 1.0
    )
    centres = (boxes[:, :2] + boxes[:, 2:]) / 2.0 + np.where(is_known[:, None], median, shift)
    halves = (boxes[:, 2:] - boxes[:, :2]) / 2.0 * growth[:, None]
    return np.concatenate([centres - halves, centres + halves], axis=1)


def _shift(steps: np.ndarray, is_good: np.ndarray, guess: np.ndarray) -> np.ndarray:
    """Of the whole picture: the median over it; the guess where too little of it can be followed."""
    median, count = _medians(steps[None], is_good[None])
    return np.asarray(median[0]) if count[0] >= EVERYWHERE_MIN else guess


def _followed(
    before: np.ndarray, after: np.ndarray, points: np.ndarray, guess: np.ndarray, levels: int
) -> tuple[np.ndarray, np.ndarray]:
    cv2 = opencv()
    there, status, _ = cv2.calcOpticalFlowPyrLK(
        before,
        after,
        points,
        guess,
        winSize=WINDOW,
        maxLevel=levels,
        criteria=(cv2.TERM_CRITERIA_COUNT | cv2.TERM_CRITERIA_EPS, STEPS_MAX, STEP_PX_MIN),
        flags=cv2.OPTFLOW_USE_INITIAL_FLOW,
        minEigThreshold=EIGENVALUE_MIN,
    )
    return there, status.reshape(-1) == 1


def _grid(boxes: np.ndarray) -> np.ndarray:
    """float64[N, GRID², 2]: points in each box."""
    return np.asarray(boxes[:, None, :2] + _UNIT * (boxes[:, None, 2:] - boxes[:, None, :2]))


def _medians(steps: np.ndarray, is_good: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Median step of the good points of each box, and how many they are; no step where there are none. Not by numpy's
    own, which imports masked arrays: a megabyte that a device needs for nothing else.
    """
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


@lru_cache(maxsize=4)
def _hann(width: int, height: int) -> np.ndarray:
    return np.asarray(opencv().createHanningWindow((width, height), opencv().CV_32F))
