"""Answers that are pictures: an output tensor that is one (depth, a mask, another picture), as PNG or JPEG.

What an output means nobody says, so numbers that are no bytes are spread over what the picture can hold: 16 bits a
pixel of a grey PNG, else 8. Masks of whole numbers keep them, where they fit.
"""

from collections.abc import Mapping

import numpy as np

from appliance.tasks.opencv import opencv

PNG, JPEG = "image/png", "image/jpeg"
_JSON = "application/json"
_ENDINGS = {PNG: ".png", JPEG: ".jpg"}
_SIDE_MIN, _SIDE_MAX = 2, 8192
_JPEG_QUALITY = 90


def wanted(accept: str) -> str | None:
    """The kind of picture that an `Accept` header names and likes at least as well as JSON; None: no picture."""
    weights: dict[str, float] = {}
    for part in accept.split(","):
        name, *parameters = (piece.strip().lower() for piece in part.split(";"))
        weight = next((piece[2:] for piece in parameters if piece.startswith("q=")), "1")
        try:
            weights[name] = float(weight)
        except ValueError:
            weights[name] = 0.0
    kind = max((PNG, JPEG), key=lambda one: weights.get(one, 0.0))
    liked = weights.get(kind, 0.0)
    return kind if liked > 0 and liked >= weights.get(_JSON, 0.0) else None


def picture_of(outputs: Mapping[str, np.ndarray], kind: str) -> bytes | None:
    """The file, where there is one output and it is one picture: H × W, or with one or three channels first or last.
    None: it is not.
    """
    if len(outputs) != 1:
        return None
    pixels = _pixels(next(iter(outputs.values())))
    if pixels is None:
        return None
    whole = _whole(pixels, is_deep=kind == PNG and pixels.ndim == 2)
    if whole.ndim == 3:
        whole = whole[:, :, ::-1]
    cv2 = opencv()
    options = [cv2.IMWRITE_JPEG_QUALITY, _JPEG_QUALITY] if kind == JPEG else []
    done, encoded = cv2.imencode(_ENDINGS[kind], np.ascontiguousarray(whole), options)
    return encoded.tobytes() if done else None


def kind_of(answer: bytes) -> str | None:
    """Which kind of picture an answer is; None: JSON."""
    if answer.startswith(b"\x89PNG"):
        return PNG
    return JPEG if answer.startswith(b"\xff\xd8") else None


def _pixels(array: np.ndarray) -> np.ndarray | None:
    """H × W or H × W × 3."""
    if array.dtype.kind not in "buif":
        return None
    while array.ndim > 2 and array.shape[0] == 1:
        array = array[0]
    if array.ndim == 3 and array.shape[0] == 3 and array.shape[2] != 3:
        array = array.transpose(1, 2, 0)
    if array.ndim == 3 and array.shape[2] == 1:
        array = array[:, :, 0]
    is_picture = array.ndim == 2 or (array.ndim == 3 and array.shape[2] == 3)
    return array if is_picture and all(_SIDE_MIN <= side <= _SIDE_MAX for side in array.shape[:2]) else None


def _whole(pixels: np.ndarray, *, is_deep: bool) -> np.ndarray:
    """As uint8, or uint16 where it may be deep."""
    if pixels.dtype == np.uint8:
        return pixels
    highest, kind = (65535, np.uint16) if is_deep else (255, np.uint8)
    if pixels.dtype.kind == "b":
        return pixels.astype(np.uint8) * np.uint8(255)
    if pixels.dtype.kind in "ui":
        largest = int(pixels.max())
        if int(pixels.min()) >= 0 and largest <= highest:
            return pixels.astype(np.uint8 if largest <= 255 else kind)
    halves = pixels.astype(np.float64) / 2  # of the largest numbers, too, there is a difference
    finite = halves[np.isfinite(halves)]
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 0.0)
    if not high > low:
        return np.zeros(halves.shape, kind)
    shares = (np.nan_to_num(halves, nan=low, posinf=high, neginf=low) - low) / (high - low)
    return np.asarray(np.rint(shares * highest), kind)
