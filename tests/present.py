"""Optional values that a test expects to be set."""

from typing import TypeVar

T = TypeVar("T")


def present(value: T | None) -> T:
    """Return the value. Raises: AssertionError where there is none."""
    assert value is not None
    return value
