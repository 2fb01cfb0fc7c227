"""How long it takes to bring weights back, by how much of their file is in the page cache; as seen on this machine."""

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median
from typing import Protocol

from appliance.clock import SystemClock

_CLOCK = SystemClock()
_FIXED_NS = 200_000
"""Of every wake, however little it brings back: threads, and system calls."""
_CACHED_NS_PER_BYTE, _DISK_NS_PER_BYTE = 0.05, 1.0
"""Until there are figures: a quarter of a millisecond per 5 MB to map, 1 GB/s to read."""
_REMEMBERED = 9
"""Wakes that the figures are the median of: one that had to wait for a processor says little."""


class Cached(Protocol):
    """A file as the page cache has it."""

    size_bytes: int

    def cached_bytes(self) -> int: ...


class WakeRates:
    """What a byte costs that is in the page cache, and one that is not."""

    def __init__(self) -> None:
        self._cached = deque([_CACHED_NS_PER_BYTE], _REMEMBERED)
        self._disk = deque([_DISK_NS_PER_BYTE], _REMEMBERED)

    def expected_ns(self, file: Cached | None) -> int:
        """A wake that begins now; None: of a file that cannot be looked at."""
        if file is None:
            return _FIXED_NS
        cached = file.cached_bytes()
        return _FIXED_NS + int(median(self._cached) * cached + median(self._disk) * (file.size_bytes - cached))

    @contextmanager
    def timed(self, file: Cached | None) -> Iterator[int]:
        """Around a wake, with how much is not in the page cache: learn from it, if it succeeds."""
        cached = 0 if file is None else file.cached_bytes()
        start_ns = _CLOCK.now_ns()
        yield 0 if file is None else file.size_bytes - cached
        if file is not None:
            self.saw(_CLOCK.now_ns() - start_ns, cached, file.size_bytes - cached)

    def saw(self, took_ns: int, cached_bytes: int, missing_bytes: int) -> None:
        """Learn from one: of what was not in the page cache where that cost most of the time, else of what was."""
        left_ns = max(0.0, took_ns - _FIXED_NS - median(self._cached) * cached_bytes)
        if missing_bytes > cached_bytes // 8:
            self._disk.append(left_ns / missing_bytes)
        elif cached_bytes and not missing_bytes:
            self._cached.append(max(0, took_ns - _FIXED_NS) / cached_bytes)
