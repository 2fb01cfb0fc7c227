"""Where frames come from: a camera, a video file, or a photo over which the view moves as it is known exactly."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from appliance.client.device.opencv import opencv

VIEW = (640, 480)
"""Width and height of what is seen of a photo."""
ROOM = 1.75
"""A photo is enlarged to so many views, so that there is somewhere to go."""
FPS = 15.0
"""Of a photo, and of what does not say."""


class NoSource(Exception):
    """There is no such camera or file, or nothing in it; `str()` says which."""


class Video:
    """A camera, or a file that begins again when it is over."""

    def __init__(self, source: int | str) -> None:
        """A camera's number, or a path or address. Raises: NoSource."""
        self._source = source
        self._capture = opencv().VideoCapture(source)
        self._first = self._read()
        if self._first is None:
            raise NoSource(f"no frames come from {source!r}")
        fps = float(self._capture.get(opencv().CAP_PROP_FPS))
        self.fps = fps if 1.0 <= fps <= 1000.0 else FPS
        self.is_live = isinstance(source, int) or "://" in source
        """Whether frames come at their own pace."""

    def frames(self) -> Iterator[np.ndarray]:
        """uint8[H, W, 3], blue first; for ever, but for a camera that is taken away."""
        frame, self._first = self._first, None
        while True:
            if frame is None:
                frame = self._read()
            if frame is None:
                if self.is_live:
                    return
                self._capture.release()
                self._capture = opencv().VideoCapture(self._source)
                frame = self._read()
                if frame is None:
                    return
            yield frame
            frame = None

    def close(self) -> None:
        """Let go of it."""
        self._capture.release()

    def _read(self) -> Any:
        is_there, frame = self._capture.read()
        return frame if is_there else None


class Pan:
    """A view that moves over a photo at a constant speed and turns at its edges.

    Where everything is in each frame is known exactly: what lies at p in the photo lies at p − `offset(frame)`.
    """

    is_live = False

    def __init__(self, photo: np.ndarray, *, step: tuple[float, float] = (4.0, 1.5), fps: float = FPS) -> None:
        """`step`: pixels of a frame to the right and down. `photo` is enlarged where there is no room to move."""
        cv2 = opencv()
        height, width = photo.shape[:2]
        factor = max(ROOM * VIEW[0] / width, ROOM * VIEW[1] / height, 1.0)
        self.photo = cv2.resize(photo, None, fx=factor, fy=factor, interpolation=cv2.INTER_CUBIC)
        self.step = step
        self.fps = fps

    def offset(self, frame: int) -> tuple[float, float]:
        """Of the view's upper left corner in the photo."""
        height, width = self.photo.shape[:2]
        room = width - 1 - VIEW[0], height - 1 - VIEW[1]
        return _to_and_fro(frame * self.step[0], room[0]), _to_and_fro(frame * self.step[1], room[1])

    def frame(self, number: int) -> np.ndarray:
        """uint8[480, 640, 3]"""
        x, y = self.offset(number)
        centre = x + (VIEW[0] - 1) / 2.0, y + (VIEW[1] - 1) / 2.0
        return np.asarray(opencv().getRectSubPix(self.photo, VIEW, centre))

    def frames(self) -> Iterator[np.ndarray]:
        """For ever."""
        number = 0
        while True:
            yield self.frame(number)
            number += 1

    def close(self) -> None:
        """Nothing to let go of."""


Source = Video | Pan


def opened(name: str) -> Source:
    """`pan:PHOTO`, a camera's number, or a file or address of a video. Raises: NoSource, NeedsOpenCV."""
    if name.startswith("pan:"):
        return Pan(_photo(Path(name.removeprefix("pan:"))))
    if name.isdecimal():
        return Video(int(name))
    if "://" not in name and not Path(name).exists():
        raise NoSource(f"there is no file {name}")
    return Video(name)


def _photo(path: Path) -> np.ndarray:
    photo = opencv().imread(str(path))
    if photo is None:
        raise NoSource(f"{path} is no picture, or is not there")
    return np.asarray(photo)


def _to_and_fro(way: float, room: float) -> float:
    at = way % (2.0 * room)
    return at if at <= room else 2.0 * room - at
