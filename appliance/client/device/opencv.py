"""OpenCV, imported where it is first needed: a device whose camera gives JPEG, and that tracks nothing, needs none."""

from functools import cache
from typing import Any


class NeedsOpenCV(ImportError):
    """Pictures as arrays, and tracking, need the extra `track`."""

    def __init__(self) -> None:
        super().__init__("install edge-appliance-device[track], or give frames as JPEG bytes")


@cache
def opencv() -> Any:
    """The module `cv2`, quiet and single-threaded. Raises: NeedsOpenCV."""
    try:
        import cv2
    except ImportError as error:
        raise NeedsOpenCV from error
    cv2.setNumThreads(1)  # a camera's loop has one core, and threads that wake up for 0.1 ms cost more than they give
    cv2.utils.logging.setLogLevel(cv2.utils.logging.LOG_LEVEL_SILENT)
    return cv2


def has_opencv() -> bool:
    """Whether the extra is there."""
    try:
        opencv()
    except NeedsOpenCV:
        return False
    return True
