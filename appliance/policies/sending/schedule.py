"""Which captured frames are to be sent: those that the box's plan names, and beyond them one in every interval."""

from collections.abc import Collection
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Orders:
    """What the box asks of a device until it says otherwise."""

    size_px: int = 640
    """Longer side of the picture; a camera that has less sends what it has."""
    quality: int = 75
    """Of JPEG, 1 to 100."""
    interval: float = 1.0
    """Captured frames from one to be sent to the next; no whole number where the rates do not divide."""
    frames: Collection[int] = field(default=())
    """Numbers of frames to be sent; after the last of them the interval counts again. Of one that the camera did not
    give the next one is sent.
    """


class Schedule:
    """Remembers the frame sent last; each frame is asked about once, in order."""

    def __init__(self) -> None:
        self._next = 0.0
        self._asked = -1

    def is_due(self, frame: int, orders: Orders) -> bool:
        """Whether to send it."""
        before, self._asked = self._asked, frame
        is_named = any(before < number <= frame for number in orders.frames)
        if is_named or frame <= max(orders.frames, default=-1):
            if is_named:
                self._next = frame + max(1.0, orders.interval)
            return is_named
        if frame < self._next:
            return False
        # From the moment it was due where that is the rate's doing, else from now.
        due = self._next if frame - self._next < 1.0 else float(frame)
        self._next = due + max(1.0, orders.interval)
        return True
