"""What a part takes where only the largest was measured (Band §4.3.2): in proportion to its floating-point operations
and to the bytes that go in and out.
"""

from dataclasses import dataclass

ACCELERATOR_PER_BYTE, CPU_PER_BYTE = 1000.0, 10.0
"""Operations that moving a byte counts for: accelerators compute faster than they are fed."""


@dataclass(frozen=True, slots=True)
class Work:
    """Of one run."""

    flops: float
    tensor_bytes: int
    """Of its inputs and outputs."""

    def weight(self, per_byte: float) -> float:
        return self.flops + per_byte * self.tensor_bytes


def estimated_ms(part: Work, largest: Work, largest_ms: float, per_byte: float) -> float:
    """Time of a run of `part`, on the processor on which the largest part took `largest_ms` (BA-20)."""
    return largest_ms * part.weight(per_byte) / max(largest.weight(per_byte), 1.0)
