"""What runs were seen to take, as it is kept and shown; what was measured at import is `catalogue.Profile`."""

import datetime
from dataclasses import dataclass

INLINE = 0
"""In place of a concurrency: a run on the event loop itself, without the way to a worker and back."""


@dataclass(frozen=True, slots=True)
class SeenLatency:
    """Runs of one batch size while so many were under way, themselves included."""

    batch: int
    concurrency: int
    p50_ns: int
    p99_ns: int
    count: int
    """Runs that it was learnt from."""
    at: datetime.datetime
    """Of the last one."""


@dataclass(frozen=True, slots=True)
class SeenRuns:
    """Runs of one build with inputs of one class of shapes."""

    build_id: str
    shape: str
    """Rung of the ladder (`height x width`, empty where there is none) and class of sizes (`~` and its number, absent
    where inputs differ in the number of items only, or are as large as those of the import)."""
    fingerprint: str
    """Of the processor that they were seen on (`ProcessorDescription.fingerprint`)."""
    latencies: tuple[SeenLatency, ...]

    @property
    def elements_max(self) -> int | None:
        """Of an item of the inputs; None where they are as large as those of the import."""
        size = self.shape.partition("~")[2]
        return largest_of(int(size)) if size else None


def shape_of(rung: str, size: int) -> str:
    """`SeenRuns.shape` of a rung of the ladder and a class of sizes."""
    return f"{rung}~{size}"


def size_class(elements: int) -> int:
    """Sizes of inputs that are expected to take alike: two classes to each doubling, so that within one the largest is
    at most one and a half times the smallest.
    """
    bits = elements.bit_length()
    return 2 * bits + (elements >> (bits - 2) & 1 if bits > 1 else 0)


def largest_of(size: int) -> int:
    """The most elements of a class of sizes."""
    bits, is_upper = divmod(size, 2)
    return (1 << bits) - 1 if is_upper or bits < 2 else (3 << bits - 2) - 1
