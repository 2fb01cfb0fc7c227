"""Digests of files that determine answers: each is read whole when it is first needed, and again once it has changed.

Blocking: called from threads.
"""

import threading
from collections import defaultdict
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
        self._reading: defaultdict[Path, threading.Lock] = defaultdict(threading.Lock)

    def is_sound(self, path: Path, digest: str, *, anew: bool = False) -> bool:
        """Whether a file is there and has this digest; `anew`: read it also where it looks as it did when it was read
        last. One that is known is asked about without waiting for others that are read.

        Raises: OSError for a file that is there and cannot be read: nothing is known of it then.
        """
        try:
            if not anew and self._found.get(path) == (digest, _look(path)):
                return True
            with self._reading[path]:  # several loads of one file read it once
                look = _look(path)
                if not anew and self._found.get(path) == (digest, look):
                    return True
                is_sound = self._digest_of(path) == digest
        except FileNotFoundError:
            return False
        if is_sound:
            self._found[path] = digest, look
        else:
            self._found.pop(path, None)
        return is_sound


def _look(path: Path) -> _Look:
    files = sorted(path.iterdir()) if path.is_dir() else [path]
    statuses = [(file.name, file.stat()) for file in files]
    return tuple((name, one.st_size, one.st_ino, one.st_mtime_ns, one.st_ctime_ns) for name, one in statuses)
