"""Counts of kept and broken promises: requests with an SLO, frames of a pipeline, windows of a session."""

from dataclasses import dataclass
from enum import StrEnum


class PromiseEnd(StrEnum):
    """Ends of a promise; each promise counts as exactly one of these."""

    KEPT = "kept"
    LATE = "late"
    """Answered too late, or cut off at the deadline."""
    REFUSED = "refused"
    """Refused because queues, processors or memory were full."""
    FAILED = "failed"
    """A run failed, or the box was not able to answer."""


@dataclass(slots=True)
class PromiseCounts:
    """Number of promises by their end."""

    kept: int = 0
    late: int = 0
    refused: int = 0
    failed: int = 0

    def count(self, end: PromiseEnd) -> None:
        """Count one more."""
        match end:
            case PromiseEnd.KEPT:
                self.kept += 1
            case PromiseEnd.LATE:
                self.late += 1
            case PromiseEnd.REFUSED:
                self.refused += 1
            case _:
                self.failed += 1

    @property
    def counted(self) -> int:
        """Return how many have ended."""
        return sum(self.totals)

    @property
    def totals(self) -> tuple[int, ...]:
        """Return kept, late, refused and failed."""
        return self.kept, self.late, self.refused, self.failed
