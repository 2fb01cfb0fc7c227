"""A part of a POSIX shared memory object that a tenant has registered.

It is read and written by calls, never mapped: a mapping of an object that its owner cuts short kills whoever touches it
(SIGBUS), and values under a mapping change between their check and their use.
"""

import os
import stat
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from appliance.domain.errors import BadRegion

FOLDER = Path("/dev/shm")
"""Where Linux has the objects of `shm_open`."""
_ALIGNMENT_BYTES = 64


class SharedObject:
    """An open shared memory object; it is closed with the last reference, so nobody reads or writes a closed one."""

    __slots__ = ("_file", "identity")

    def __init__(self, key: str, user: int) -> None:
        """`user`: whose it has to be.

        Raises: BadRegion for a key that names anything but an object of theirs that the box may read and write.
        """
        name = key.lstrip("/")  # clients write one before, as `shm_open` wants it
        if "/" in name or name in ("", ".", ".."):
            raise BadRegion(reason=f"{key[:80]!r} is no key of a shared memory object")
        try:
            self._file = os.open(FOLDER / name, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
        except ValueError:  # a zero byte, or half a character
            raise BadRegion(reason=f"{key[:80]!r} is no key of a shared memory object") from None
        except OSError as error:
            raise BadRegion(
                reason=f"the shared memory object {key[:80]!r} cannot be opened for reading and writing by user "
                f"{os.geteuid()}, who runs the box ({error.strerror})"
            ) from None
        found = os.fstat(self._file)
        if not stat.S_ISREG(found.st_mode):
            raise BadRegion(reason=f"{key!r} is no shared memory object")
        if found.st_uid != user:
            raise BadRegion(
                reason=f"the shared memory object {key!r} belongs to another user than the one that registers it"
            )
        self.identity = (found.st_dev, found.st_ino)
        """Of the object itself, whatever it is called."""

    def __del__(self) -> None:
        if hasattr(self, "_file"):
            os.close(self._file)

    @property
    def size(self) -> int:
        """Bytes that it has now; its owner may change that at any time."""
        return os.fstat(self._file).st_size

    def read(self, room: memoryview, offset: int) -> bool:
        """Fill `room`; whether there was enough."""
        while len(room):
            count = os.preadv(self._file, [room], offset)
            if not count:
                return False
            room, offset = room[count:], offset + count
        return True

    def write(self, data: memoryview, offset: int) -> None:
        """Raises: OSError."""
        while len(data):
            count = os.pwrite(self._file, data, offset)
            data, offset = data[count:], offset + count


@dataclass(frozen=True, slots=True)
class Region:
    """`size` bytes of an object from `offset` on, under a name of their tenant's."""

    name: str
    key: str
    offset: int
    size: int
    key_id: str
    """Of the access key that registered it."""
    object: SharedObject

    def check(self, offset: int, size: int, where: str) -> None:
        """Raises: BadRegion where so many bytes from there are not all inside."""
        if offset + size > self.size:
            raise BadRegion(
                reason=f"{where}: {size} bytes from offset {offset} do not fit into the {self.size} of the shared "
                f"memory region {self.name!r}"
            )

    def read(self, offset: int, size: int) -> memoryview:
        """A copy, which begins at a multiple of 64. Raises: BadRegion where the object has become shorter."""
        room = np.empty(size + _ALIGNMENT_BYTES, np.uint8)
        start = -room.__array_interface__["data"][0] % _ALIGNMENT_BYTES
        view = room.data[start : start + size]
        if not self.object.read(view, self.offset + offset):
            raise self._cut_short()
        return view

    def write(self, offset: int, data: bytes | memoryview) -> None:
        """Raises: BadRegion where the object has become shorter, or no memory is left for it."""
        view, at = memoryview(data).cast("B"), self.offset + offset
        if at + len(view) > self.object.size:  # writing would make it longer again
            raise self._cut_short()
        try:
            self.object.write(view, at)
        except OSError as error:
            raise BadRegion(
                reason=f"the shared memory region {self.name!r} cannot be written ({error.strerror})"
            ) from None

    def _cut_short(self) -> BadRegion:
        return BadRegion(
            reason=f"the object of the shared memory region {self.name!r} is shorter than when it was registered"
        )
