"""How the failures of a stage's process are put into words. Called by `modelstore.stages.program` inside the child."""

import errno
import traceback

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
        if error.strerror:
            return BadModel(reason=f"a file of it cannot be worked with: {error.strerror}")
    if isinstance(error, RecursionError):
        return BadModel(reason="the file nests too deeply")
    return BadModel(
        reason=f"the box does not know what to do with this file ({type(error).__name__}{_place_of(error)})"
    )


def _place_of(error: BaseException) -> str:
    """Which function of the box was at work, as ` in module.function`."""
    frames = [frame for frame, _line in traceback.walk_tb(error.__traceback__)]
    names = (f"{frame.f_globals.get('__name__', '')}.{frame.f_code.co_name}" for frame in reversed(frames))
    own = next((name for name in names if name.startswith("appliance.")), "")
    return f" in {own.removeprefix('appliance.')}" if own else ""


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
