"""A body that comes in pieces, gathered in pages of its own."""

from mmap import MAP_ANONYMOUS, MAP_PRIVATE, mmap

from appliance.api.http.exchange import ALIGNMENT_BYTES

_FIRST_BYTES = 2**20


class LargeBody:
    """Gathers a body such that what stands behind its first `ahead` bytes begins at a multiple of 64.

    Bodies that grow beside one another in the heap are copied time and again, and leave holes that others do not fill:
    224 MB of them took 400. Pages are moved without a copy, and go back to the system with the last view of them.
    """

    __slots__ = ("_end", "_pages", "_start")

    def __init__(self, ahead: int) -> None:
        self._pages = mmap(-1, _FIRST_BYTES, flags=MAP_PRIVATE | MAP_ANONYMOUS)
        self._start = self._end = -ahead % ALIGNMENT_BYTES

    def __len__(self) -> int:
        return self._end - self._start

    def append(self, piece: bytes | bytearray | memoryview) -> None:
        """Add what has come; not after `view`."""
        end = self._end + len(piece)
        if end > len(self._pages):
            self._pages.resize(max(end, 2 * len(self._pages)))  # what nobody has written yet takes no memory
        self._pages[self._end : end] = piece
        self._end = end

    def view(self) -> memoryview:
        """All of it."""
        return memoryview(self._pages)[self._start : self._end]
