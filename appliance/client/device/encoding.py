"""A frame as the JPEG that is sent: made as small as it shall be, and coded."""

from collections.abc import Callable
from typing import Any

from appliance.client.device.opencv import opencv

Frame = Any
"""uint8[H, W, 3], blue first as cameras give it, or uint8[H, W]; or the bytes of a JPEG, which is sent as it is."""
Encode = Callable[[Frame, int, int], bytes]
"""Frame, longer side in pixels at most, and quality → JPEG; ValueError for what is no picture."""


def kept(frame: Frame, size_px: int | None = None) -> Frame:
    """What is kept of a frame until it is encoded, for cameras use their memory again: a copy, for `encoded` with a
    longer side of `size_px` at most; a JPEG as it is.
    """
    if isinstance(frame, bytes):
        return frame
    if size_px is None or size_px >= max(frame.shape[:2]):
        return frame.copy()
    return _shrunk(frame, size_px)


def encoded(frame: Frame, size_px: int, quality: int) -> bytes:
    """The JPEG of a frame whose longer side is `size_px` at most. Raises: ValueError for what is no picture."""
    if isinstance(frame, bytes):
        return frame
    cv2 = opencv()
    try:
        is_done, data = cv2.imencode(".jpg", _shrunk(frame, size_px), (cv2.IMWRITE_JPEG_QUALITY, quality))
    except cv2.error as error:
        raise ValueError(f"no picture: {error}") from error
    if not is_done:
        raise ValueError("no picture")
    return bytes(data)


def _shrunk(frame: Any, size_px: int) -> Any:
    """With a longer side of `size_px` at most; the frame itself where it is no larger."""
    cv2 = opencv()
    height, width = frame.shape[:2]
    factor = size_px / max(height, width)
    if factor >= 1.0:
        return frame
    smaller = max(1, round(width * factor)), max(1, round(height * factor))
    return cv2.resize(frame, smaller, interpolation=cv2.INTER_AREA)
