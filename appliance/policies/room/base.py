"""The room family: which builds leave memory, and for what, so that a wanted build fits.

A policy reads no clock, draws no random number and does nothing; the memory manager checks the plan and enacts it as one transaction.
"""

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class ResidentBuild:
    """A build in memory at the time of the decision."""

    build_id: str
    bytes: int
    last_used_ns: int
    pinned: bool
    """In use by queued or running requests: never a victim."""
    applications: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RoomProblem:
    """`need_bytes` must become free in addition to `free_bytes`, for `build_id`."""

    now_ns: int
    build_id: str
    need_bytes: int
    free_bytes: int
    resident: tuple[ResidentBuild, ...]


@dataclass(frozen=True, slots=True)
class RoomPlan:
    """Victims in the order of leaving; `sufficient` says whether the wanted build fits afterwards. An insufficient plan has no victims."""

    victims: tuple[str, ...]
    freed_bytes: int
    sufficient: bool
    reason: str


class RoomPolicy(Protocol):
    """`plan` is total: it returns an insufficient plan where nothing can be done. Ties break by build id."""

    def plan(self, problem: RoomProblem) -> RoomPlan: ...
