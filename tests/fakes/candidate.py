"""A candidate of the selection family, as plain numbers."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FakeCandidate:
    name: str
    accuracy: float
    p99_ms: float | None
    resident_bytes: int
    p50_ms: float | None = None
    loss: float | None = None
