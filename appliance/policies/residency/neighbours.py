"""Variants next to those that sessions use, kept in memory that nobody else wants, so that a switch finds its variant
there (Jellyfish §IV-D; §VI-G keeps 5 or 3 around an active one).

Our own: as many as there are bytes for, the nearest first, of all applications together; none ever takes the place of
anything but one that is farther off.
"""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A variant that sessions may switch to, or use beside the one that their application counts as its own."""

    name: str
    distance: int
    """Places from the nearest variant in use, as planners order them; 0: it is in use itself."""
    bytes: int
    """What its leaving frees, where it is there."""
    need_bytes: int
    """What must be free for it to come: the peak of its load, or what its wake adds."""
    is_there: bool = False


@dataclass(frozen=True, slots=True)
class NeighbourProblem:
    """What is free, and who wants it. Of equally near ones the first of `neighbours` is brought first."""

    free_bytes: int
    """Neither taken nor promised."""
    reserve_bytes: int
    """Of that, what neighbours leave to others; variants in use may take it."""
    neighbours: tuple[Neighbour, ...]
    """Those that are there and may leave, and those that may come; each name once."""


@dataclass(frozen=True, slots=True)
class NeighbourPlan:
    """The next one to come, after those that leave for it; None: those that are there stay, and nobody comes."""

    bring: str | None
    leave: tuple[str, ...]
    reason: str


def next_neighbour(problem: NeighbourProblem) -> NeighbourPlan:
    """The nearest that is not there and fits into what is free and what farther ones would free; of these the farthest
    leave, no more than it needs. O(n²).

    A variant in use is never among those that leave. Each plan makes the nearest nearer or more, so plans for equal
    problems come to an end.
    """
    there = sorted((n for n in problem.neighbours if n.is_there and n.distance > 0), key=_distance, reverse=True)
    for coming in sorted((n for n in problem.neighbours if not n.is_there), key=_distance):
        leave = _making_room(problem, coming, there)
        if leave is not None:
            return NeighbourPlan(coming.name, tuple(n.name for n in leave), _reason(coming, leave))
    return NeighbourPlan(None, (), "no nearer one fits")


def _making_room(
    problem: NeighbourProblem, coming: Neighbour, there: Sequence[Neighbour]
) -> tuple[Neighbour, ...] | None:
    """Of those that are there, the farthest first, who leaves for one that comes; None: it does not fit even so."""
    missing = coming.need_bytes - problem.free_bytes + (problem.reserve_bytes if coming.distance > 0 else 0)
    leave: list[Neighbour] = []
    for other in there:
        if missing <= 0 or other.distance <= coming.distance:
            break
        leave.append(other)
        missing -= other.bytes
    return tuple(leave) if missing <= 0 else None


def _reason(coming: Neighbour, leave: Sequence[Neighbour]) -> str:
    what = "in use" if coming.distance == 0 else f"{coming.distance} from one in use"
    return f"{what}, in free memory" + (f" and that of {len(leave)} farther off" if leave else "")


def _distance(neighbour: Neighbour) -> int:
    return neighbour.distance
