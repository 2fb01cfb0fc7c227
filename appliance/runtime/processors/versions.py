"""What is installed, without importing it."""

from importlib.metadata import PackageNotFoundError, version


def version_of(distribution: str) -> str:
    """Empty where it is not installed."""
    try:
        return version(distribution)
    except PackageNotFoundError:
        return ""
