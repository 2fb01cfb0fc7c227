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
