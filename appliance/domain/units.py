"""Units that people read: sizes are told in megabytes of 10⁶ bytes."""

BYTES_PER_MB = 10**6
