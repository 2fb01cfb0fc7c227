"""A frame as the JPEG that is sent: made as small as it shall be, and coded."""

from collections.abc import Callable
from typing import Any

from appliance.client.device.opencv import opencv

Frame = Any
"""uint8[H, W, 3], blue first as cameras give it, or uint8[H, W]; or the bytes of a JPEG, which is sent as it is."""
Encode = Callable[[Frame, int, int], bytes]
"""Frame, longer side in pixels at most, and quality → JPEG; ValueError for what is no picture."""


def encoded(frame: Frame, size_px: int, quality: int) -> bytes:
    """The JPEG of a frame whose longer side is `size_px` at most. Raises: ValueError for what is no picture."""
    if isinstance(frame, bytes):
        return frame
    cv2 = opencv()
    height, width = frame.shape[:2]
    factor = size_px / max(height, width)
    if factor < 1.0:
        smaller = max(1, round(width * factor)), max(1, round(height * factor))
        frame = cv2.resize(frame, smaller, interpolation=cv2.INTER_AREA)
    try:
        is_done, data = cv2.imencode(".jpg", frame, (cv2.IMWRITE_JPEG_QUALITY, quality))
    except cv2.error as error:
        raise ValueError(f"no picture: {error}") from error
    if not is_done:
        raise ValueError("no picture")
    return bytes(data)
