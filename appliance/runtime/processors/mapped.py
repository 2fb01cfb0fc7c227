"""Touch the pages of a mapped weights file before the first run does, in one system call instead of thousands of page faults."""

import ctypes
from contextlib import suppress
from pathlib import Path

_MADV_POPULATE_READ = 22  # Linux 5.14


def populate(path: Path) -> int:
    """Map in every page of this process's read-only mappings of `path`; returns the bytes covered (0 where the kernel cannot)."""
    done = 0
    with suppress(OSError, AttributeError):
        madvise = ctypes.CDLL(None, use_errno=True).madvise
        madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
        name = str(path)
        with open("/proc/self/maps") as maps:
            spans = [line.split(" ", 1)[0].split("-") for line in maps if line.rstrip().endswith(name)]
        for start, end in spans:
            length = int(end, 16) - int(start, 16)
            if madvise(int(start, 16), length, _MADV_POPULATE_READ) == 0:
                done += length
    return done
