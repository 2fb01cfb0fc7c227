"""Decisions as they are kept: what a policy was asked, what it answered, and whom it concerned."""

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

DecisionKind = Literal[
    "residency",
    "neighbours",
    "admission",
    "drop",
    "budget",
    "selection",
    "dispatch",
    "adaptation",
    "offload",
    "pipeline",
]
"""What a decision is about: docs/operations.md has a line for each."""


@dataclass(frozen=True, slots=True)
class DecisionRecord:
    """One decision, in the JSON of `appliance plan`."""

    at: datetime.datetime
    kind: str
    """One of `DecisionKind`."""
    application: str | None
    """Id of the application that asked; None when the box decided for itself."""
    concerned: tuple[tuple[str, str], ...]
    """(id, tenant) of every application that asked or was changed, with those that share its memory."""
    problem: Mapping[str, Any]
    answer: Mapping[str, Any]
    """Without `elapsed_ms`."""
    id: int = 0
    """Grows with time; 0 until it is stored."""
    sharing: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Name in the problem → ids of all applications that it stands for, where it is more than one: they use the same
    builds.
    """

    @property
    def reason(self) -> str:
        """The policy's own words."""
        return str(self.answer["reason"])
