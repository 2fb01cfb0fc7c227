"""OpenCV, imported where it is first needed: the idle service does without its 30 MB."""

from functools import cache
from typing import Any


@cache
def opencv() -> Any:
    """The module `cv2`, quiet and single-threaded: requests are the parallelism, and its threads would fight the
    runs for cores.
    """
    import cv2

    cv2.setNumThreads(1)
    cv2.utils.logging.setLogLevel(cv2.utils.logging.LOG_LEVEL_SILENT)
    return cv2
