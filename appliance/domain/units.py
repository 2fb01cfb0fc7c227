"""Units that people read: sizes are told in megabytes of 10⁶ bytes."""

BYTES_PER_MB = 10**6


def megabytes(count: int) -> str:
    """Bytes for a person, in units of 10⁶."""
    mb = count / BYTES_PER_MB
    return f"{mb:.1f} MB" if mb >= 0.1 or not mb else f"{mb:.6f}".rstrip("0") + " MB"
