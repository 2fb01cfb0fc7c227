"""Disk space held back, so that a full disk can be freed: taking back a key or deleting a model is a write as well.

A file of a few megabytes holds the space. It is removed when a write that frees space fails for want of it, and made
again as soon as there is room. Blocking; used in the writer thread only.
"""

import contextlib
import os
import shutil
from pathlib import Path

from appliance.log import get as get_log

log = get_log("reserve")
FILE_NAME = "reserve"
RESERVE_BYTES = 8 * 2**20
"""Twice what SQLite's log grows to before it begins anew."""


class Reserve:
    """The file `reserve` of a state folder."""

    def __init__(self, folder: Path, size_bytes: int = RESERVE_BYTES) -> None:
        self._path = folder / FILE_NAME
        self._size_bytes = size_bytes
        self._is_held = self._path.exists() and self._path.stat().st_size == size_bytes

    def fill(self) -> None:
        """Take the space, where it is not held and the disk has twice as much: the last bytes are for those who
        write.
        """
        if self._is_held or shutil.disk_usage(self._path.parent).free < 2 * self._size_bytes:
            return
        with contextlib.suppress(OSError):  # a disk that fails says so to whoever has to be told
            descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            try:
                os.posix_fallocate(descriptor, 0, self._size_bytes)
                self._is_held = True
            finally:
                os.close(descriptor)

    def release(self) -> bool:
        """Give the space back to the disk; whether there was any."""
        if not self._is_held:
            return False
        self._path.unlink(missing_ok=True)
        self._is_held = False
        log.warning("reserve released", bytes=self._size_bytes)
        return True
