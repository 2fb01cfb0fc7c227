"""A socket in the file system: for clients on the box itself, whose bodies then pass no network stack."""

import os
import socket
import stat
from contextlib import suppress
from pathlib import Path

from appliance.domain.errors import InUse


class UnixSocket:
    """A listening socket and its file, which goes with it. `mode`: who may connect; a key is needed all the same."""

    def __init__(self, path: Path, mode: int) -> None:
        """What an earlier run has left at `path` is replaced.

        Raises: InUse where somebody listens there, or where it is another kind of file; OSError.
        """
        self.path = path
        _clear(path)
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        before = os.umask(0o177)  # nobody else connects before `mode` says who may
        try:
            self.socket.bind(str(path))
        except BaseException:
            self.socket.close()
            raise
        finally:
            os.umask(before)
        self._file = path.lstat().st_ino
        path.chmod(mode)

    def close(self) -> None:
        """Listen no more; a file that another has put there since stays."""
        self.socket.close()
        with suppress(OSError):
            if self.path.lstat().st_ino == self._file:
                self.path.unlink()


def _clear(path: Path) -> None:
    try:
        kind = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(kind):
        raise InUse(name=str(path))
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()
        else:
            raise InUse(name=str(path))
