"""What every test shares: the backend of async tests and Hypothesis's profile. Fakes live in `tests/fakes`."""

import pytest
from hypothesis import settings

# No deadline: the machine that runs the tests is small and shared, and a slow example is no wrong one.
settings.register_profile("appliance", deadline=None, print_blob=True)
settings.load_profile("appliance")


@pytest.fixture
def anyio_backend() -> str:
    """`@pytest.mark.anyio` runs on asyncio, as the program does."""
    return "asyncio"
