"""Pictures of one session that are in memory, on whatever connections they came: never more than two of the largest."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

FRAMES = 2


class Held(Protocol):
    """A picture whose bytes somebody counts, or a stream on which pictures come."""

    @property
    def bytes(self) -> int:
        """In memory now; 0: it is there no more."""
        ...


class Holding:
    """Of one session. Event-loop thread only."""

    def __init__(self) -> None:
        self._held: set[Held] = set()
        self._posted_bytes = 0

    @property
    def bytes(self) -> int:
        """Of pictures that wait for their answers, and of those that come, as long as they may become."""
        self._held = {held for held in self._held if held.bytes}
        return self._posted_bytes + sum(held.bytes for held in self._held)

    def has_room(self, count: int, frame_bytes_max: int) -> bool:
        """For a picture of so many bytes more."""
        return self.bytes + count <= FRAMES * frame_bytes_max

    def put(self, held: Held) -> None:
        """A picture that came on a stream is whole, or one is announced on it; again: nothing."""
        self._held.add(held)

    @contextmanager
    def posted(self, count: int) -> Iterator[None]:
        """While a picture of at most so many bytes comes in a request and waits for its answer."""
        self._posted_bytes += count
        try:
            yield
        finally:
            self._posted_bytes -= count
