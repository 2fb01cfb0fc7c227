"""Shared memory between service and guard: made by the service, of a size that neither side can change afterwards."""

import fcntl
import mmap
import os

SMALLEST_BYTES = 64 << 10
KEPT_BYTES = 4 << 20
"""What an area may keep between two runs; what a larger one took goes back to the system."""
LARGEST_BYTES = 1 << 31


class Area:
    """The service's half. A mapping that the other side could cut short would end whoever reads it (SIGBUS): it is
    sealed.
    """

    def __init__(self, need_bytes: int = 0) -> None:
        self.size = max(SMALLEST_BYTES, 1 << max(0, need_bytes - 1).bit_length())
        self.descriptor = os.memfd_create("guard", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(self.descriptor, self.size)
        seals = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
        fcntl.fcntl(self.descriptor, fcntl.F_ADD_SEALS, seals)
        self.mapping = mmap.mmap(self.descriptor, self.size)

    def give_back(self, used_bytes: int) -> None:
        """After a run that used so many bytes."""
        if used_bytes > KEPT_BYTES:
            self.mapping.madvise(mmap.MADV_REMOVE)

    def sent(self) -> None:
        """The guard has its own descriptor now."""
        os.close(self.descriptor)
        self.descriptor = -1

    def close(self) -> None:
        """Arrays that still lie in the mapping keep it until they go."""
        if self.descriptor >= 0:
            self.sent()
        try:
            self.mapping.close()
        except BufferError:
            pass


def mapped(descriptor: int, *, writable: bool) -> mmap.mmap:
    """The guard's half: the mapping of a descriptor that came, which is closed."""
    size = os.fstat(descriptor).st_size
    protection = mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0)
    try:
        return mmap.mmap(descriptor, size, prot=protection)
    finally:
        os.close(descriptor)
