"""Cameras of devices in this process: one thread looks for all, one after the other."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

import cv2
import numpy as np

from appliance.client.device import Device
from appliance.clock import NS_PER_S, SystemClock, pause_s


@cache
def jpeg(pixels: int, grain: int = 8, quality: int = 95) -> bytes:
    """Noise of that side, in grains of so many pixels."""
    noise = np.random.default_rng(1).integers(0, 255, (pixels // grain, pixels // grain, 3), np.uint8)
    picture = cv2.resize(noise, (pixels, pixels), interpolation=cv2.INTER_CUBIC)
    return bytes(cv2.imencode(".jpg", picture, [cv2.IMWRITE_JPEG_QUALITY, quality])[1])


@contextmanager
def looking(devices: Sequence[Device], fps: float, picture: Any) -> Iterator[None]:
    """Give each device a picture at its rate while it is open; devices may be added meanwhile."""
    is_over, clock = threading.Event(), SystemClock()

    def look() -> None:
        due_ns = clock.now_ns()
        while not is_over.is_set():
            for device in list(devices):
                device.see(picture)
                due_ns = max(due_ns + int(NS_PER_S / fps / len(devices)), clock.now_ns() - NS_PER_S)
                pause_s(max(0.0, (due_ns - clock.now_ns()) / NS_PER_S))
            if not devices:
                pause_s(0.05)

    cameras = threading.Thread(target=look, daemon=True)
    cameras.start()
    try:
        yield
    finally:
        is_over.set()
        cameras.join()
