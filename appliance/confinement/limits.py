"""What a child that imports or measures may use, and how it accepts that.

The limits cannot be raised again, by whatever takes over the process later. A child sets them itself, rather than the
service between fork and exec: that keeps the service free of `preexec_fn`, which may deadlock a threaded parent.
"""

import os
import resource
from dataclasses import dataclass

from appliance.confinement import privileges

CPU_GRACE_S = 5
"""Between SIGXCPU, which ends the process with a plain cause, and SIGKILL, for one that ignores it."""
GIB = 2**30


@dataclass(frozen=True, slots=True)
class ChildLimits:
    """What one stage may use."""

    memory_bytes: int = 6 * GIB
    """Address space beyond what the bare interpreter occupies."""
    cpu_s: int = 900
    wall_s: float = 1200.0
    file_bytes: int = 16 * GIB
    """Largest file written."""
    files_max: int = 256
    """Open files."""
    nice: int = 10
    must_be_confined: bool = False
    """Whether the child ends before it opens a file when files or system calls could not be taken from it."""


def enter(limits: ChildLimits, parent: int) -> None:
    """Gain no rights, and accept the limits; after `child.die_with_parent`.

    Raises: SystemExit when the parent is gone already.
    """
    privileges.gain_no_rights()
    if os.getppid() != parent:
        raise SystemExit("the parent has ended")
    os.umask(0o077)
    os.nice(limits.nice)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _limit(resource.RLIMIT_AS, limits.memory_bytes + _address_space_bytes())
    _limit(resource.RLIMIT_FSIZE, limits.file_bytes)
    _limit(resource.RLIMIT_NOFILE, limits.files_max)
    _limit(resource.RLIMIT_CPU, limits.cpu_s, limits.cpu_s + CPU_GRACE_S)


def _limit(which: int, soft: int, hard: int | None = None) -> None:
    """Lower a limit; a stricter one that is in force already stays."""
    ceiling = resource.getrlimit(which)[1]
    wanted = soft if hard is None else hard
    hard = wanted if ceiling == resource.RLIM_INFINITY else min(wanted, ceiling)
    resource.setrlimit(which, (min(soft, hard), hard))


def _address_space_bytes() -> int:
    with open("/proc/self/statm", encoding="ascii") as statm:
        return int(statm.read().split()[0]) * resource.getpagesize()
