"""Numbers too small for the normal form are zero to the kernels: the flags of the processor that say so.

A processor computes with subnormal numbers (below 1.2e-38 in single precision) up to two hundred times slower than
with others, so that a run's time would depend on its values. The flags are a thread's; threads that it makes inherit
them. The runtime's own option sets them in the threads of its pools and in the one that makes the first session of a
process, not in those that call it.
"""

import ctypes
import platform

_ENVIRONMENT_BYTES = 64
"""As large as any machine's `fenv_t`, and larger."""
_FLAGS = {"x86_64": (28, 0x8040), "aarch64": (0, 1 << 24 | 1 << 19)}
"""Machine → where in `fenv_t` its control register stands, and the flags: inputs and results; FZ and FZ16."""


def flush_subnormals() -> None:
    """In the calling thread; without effect on machines that are not known here."""
    if platform.machine() not in _FLAGS:
        return
    libm = ctypes.CDLL(None)
    at, flags = _FLAGS[platform.machine()]
    environment = ctypes.create_string_buffer(_ENVIRONMENT_BYTES)
    libm.fegetenv(environment)
    changed = bytearray(environment.raw)
    register = int.from_bytes(changed[at : at + 4], "little") | flags
    changed[at : at + 4] = register.to_bytes(4, "little")
    libm.fesetenv(bytes(changed))
