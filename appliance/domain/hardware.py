"""Processors as the scheduler sees them, and the memory they share."""

from dataclasses import dataclass

from appliance.domain.request import Tensors


@dataclass(frozen=True, slots=True)
class ProcessorDescription:
    """A compute device: how many runs it takes at once, and which memory its builds occupy."""

    name: str
    kind: str
    workers: int
    threads_per_run: int
    memory_domain: str
    fingerprint: str
    """Library versions and device; a prepared form is valid for exactly one fingerprint."""


@dataclass(frozen=True, slots=True)
class PreparedForm:
    """A build on disk, ready for a quick load by one kind of processor.

    `resident_bytes` and `peak_bytes` are None until measured; then the loader assumes a multiple of `size_bytes`.
    """

    build_id: str
    path: str
    size_bytes: int
    optimised: bool
    """True when the graph was optimised for this machine at import and must not be optimised again."""
    resident_bytes: int | None = None
    peak_bytes: int | None = None
    guarded_for: str | None = None
    """The tenant in whose guard it runs; None = in the service."""


@dataclass(frozen=True, slots=True)
class MeasureCase:
    """One thing to time: real or synthetic inputs of one batch size."""

    batch: int
    inputs: Tensors
