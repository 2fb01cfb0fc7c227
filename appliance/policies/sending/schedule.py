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
    """Numbers of frames to be sent; after the last of them the interval counts again."""


class Schedule:
    """Remembers the frame sent last; each frame is asked about once, in order."""

    def __init__(self) -> None:
        self._next = 0.0

    def is_due(self, frame: int, orders: Orders) -> bool:
        """Whether to send it."""
        last_named = max(orders.frames, default=-1)
        if frame <= last_named:
            is_due = frame in orders.frames
        else:
            is_due = frame >= self._next
        if is_due:
            # From the moment it was due where that is the rate's doing, else from now.
            due = self._next if frame - self._next < 1.0 else float(frame)
            self._next = (frame if frame <= last_named else due) + max(1.0, orders.interval)
        return is_due
