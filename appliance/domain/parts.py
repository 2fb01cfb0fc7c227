"""A network in parts: what each part is, on which kinds of processors it runs, and what that takes (Band §4.2).

A *part* is a unit of the network as a build of its own; a run of several on one processor is a run of one after the
other, so that no weights are held twice on a kind.
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BatchTime:
    """What a run of a part takes at one batch size: the median."""

    batch: int
    p50_ms: float


@dataclass(frozen=True, slots=True)
class PartProfile:
    """What a part costs on one kind of processor."""

    kind: str
    times: tuple[BatchTime, ...]
    """By batch, of one run at a time."""
    is_measured: bool
    """Else the times are estimated from those of the largest part on that kind (Band §4.3.2)."""
    resident_bytes: int
    peak_bytes: int
    asleep_bytes: int | None = None
    """What stays of it when it sleeps; None = it cannot sleep."""

    def p50_ms(self, batch: int = 1) -> float:
        """Median latency of the smallest batch ≥ `batch` that is known, else of the largest."""
        fitting = [row for row in self.times if row.batch >= batch]
        return (fitting[0] if fitting else self.times[-1]).p50_ms


@dataclass(frozen=True, slots=True)
class Part:
    """Operators that run together. `inputs` and `outputs` name tensors of the whole network, which pass between parts;
    they are floating-point numbers, or quantized ones where the network is.
    """

    operators: int
    op_types: Mapping[str, int]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    size_bytes: int
    """Of its file and its share of the weights, which all parts have in one file."""
    flops: float
    tensor_bytes: int
    """Of its inputs and outputs, in a run of one item."""
    profiles: tuple[PartProfile, ...] = ()
    """By the kinds of processors that run it and compute the same, the first kind first."""

    @property
    def kinds(self) -> tuple[str, ...]:
        return tuple(profile.kind for profile in self.profiles)


@dataclass(frozen=True, slots=True)
class Cut:
    """How a network was cut for the kinds of processors of this box."""

    asked: Mapping[str, str]
    """Kind → fingerprint of the processors that it was cut for; others find it as good as not cut."""
    parts: tuple[Part, ...] = ()
    """In an order in which they can run; empty: it stays whole."""
    reason: str = ""
    """Why it stays whole."""

    @property
    def kinds(self) -> tuple[str, ...]:
        """That it was cut for, the first kind first."""
        return tuple(self.asked)

    def needs(self, number: int) -> tuple[int, ...]:
        """The parts whose results a part takes."""
        wanted = set(self.parts[number].inputs)
        return tuple(other for other, part in enumerate(self.parts[:number]) if wanted & set(part.outputs))

    def profile(self, number: int, kind: str) -> PartProfile | None:
        """None where that part does not run on that kind."""
        return next((one for one in self.parts[number].profiles if one.kind == kind), None)
