"""What the planner is told: frames a second as clients said when they joined, and items a frame as seen in windows of
half a second (SC-18, SC-19).
"""

from collections import deque
from collections.abc import Mapping

from reproduce.scrooge.applications import Application
from reproduce.scrooge.workload import Sent

WINDOW_S = 0.5
WINDOWS = 2
"""Over so many of them."""


class Demand:
    """Items by stage for each frame, the mean of the last windows."""

    def __init__(self, application: Application) -> None:
        self._application = application
        self._windows: deque[list[Sent]] = deque([[]], maxlen=WINDOWS)

    def note(self, sent: Sent) -> None:
        self._windows[-1].append(sent)

    def turn(self) -> None:
        """A window is over."""
        self._windows.append([])

    def rates(self, fps: float) -> dict[str, float]:
        """Items a second by stage when so many frames a second come."""
        frames = [sent for window in self._windows for sent in window]
        if not frames:
            return rates_of(self._application, fps, {})
        kinds = frames[0].objects
        return rates_of(self._application, fps, {k: sum(f.objects[k] for f in frames) / len(frames) for k in kinds})


def rates_of(application: Application, fps: float, objects: Mapping[str, float]) -> dict[str, float]:
    """Items a second by stage, from objects a frame by kind."""
    rates = {application.root: fps}
    ahead = [application.root]
    while ahead:
        source = ahead.pop()
        for edge in application.after[source]:
            rates[edge.target] = rates[source] * (1.0 if edge.objects is None else objects.get(edge.objects, 1.0))
            ahead.append(edge.target)
    return rates
