"""What every test shares: the backend of async tests and Hypothesis's profile. Fakes live in `tests/fakes`."""

import ctypes
import signal

import pytest
from hypothesis import settings

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell that starts something in the background has it ignore Ctrl-C, and so would every program of a test.
    signal.signal(signal.SIGINT, signal.default_int_handler)

# No deadline: the machine that runs the tests is small and shared, and a slow example is no wrong one.
settings.register_profile("appliance", deadline=None, print_blob=True)
settings.load_profile("appliance")


@pytest.fixture
def anyio_backend() -> str:
    """`@pytest.mark.anyio` runs on asyncio, as the program does."""
    return "asyncio"


_LIBM = ctypes.CDLL(None)
_FLOATING_POINT = ctypes.create_string_buffer(64)
_LIBM.fegetenv(_FLOATING_POINT)


@pytest.fixture(autouse=True)
def _floating_point() -> None:
    """ONNX Runtime makes subnormal numbers zero for the thread that makes its first session: here the one of all tests.
    Hypothesis draws such numbers, and refuses then.
    """
    _LIBM.fesetenv(_FLOATING_POINT)
