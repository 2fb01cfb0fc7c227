"""The selection family: in which order an application's variants are candidates for a request that names none.

It serves until a serving plan (sessions, pipelines) says otherwise. Pure: catalogue values in, an order out.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from appliance.domain.accuracy import ACCURACY
from appliance.domain.catalogue import Prefer


class Candidate(Protocol):
    """A variant that may be chosen by itself; the box gives its servables."""

    @property
    def name(self) -> str: ...

    @property
    def accuracy(self) -> float:
        """In the unit of `accuracy_min`; the box gives points, 0 to 100."""
        ...

    @property
    def p99_ms(self) -> float | None:
        """None: not known."""
        ...

    @property
    def p50_ms(self) -> float | None:
        """Measured median of a run of one item; None: not known."""
        ...

    @property
    def loss(self) -> float | None:
        """How far it may be behind the most accurate candidate at 95 %, in the unit of `accuracy`; None: not known."""
        ...

    @property
    def resident_bytes(self) -> int: ...


@dataclass(frozen=True, slots=True)
class SelectionInput:
    candidates: Sequence[Candidate]
    latency_slo_ms: float | None = None
    accuracy_min: float = 0.0
    prefer: Prefer = Prefer.BALANCED
    loss_max: float = 0.0
    """What `balanced` may lose, in the unit of `accuracy`."""
    meaning: str = ACCURACY
    """What `accuracy` is called in the reason (`domain.accuracy`)."""


@dataclass(frozen=True, slots=True)
class SelectionPlan:
    """Names, most wanted first. Empty only when there is no candidate that reaches the accuracy floor."""

    order: tuple[str, ...]
    reason: str


class SelectionPolicy(Protocol):
    """Total and deterministic: ties break by name, permuting the input changes nothing."""

    def order(self, problem: SelectionInput) -> SelectionPlan: ...
