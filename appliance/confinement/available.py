"""What of the confinement there is on this machine, without entering any of it."""

import ctypes
import errno
import os
import platform
from dataclasses import dataclass

from appliance.confinement import landlock, seccomp

CONFINEMENT = "the confinement of children"
"""What is missing where the kernel has all that is wanted and it did not take effect all the same."""


@dataclass(frozen=True, slots=True)
class Confinement:
    """What holds back processes that touch uploaded files; each is true where it can take effect."""

    files: bool
    """They see their own files only (Landlock; for guards of a box that is root also a root directory)."""
    calls: bool
    """System calls are filtered (seccomp)."""
    own_user: bool
    """Guards are users of their own: only where the box is root."""

    @property
    def missing(self) -> tuple[str, ...]:
        """What imports need and is not there, and how it comes."""
        wanted = (
            (self.files, "Landlock (Linux 5.13; under systemd or in a container its three calls, landlock_*, allowed)"),
            (self.calls, "seccomp filters (a kernel with CONFIG_SECCOMP_FILTER, on x86-64 or 64-bit ARM)"),
        )
        return tuple(name for is_there, name in wanted if not is_there)

    @property
    def is_whole(self) -> bool:
        """Whether children that import and measure are held back by all there is for them."""
        return not self.missing


def available() -> Confinement:
    """Asks the kernel; changes nothing."""
    return Confinement(files=landlock.version() > 0, calls=_has_filters(), own_user=os.geteuid() == 0)


def _has_filters() -> bool:
    """A kernel that knows filters complains of the place of one that is nowhere (seccomp(2): EFAULT), another one of
    the mode.
    """
    if platform.machine() not in seccomp.MACHINES:
        return False
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(seccomp.PR_SET_SECCOMP, seccomp.MODE_FILTER, 0, 0, 0)
    return ctypes.get_errno() == errno.EFAULT
