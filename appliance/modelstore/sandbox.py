"""What a stage's process does to itself before it touches a hostile file, and how its failures are put into words.

Called by `modelstore.stages.program` inside the child. The limits cannot be raised again, by whatever takes over the
process later. Setting them here, rather than between fork and exec, keeps the service free of `preexec_fn`, which may
deadlock a threaded parent.
"""

import ctypes
import errno
import os
import resource
from dataclasses import dataclass

from appliance.child import die_with_parent
from appliance.domain.errors import ApplianceError, BadModel, StorageFull

PR_SET_NO_NEW_PRIVS = 38
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


def enter(limits: ChildLimits, parent: int) -> None:
    """Die with `parent`, gain no rights, and accept the limits.

    Raises: SystemExit when the parent is gone already.
    """
    die_with_parent()
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
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


def as_error(error: BaseException, limits: ChildLimits) -> ApplianceError:
    """Any exception of a stage as a typed error with a reason for the tenant."""
    if isinstance(error, ApplianceError):
        return error
    if is_memory_shortage(error):
        return BadModel(reason=memory_reason(limits))
    if isinstance(error, OSError):
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            return StorageFull()
        if error.errno == errno.EFBIG:
            return BadModel(reason=f"writes a file of more than {in_gib(limits.file_bytes)}")
    if isinstance(error, RecursionError):
        return BadModel(reason="the file nests too deeply")
    first_line = (str(error).strip().splitlines() or [""])[0][:400]
    return BadModel(reason=f"{type(error).__name__}: {first_line}")


def is_memory_shortage(error: BaseException) -> bool:
    """Whether the limit on memory caused this, also where ONNX Runtime put its own words to it."""
    if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM):
        return True
    return any(
        word in str(error)
        for word in ("bad_alloc", "bad allocation", "Failed to allocate memory", "Cannot allocate memory")
    )


def memory_reason(limits: ChildLimits) -> str:
    """The sentence for a stage that ran out of memory."""
    return f"needs more than {in_gib(limits.memory_bytes)} of memory"


def in_gib(count_bytes: int) -> str:
    """Bytes as `6.0 GiB`."""
    return f"{count_bytes / GIB:.1f} GiB"
