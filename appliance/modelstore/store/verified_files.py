"""Digests of files that determine answers: each is read whole when it is first needed, and again once it has changed.

Blocking: called from threads.
"""

import threading
from collections.abc import Callable
from pathlib import Path

from appliance.modelstore.store.disk import hash_of

_Look = tuple[tuple[str, int, int, int, int], ...]
"""Of each file: its name, size, inode, and when content and inode changed last."""


class VerifiedFiles:
    """Remembers which files had their digest in this process, and what they looked like then."""

    def __init__(self, digest_of: Callable[[Path], str] = hash_of) -> None:
        """`digest_of` a file, or of a folder where folders are asked about."""
        self._digest_of = digest_of
        self._found: dict[Path, tuple[str, _Look]] = {}
        self._lock = threading.Lock()

    def is_sound(self, path: Path, digest: str, *, anew: bool = False) -> bool:
        """Whether a file has this digest; `anew`: read it also where it looks as it did when it was read last."""
        with self._lock:  # several loads of one file read it once
            try:
                look = _look(path)
                if not anew and self._found.get(path) == (digest, look):
                    return True
                self._found.pop(path, None)
                if self._digest_of(path) != digest:
                    return False
            except OSError:
                return False
            self._found[path] = digest, look
            return True


def _look(path: Path) -> _Look:
    files = sorted(path.iterdir()) if path.is_dir() else [path]
    statuses = [(file.name, file.stat()) for file in files]
    return tuple((name, one.st_size, one.st_ino, one.st_mtime_ns, one.st_ctime_ns) for name, one in statuses)
