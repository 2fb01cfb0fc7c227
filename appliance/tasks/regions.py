"""Regions of a picture that an answer names: which of them are wanted, where they lie in the original, and cutting them
out of it. Pure.

Boxes are cut as they stand, quads are made upright by a perspective warp. A region that was found in a cut-out is
placed in the original first, so that everything is cut from the original picture, once.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from appliance.domain.errors import BadMedia
from appliance.domain.pipeline import Region, Where
from appliance.tasks.base import Pixels
from appliance.tasks.opencv import opencv

CUT_PIXELS_MAX = 2
"""Times the pixels of the picture that an upright quad may have, and all of a frame together; of one whose sides cross
it could be far more."""

_ENDLESS = 1 << 62


def regions_in(body: Mapping[str, Any], of: str) -> list[Region]:
    """The regions of an answer's list `of`, in its order and in the pixels of the picture that was looked at."""
    return [_region(entry) for entry in body.get(of, ())]


def _region(entry: Mapping[str, Any]) -> Region:
    score, label = float(entry.get("score", 1.0)), str(entry.get("label", ""))
    if "quad" in entry:
        return Region(tuple((float(x), float(y)) for x, y in entry["quad"]), False, score, label)
    left, top, right, bottom = entry["box"]
    return Region(((left, top), (right, top), (right, bottom), (left, bottom)), True, score, label)


def wanted(regions: Sequence[Region], where: Where, picture: tuple[int, int], most: int) -> list[Region]:
    """Those that a crop makes items of, in their order: of more than `most` the best by score, of equal scores the
    first. `picture` that was looked at: (width, height).
    """
    size_min = where.size_min * picture[0] * picture[1]
    fitting = [
        region
        for region in regions
        if region.score >= where.score_min
        and (not where.labels or region.label in where.labels)
        and region.label not in where.labels_not
        and region.area > 0
        and region.area >= size_min
    ]
    if len(fitting) <= most:
        return fitting
    best = sorted(range(len(fitting)), key=lambda at: -fitting[at].score)[:most]
    return [fitting[at] for at in sorted(best)]


def size_of(region: Region) -> tuple[int, int]:
    """(width, height) of the region as it is cut out, in pixels."""
    if region.is_box:
        left, top, right, bottom = _bounds(region)
        return right - left, bottom - top
    first, second, third, fourth = region.corners
    width = max(math.dist(first, second), math.dist(fourth, third))
    height = max(math.dist(first, fourth), math.dist(second, third))
    return max(1, round(width)), max(1, round(height))


def placed(region: Region, within: Region | None) -> Region:
    """A region that was found in the cut-out of another one, in the original; None: it was found in that."""
    if within is None:
        return region
    if within.is_box:
        left, top, _, _ = _bounds(within)
        corners = tuple((x + left, y + top) for x, y in region.corners)
        return Region(corners, region.is_box, region.score, region.label)
    try:
        back = np.linalg.inv(_upright(within, 0.0, 0.0))
    except np.linalg.LinAlgError:  # three of its corners are on a line: all that is known is that it lies in there
        return Region(within.corners, False, region.score, region.label)
    x, y, scale = back @ np.array([(*corner, 1.0) for corner in region.corners]).T
    with np.errstate(all="ignore"):
        corners = tuple((float(a), float(b)) for a, b in zip(x / scale, y / scale, strict=True))
    return Region(corners, False, region.score, region.label)


def copied(region: Region) -> int:
    """Pixels that cutting a region out copies: of a box none, of one that lies nowhere none."""
    if region.is_box or not all(map(math.isfinite, itertools.chain(*region.corners))):
        return 0
    try:
        width, height = size_of(region)
    except OverflowError:  # corners that are finite, and further apart than numbers go
        return _ENDLESS
    return width * height


def cut(picture: Pixels, region: Region) -> Pixels:
    """A region of a whole picture as a picture of its own: of a box a view, of a quad a copy.

    Raises: BadMedia where nothing of it lies in the picture, or it would be larger than that.
    """
    if not all(map(math.isfinite, itertools.chain(*region.corners))):
        raise BadMedia(reason="the region lies nowhere")
    if region.is_box:
        left, top, right, bottom = _bounds(region)
        view = picture.array[max(0, top) : max(0, bottom), max(0, left) : max(0, right)]
        if not view.size:
            raise BadMedia(reason="the region lies outside of the picture")
        return Pixels(view, view.shape[1], view.shape[0])
    width, height = size_of(region)
    if width * height > CUT_PIXELS_MAX * picture.width * picture.height:
        raise BadMedia(reason="the region is larger than the picture")
    return Pixels(_warped(picture.array, region, (width, height)), width, height)


def _warped(array: np.ndarray, region: Region, size: tuple[int, int]) -> np.ndarray:
    """A quad as an upright picture; only what it is made of is looked at."""
    cv2 = opencv()
    xs, ys = zip(*region.corners, strict=True)
    left, top = max(0, math.floor(min(xs)) - 2), max(0, math.floor(min(ys)) - 2)
    around = array[top : max(0, math.ceil(max(ys)) + 2), left : max(0, math.ceil(max(xs)) + 2)]
    if not around.size:
        raise BadMedia(reason="the region lies outside of the picture")
    try:
        upright = cv2.warpPerspective(
            around,
            _upright(region, left, top, centre=0.5),
            size,
            flags=cv2.INTER_CUBIC,
            borderMode=cv2.BORDER_REPLICATE,
        )
    except cv2.error:  # sides of more than 32,767 pixels
        raise BadMedia(reason="the region cannot be cut out") from None
    return np.asarray(upright)


def _upright(region: Region, left: float, top: float, centre: float = 0.0) -> np.ndarray:
    """The perspective that lays a quad on an upright rectangle at the origin: float64[3, 3]. `left`, `top`: where the
    source begins; `centre`: of a pixel, 0.5 where coordinates are those of pixels and not of their edges.
    """
    width, height = size_of(region)
    source = np.array(region.corners) - (left + centre, top + centre)
    target = np.array([(0, 0), (width, 0), (width, height), (0, height)]) - centre
    return np.asarray(opencv().getPerspectiveTransform(source.astype(np.float32), target.astype(np.float32)))


def _bounds(region: Region) -> tuple[int, int, int, int]:
    """Left, top, right, bottom of a box in whole pixels, of which it has one at least; outwards, so that nothing of it
    is lost."""
    (x1, y1), _, (x2, y2), _ = region.corners
    left, top = math.floor(x1), math.floor(y1)
    return left, top, max(left + 1, math.ceil(x2)), max(top + 1, math.ceil(y2))
