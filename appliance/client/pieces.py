"""Sending a large file so that a broken line costs only what was on its way."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

import httpx

from appliance.clock import pause_s
from appliance.domain.errors import OffsetMismatch
from appliance.wire.jobs import UploadShape

BLOCK_BYTES = 2**18
PIECE_BYTES = 64 * 2**20
"""One request; what it brought is safely on the box's disk when it is answered."""
FAILURES_MAX = 5
"""Broken pieces in a row without any byte gained before giving up."""

Append = Callable[[str, int, Iterator[bytes]], UploadShape]
Progress = Callable[[int, int], None]


def pieces(append: Append, state: Callable[[], UploadShape], path: Path, on_progress: Progress | None) -> UploadShape:
    """Send what is missing of `path`; returns the complete upload.

    Raises: httpx.TransportError when the line stays broken, and what the box says.
    """
    size = path.stat().st_size
    upload, failures = state(), 0
    with path.open("rb") as file:
        while upload.offset < size:
            before = upload.offset
            file.seek(before)
            try:
                upload = append(upload.id, before, _blocks(file, before, size, on_progress))
            except (httpx.TransportError, OffsetMismatch):
                upload = state()
                failures = 0 if upload.offset > before else failures + 1
                if failures >= FAILURES_MAX:
                    raise
                pause_s(0.1 * 2**failures)
    if on_progress is not None:
        on_progress(size, size)
    return upload


def _blocks(file: BinaryIO, start: int, size: int, on_progress: Progress | None) -> Iterator[bytes]:
    sent = 0
    while sent < PIECE_BYTES and (block := file.read(BLOCK_BYTES)):
        yield block
        sent += len(block)
        if on_progress is not None:
            on_progress(start + sent, size)
