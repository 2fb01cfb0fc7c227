"""Weights that a session maps from a file: which pages of the process they are, and what the kernel is told about them.

A mapping is private, and nobody writes to it, so its pages are those of the page cache: given back they cost nothing to
keep, and they come again without a copy. Only pages that are known to be a mapping of the file, and unchanged after the
load, are ever given back: anything else would lose what it holds.
"""

import ctypes
import errno
import mmap
import os
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar
from weakref import WeakValueDictionary

import numpy as np

_MADV_SEQUENTIAL, _MADV_DONTNEED, _MADV_HUGEPAGE, _MADV_POPULATE_READ = 2, 4, 14, 22
"""The last since Linux 5.14."""
_DAMAGED = (errno.EFAULT, 133)
"""What populating says of pages that reading would end the process for: the disk gave an error, the file is shorter
than it was, or the memory is broken (EHWPOISON, which Python has no name for)."""
_PIECE_BYTES = 8 << 20
"""That are mapped at once while a file is read."""
_ENTRY = np.dtype(np.uint64)
_PRESENT, _SWAPPED, _IS_FILE = (np.uint64(1 << bit) for bit in (63, 62, 61))
"""Of `/proc/self/pagemap`."""
_WINDOW_BYTES, _WINDOWS_MAX = 256 << 10, 16
"""Parts of a file that are looked at."""

T = TypeVar("T")
Span = tuple[int, int, int]
"""Where in its file a mapping begins; its first address, and the one behind it."""
Advise = Callable[[int, int, int], int]
"""`madvise`: address, length, advice; returns 0 or an error number."""


def advise(address: int, length: int, advice: int) -> int:
    """The system call; its error number in place of -1."""
    if _MADVISE is None:
        return errno.ENOSYS
    return 0 if _MADVISE(address, length, advice) == 0 else ctypes.get_errno()


class Damaged(OSError):
    """Pages of the file cannot be read."""


@dataclass(frozen=True, slots=True)
class ProcFiles:
    """What the kernel says of this process's memory: paths, or descriptors where they cannot be opened any more."""

    maps: str | int = "/proc/self/maps"
    pages: str | int | None = "/proc/self/pagemap"
    """None: not to be known."""


class Weights:
    """The mapping of one session, until that ends."""

    def __init__(self, spans: Collection[Span], own: ProcFiles, advise: Advise) -> None:
        self._spans = sorted(spans)
        self._own = own
        self._advise = advise
        self.size_bytes = sum(end - start for _, start, end in spans)

    def populate(self) -> None:
        """Map in every page, in a system call for each span instead of thousands of page faults; blocks while the disk
        is read, in the order of the file.

        Raises: Damaged; OSError for a kernel that cannot.
        """
        for _, start, end in self._spans:
            failed = self._advise(start, end - start, _MADV_POPULATE_READ)
            if failed:
                raise (Damaged if failed in _DAMAGED else OSError)(failed, os.strerror(failed))

    def give_back(self) -> None:
        """Let every page go; whoever reads one gets it back. Raises: OSError."""
        for _, start, end in self._spans:
            failed = self._advise(start, end - start, _MADV_DONTNEED)
            if failed:
                raise OSError(failed, os.strerror(failed))

    def are_the_files(self) -> bool:
        """Whether no page was written to, as far as can be known; 1 ms for 100 MB."""
        pages = self._own.pages
        if pages is None:
            return True
        with suppress(OSError), open(pages, "rb", buffering=0, closefd=isinstance(pages, str)) as file:
            return all(_are_unchanged(file.fileno(), start, end) for _, start, end in self._spans)
        return False

    def forget(self) -> None:
        """The session ends: from now on the addresses may be anything's."""
        self._spans = []


class Mappings:
    """Finds out which session has mapped what: sessions over one file begin one after the other."""

    def __init__(self, own: ProcFiles, advise: Advise) -> None:
        self._own = own
        self._advise = advise
        self._turns: WeakValueDictionary[str, _Turn] = WeakValueDictionary()
        self._turn = _Turn()

    def watch(self, path: Path, begin: Callable[[], T]) -> tuple[T, Weights]:
        """What `begin` returns, and what it has mapped of `path`."""
        with self._turn.lock:
            turn = self._turns.setdefault(str(path), _Turn())
        with turn.lock:
            before = self._spans(path)
            begun = begin()
            own = [span for span in self._spans(path) if not any(_overlap(span, other) for other in before)]
        return begun, Weights(own, self._own, self._advise)

    def _spans(self, path: Path) -> set[Span]:
        """The private mappings of the file; none where they cannot be told."""
        maps = self._own.maps
        with suppress(OSError):
            with open(maps, "rb", closefd=isinstance(maps, str)) as file:
                file.seek(0)
                lines = file.read()
            return {span for span in map(_span, _lines_of(path, lines)) if span is not None}
        return set()


def _lines_of(path: Path, lines: bytes) -> Iterator[bytes]:
    """Lines that end in the path. Of the thousands of a process with many builds only those are looked at closely."""
    end = b" " + bytes(path) + b"\n"
    at = lines.find(end)
    while at >= 0:
        yield lines[lines.rfind(b"\n", 0, at) + 1 : at]
        at = lines.find(end, at + len(end))


def _span(line: bytes) -> Span | None:
    """What a line of `/proc/self/maps` says of a private mapping that can be read; None of any other."""
    addresses, rights, offset, *_ = line.split()
    if rights[:1] != b"r" or rights[3:] != b"p":
        return None
    start, end = addresses.split(b"-")
    return int(offset, 16), int(start, 16), int(end, 16)


class _Turn:
    """Whose turn it is; held by those who wait for it, and nobody else."""

    def __init__(self) -> None:
        self.lock = threading.Lock()


def _are_unchanged(page_map: int, start: int, end: int) -> bool:
    """Whether none of these pages is in memory or swapped out without being a page of a file."""
    length = (end - start) // mmap.PAGESIZE * _ENTRY.itemsize
    data = os.pread(page_map, length, start // mmap.PAGESIZE * _ENTRY.itemsize)
    entries = np.frombuffer(data, _ENTRY)
    is_changed = ((entries & (_PRESENT | _SWAPPED)) != 0) & ((entries & _IS_FILE) == 0)
    return len(data) == length and not is_changed.any()


def _overlap(one: Span, other: Span) -> bool:
    return one[1] < other[2] and other[1] < one[2]


class CachedFile:
    """A file as the page cache has it, also after it was deleted; read through a mapping of its own, which takes no
    memory, for nobody touches it.
    """

    def __init__(self, path: Path) -> None:
        """Raises: OSError, ValueError for an empty file."""
        with path.open("rb") as file:
            self._mapping = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self._view = np.frombuffer(self._mapping, np.uint8)
        self._address = self._view.ctypes.data
        for advice in (_MADV_SEQUENTIAL, _MADV_HUGEPAGE):
            advise(self._address, len(self._mapping), advice)
        self.size_bytes = len(self._mapping)

    def cached_bytes(self) -> int:
        """About how much of it is in the page cache; all of it where the kernel does not tell.

        Of a large file parts are looked at, evenly spread: about 0.2 ms.
        """
        windows = -(-self.size_bytes // _WINDOW_BYTES)
        step = -(-windows // _WINDOWS_MAX)
        seen = cached = 0
        for start in range(0, self.size_bytes, step * _WINDOW_BYTES):
            length = min(_WINDOW_BYTES, self.size_bytes - start)
            if _MINCORE is None or _MINCORE(self._address + start, length, _PAGES.ctypes.data) != 0:
                return self.size_bytes
            pages = -(-length // mmap.PAGESIZE)
            seen += pages
            cached += int(np.count_nonzero(_PAGES[:pages] & 1))
        return self.size_bytes * cached // seen

    def read_ahead(self) -> bool:
        """Have the kernel read what is not in the page cache; blocks meanwhile. Returns whether there was no damage.

        By page faults from the front to the end: a tenth of the processor time of `read`, which copies. And where the
        kernel can, in large pieces, which it keeps as such: 100 MB that came so are mapped in 1.3-1.9 ms and given back
        in 0.6, where they took 4.0-6.2 and 2.2-3.9 after they had come by page faults of the session's own mapping.
        """
        is_whole = True
        for start in range(0, self.size_bytes, _PIECE_BYTES):
            length = min(_PIECE_BYTES, self.size_bytes - start)
            is_whole &= advise(self._address + start, length, _MADV_POPULATE_READ) not in _DAMAGED
            advise(self._address + start, length, _MADV_DONTNEED)
        return is_whole


def _function(name: str, *types: type) -> Callable[..., int] | None:
    with suppress(OSError, AttributeError):
        function = getattr(ctypes.CDLL(None, use_errno=True), name)
        function.argtypes = types
        return function  # type: ignore[no-any-return]
    return None


_MADVISE = _function("madvise", ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
_PAGES = np.zeros(_WINDOW_BYTES // mmap.PAGESIZE, np.uint8)
"""What the kernel says of the pages of a window."""
_MINCORE = _function("mincore", ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)
