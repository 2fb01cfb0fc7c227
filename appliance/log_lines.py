"""Lines of the log on their way to standard error, written by a thread of their own: whoever tells something never
waits for whoever reads it. A pipe that nobody empties holds 64 KiB, and the next write would stand for ever.
"""

import os
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress

WAITING_MAX = 2**20
"""Characters that wait to be written; further lines are dropped, and counted."""
END_S = 1.0
"""So long the end of the process waits for the last lines."""
STANDARD_ERROR = 2


class LogLines:
    """A text stream for loggers. What cannot be written is lost: the disk that a log lies on may be full."""

    def __init__(self, of_dropped: Callable[[int], str], descriptor: int = STANDARD_ERROR) -> None:
        """`of_dropped`: the line that stands for so many that were dropped, written once there is room again."""
        self._of_dropped = of_dropped
        self._descriptor = descriptor
        self._changed = threading.Condition()
        self._lines: deque[str] = deque()
        self._waiting = 0
        self._untold = 0
        self._is_over = False
        self._thread: threading.Thread | None = None
        self.dropped = 0
        """Lines, since the start."""

    def write(self, text: str) -> None:
        """Have a line, or several whole ones, written soon. From any thread; never waits for the reader."""
        with self._changed:
            if self._waiting + len(text) > WAITING_MAX and self._lines:
                self.dropped += 1
                self._untold += 1
                return
            self._lines.append(text)
            self._waiting += len(text)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="log", daemon=True)
                self._thread.start()
            self._changed.notify()

    def flush(self) -> None:
        """Streams have it; lines are written at once anyway."""

    def close(self, within_s: float = END_S) -> None:
        """Have what waits written, for so long at most."""
        with self._changed:
            self._is_over = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join(within_s)

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._lines:
                    if self._is_over:
                        return
                    self._changed.wait()
                text = self._lines.popleft()
            self._write(text)
            with self._changed:
                self._waiting -= len(text)
                untold, self._untold = self._untold, 0
            if untold:
                self._write(self._of_dropped(untold))

    def _write(self, text: str) -> None:
        """By the system's call: Python's own stream is locked while it waits, and cannot be closed then at the end."""
        data = memoryview(text.encode("utf-8", "backslashreplace"))
        with suppress(OSError):
            while data:
                data = data[os.write(self._descriptor, data) :]
