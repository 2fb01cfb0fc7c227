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
    """Rung of the ladder (`height x width`, empty where there is none), class of sizes (`~` and its number, absent
    where inputs differ in the number of items only, or are as large as those of the import) and, of a processor that
    the import did not measure on, its name (`@` before it)."""
    fingerprint: str
    """Of the processor that they were seen on (`ProcessorDescription.fingerprint`)."""
    latencies: tuple[SeenLatency, ...]

    @property
    def elements_max(self) -> int | None:
        """Of an item of the inputs; None where they are as large as those of the import."""
        size = self.shape.partition("@")[0].partition("~")[2]
        return largest_of(int(size)) if size else None

    @property
    def processor(self) -> str:
        """Empty where the import measured on it."""
        return self.shape.partition("@")[2]


def shape_of(rung: str, size: int | None = None, processor: str = "") -> str:
    """`SeenRuns.shape` of a rung of the ladder, a class of sizes and a processor."""
    sized = rung if size is None else f"{rung}~{size}"
    return f"{sized}@{processor}" if processor else sized


def rung_in(shape: str) -> str:
    """The rung of the ladder in `SeenRuns.shape`."""
    return shape.partition("@")[0].partition("~")[0]


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
