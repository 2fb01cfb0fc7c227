"""The C heap of this process, kept so that a build that leaves memory really leaves it."""

import ctypes
import threading
from collections import deque
from collections.abc import Callable

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
_BLOCK_BYTES_MAX = 32 << 20
"""Larger blocks come from the system one by one; glibc takes no larger limit."""
_KEPT_BYTES = 128 << 20
"""Free bytes at the end of the heap that stay for the next run.

With 64 MiB two workers still lost them; what they cost in memory: docs/benchmarks/requests.md.
"""
_FREE_BYTES_MAX = 32 << 20
"""Free bytes anywhere in the heap that an idle process keeps."""
_REST_S, _QUIET_S, _PATIENCE_S = 10.0, 0.5, 60.0
"""Between two trims; without a run before one; how long that is waited for.

A trim also takes the pages between runs from whatever else is serving: its next run gets them back one page fault at
a time. After every load and unload that doubled a busy application's run times, and once in ten seconds it still was
what one run in a hundred takes."""


def trim() -> None:
    """Give the C heap's free pages back to the operating system; 0.3-12 ms."""
    if _LIBC is not None:
        _LIBC.malloc_trim(0)


def free_bytes() -> int:
    """Of the C heap, that nobody uses and the operating system does not have back."""
    return 0 if _LIBC is None else int(_LIBC.mallinfo2().free_bytes)


class Trimmer:
    """Trims when it was asked to, after a rest and in a quiet moment, if one comes soon; and when much is free that a
    rush of requests has left: at once where nothing has run for a while, else when runs of a minute did not need it.

    Unloading a lot in a row is one trim.
    """

    def __init__(
        self,
        trim: Callable[[], None] = trim,
        *,
        runs: Callable[[], int] = lambda: 0,
        free: Callable[[], int] = free_bytes,
        rest_s: float = _REST_S,
        quiet_s: float = _QUIET_S,
        patience_s: float = _PATIENCE_S,
    ) -> None:
        """`runs`: how many there were so far; asked in a thread of the trimmer's own."""
        self._trim = trim
        self._runs = runs
        self._free = free
        self._rest_s = rest_s
        self._quiet_s = quiet_s
        self._patience_s = patience_s
        self._wanted = threading.Event()
        self._closed = threading.Event()
        threading.Thread(target=self._work, name="trim", daemon=True).start()

    def want(self) -> None:
        """Something was freed. Any thread; returns at once."""
        self._wanted.set()

    def close(self) -> None:
        """Let the thread end; does not wait."""
        self._closed.set()
        self._wanted.set()

    def _work(self) -> None:
        trimmed = seen = self._runs()
        free_bytes: deque[int] = deque(maxlen=max(1, round(self._patience_s / self._rest_s)))
        while True:
            is_wanted = self._wanted.wait(self._rest_s)
            if self._closed.is_set():
                return
            before, seen = seen, self._runs()
            if is_wanted:
                self._wait_for_quiet()
                self._wanted.clear()
            elif seen == trimmed:
                continue
            else:
                free_bytes.append(self._free())
                is_left = len(free_bytes) == free_bytes.maxlen and min(free_bytes) > _KEPT_BYTES
                if not is_left and (seen != before or free_bytes[-1] <= _FREE_BYTES_MAX):
                    continue
            self._trim()
            free_bytes.clear()
            trimmed = self._runs()
            if self._closed.wait(self._rest_s):
                return

    def _wait_for_quiet(self) -> None:
        for _ in range(round(self._patience_s / self._quiet_s)):
            before = self._runs()
            if self._closed.wait(self._quiet_s) or self._runs() == before:
                return


def set_up() -> None:
    """Let the threads made from now on share one heap, and let that keep what a run frees for the next run.

    One heap: the ends of the threads' own ones are out of `trim`'s reach. Measured over loads and runs of four networks
    on four threads: 5-8 MB stay behind instead of 15-43, at the same CPU time per run. (Taking large blocks from the
    system instead of the heap keeps 13 MB, but costs 35 % CPU.)

    Keep: by itself glibc gives the free end back as soon as it is twice as large as the largest block it has seen. With
    networks of several sizes that was at the end of most runs, and the next one got 30 MB back in 7800 page faults:
    more than half of the runs of `faces` took 30-40 ms in place of 17-20. Now only `trim` gives back what is below
    `_KEPT_BYTES`; it comes with every unload, so also when memory gets scarce.
    """
    if _LIBC is not None:
        _LIBC.mallopt(_M_ARENA_MAX, 1)
        _LIBC.mallopt(_M_MMAP_THRESHOLD, _BLOCK_BYTES_MAX)
        _LIBC.mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)


class _Mallinfo2(ctypes.Structure):
    """As in malloc.h: ten counts, of which the ninth is of free bytes."""

    _fields_ = [(f"count_{index}", ctypes.c_size_t) for index in range(8)] + [
        ("free_bytes", ctypes.c_size_t),
        ("top_bytes", ctypes.c_size_t),
    ]


def _glibc() -> ctypes.CDLL | None:
    try:
        libc = ctypes.CDLL("libc.so.6")
    except OSError:
        return None
    if not (hasattr(libc, "malloc_trim") and hasattr(libc, "mallinfo2")):  # another one, or older than glibc 2.33
        return None
    libc.mallinfo2.restype = _Mallinfo2
    return libc


_LIBC = _glibc()
