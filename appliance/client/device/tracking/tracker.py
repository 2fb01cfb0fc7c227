"""The objects of the newest result, where they are now.

Each frame moves them on from the frame before. A new result belongs to a frame that is past: its boxes are taken from
there to now in one step, with the sum of the shifts between as the first guess, and keep the ids of those they overlap.
Pictures of those of the last `HISTORY` frames that were sent are kept for that, as half-size grey (77 kB each at
640 × 480), until results of later frames have come.
"""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from appliance.client.device.tracking.motion import Picture, moved, picture_of, whole_shift
from appliance.client.device.tracking.overlap import pairs

HISTORY = 48
"""Frames between a picture and its result, at most; an older result is shown where it was."""
VISIBLE_MIN = 0.25
"""Share of a box that must be inside the picture to be shown."""
NOBODY = np.zeros((0, 4))


@dataclass(frozen=True, slots=True)
class Found:
    """Objects as a result has them."""

    boxes: np.ndarray
    """float64[N, 4] as x1, y1, x2, y2 in pixels of the frame."""
    labels: tuple[str, ...]
    facts: tuple[Mapping[str, Any], ...] = ()
    """What else the result says of each."""

    def __len__(self) -> int:
        return len(self.boxes)

    def same_label(self, other: "Found") -> np.ndarray:
        """bool[N, M]"""
        return np.array([[mine == its for its in other.labels] for mine in self.labels], bool).reshape(
            len(self), len(other)
        )


EMPTY = Found(NOBODY, ())


@dataclass(frozen=True, slots=True)
class Tracked:
    """An object as it is shown."""

    id: int
    """The same for as long as results keep finding it."""
    label: str
    box: tuple[float, float, float, float]
    """x1, y1, x2, y2 in pixels of the frame, cut at its edges."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """What the result said of it."""


class _Observed(NamedTuple):
    """A frame whose picture is kept."""

    picture: Picture
    shift: np.ndarray
    """float64[2]: the sum of all shifts up to it."""
    place: int
    """How many were observed before it."""


class Tracker:
    """Of one camera. `observe` takes 1 to 2 ms on a laptop's core for six boxes at 640 × 480."""

    def __init__(self, history: int = HISTORY) -> None:
        self._history = history
        self._observed: OrderedDict[int, _Observed] = OrderedDict()
        """By frame: those that results may still come of, and the newest one."""
        self._count = 0
        self._is_newest_sent = True
        self._found = EMPTY
        self._boxes = NOBODY
        self._ids: tuple[int, ...] = ()
        self._next_id = 1
        self._size = (0, 0)

    def observe(
        self, frame: int, image: np.ndarray, renewed: tuple[int, Found] | None = None, *, is_sent: bool = True
    ) -> None:
        """The next frame; with it the newest result, if one came: the number of its frame and its objects. `is_sent`:
        a result of this frame may come.
        """
        self._size = image.shape[1], image.shape[0]
        picture, before = picture_of(image), self._newest()
        if before is None or before.picture.grey.shape != picture.grey.shape:  # the first, or another size
            self._observed.clear()
            before = None
        boxes, shift = self._boxes, np.zeros(2)
        if before is not None:
            boxes, step = moved(boxes, before.picture, picture, whole_shift(before.picture, picture))
            shift = before.shift + step
        self._keep(frame, picture, shift, is_sent)
        self._boxes = boxes
        if renewed is not None:
            self._renew(frame, *renewed)

    def carried(self, found: Found, of_frame: int, to_frame: int) -> np.ndarray | None:
        """float64[N, 4]: where the objects of one frame are in another; None where a picture is not kept any more."""
        source, target = self._observed.get(of_frame), self._observed.get(to_frame)
        if source is None or target is None:
            return None
        if of_frame == to_frame or not len(found):
            return found.boxes
        return moved(found.boxes, source.picture, target.picture, target.shift - source.shift)[0]

    def forget(self, before: int) -> None:
        """No result of an earlier frame is of use any more."""
        while len(self._observed) > 1 and next(iter(self._observed)) < before:
            self._observed.popitem(last=False)

    @property
    def boxes(self) -> np.ndarray:
        """float64[N, 4]: of the objects in the order of their result, also those outside the picture."""
        return self._boxes

    @property
    def found(self) -> Found:
        """The result that is shown."""
        return self._found

    def shown(self) -> tuple[Tracked, ...]:
        """Those that can be seen."""
        width, height = self._size
        if not len(self._boxes):
            return ()
        inside = np.clip(self._boxes, 0.0, (width, height, width, height))
        share = _area(inside) / np.maximum(_area(self._boxes), 1e-9)
        facts: Sequence[Mapping[str, Any]] = self._found.facts or [{}] * len(self._boxes)
        return tuple(
            Tracked(id, label, tuple(box), said)
            for id, label, box, said, visible in zip(
                self._ids, self._found.labels, inside.tolist(), facts, share.tolist(), strict=True
            )
            if visible >= VISIBLE_MIN
        )

    def _newest(self) -> _Observed | None:
        return self._observed[next(reversed(self._observed))] if self._observed else None

    def _keep(self, frame: int, picture: Picture, shift: np.ndarray, is_sent: bool) -> None:
        """In the place of the frame before, where that was of use for the step to this one only."""
        if self._observed and not self._is_newest_sent:
            self._observed.popitem()
        self._observed[frame] = _Observed(picture, shift, self._count)
        self._count += 1
        self._is_newest_sent = is_sent
        while self._count - next(iter(self._observed.values())).place > self._history:
            self._observed.popitem(last=False)

    def _renew(self, frame: int, of_frame: int, found: Found) -> None:
        boxes = self.carried(found, of_frame, frame)
        boxes = found.boxes if boxes is None else boxes
        ids = [0] * len(found)
        for old, new, _ in pairs(self._boxes, boxes, self._found.same_label(found)):
            ids[new] = self._ids[old]
        for at, id in enumerate(ids):
            if not id:
                ids[at], self._next_id = self._next_id, self._next_id + 1
        self._found, self._boxes, self._ids = found, boxes, tuple(ids)


def _area(boxes: np.ndarray) -> np.ndarray:
    return np.asarray((boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1]))
