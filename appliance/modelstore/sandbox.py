"""How the failures of a stage's process are put into words. Called by `modelstore.stages.program` inside the child."""

import errno

from appliance.confinement.limits import GIB, ChildLimits
from appliance.domain.errors import ApplianceError, BadModel, StorageFull


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
