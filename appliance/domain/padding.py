"""How inputs of free size may be made larger with their answers staying as they are, so that requests of different
sizes share a run, and sizes go in steps. Pure.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

_FAILURES_MAX = 2
"""So many runs one after the other: one may have failed for the values in it."""
_STEPS_MAX = 256
"""Kept for one variant."""
_Step = tuple[tuple[str, tuple[int, ...]], ...]


class Fill(StrEnum):
    """What stands beyond the end of an input of floating point; beyond others (tokens, masks) stand zeros."""

    MEAN = "mean"
    """The mean of the item's own values."""
    EDGE = "edge"
    """Its last values once more."""
    ZERO = "zero"


@dataclass(frozen=True, slots=True)
class PaddedAxis:
    """An axis of an input that may be made longer."""

    input: str
    axis: int
    """Never the first, which counts items."""
    step: int
    """By less than so much."""


@dataclass(frozen=True, slots=True)
class CroppedAxis:
    """An axis of an output that grows with one of the inputs: its size is ⌊(times · size + plus) / per⌋."""

    output: str
    axis: int
    padded: int
    """Which of the padded axes it grows with."""
    times: int = 1
    plus: int = 0
    per: int = 1

    def size(self, of_input: int) -> int:
        """Where the input's axis has this size."""
        return (self.times * of_input + self.plus) // self.per


@dataclass(frozen=True, slots=True)
class Padding:
    """Shown at import, on real samples where there are some."""

    fill: Fill
    axes: tuple[PaddedAxis, ...]
    outputs: tuple[CroppedAxis, ...] = ()
    is_exact: bool = False
    """Whether all outputs stay what they are; else what the task reads in them does."""
    evidence: str = ""
    """What it was shown on, for a person."""

    def stepped(
        self, shapes: Mapping[str, Sequence[int]], largest: Mapping[str, Sequence[int]]
    ) -> dict[str, tuple[int, ...]]:
        """The shapes at the end of their step; `largest`: which none may exceed."""
        found = {name: list(shape) for name, shape in shapes.items()}
        for one in self.axes:
            if one.input in found:
                size = found[one.input][one.axis]
                most = largest[one.input][one.axis] if one.input in largest else size + one.step
                found[one.input][one.axis] = max(size, min(-(-size // one.step) * one.step, most))
        return {name: tuple(shape) for name, shape in found.items()}

    def crops(self, shapes: Mapping[str, Sequence[int]]) -> Iterator[tuple[str, int, int]]:
        """(output, axis, size) that inputs of these shapes have."""
        for one in self.outputs:
            along = self.axes[one.padded]
            yield one.output, one.axis, one.size(shapes[along.input][along.axis])


class Unfit:
    """Steps of a variant's inputs that have come to nothing: within them nothing is padded any more."""

    def __init__(self) -> None:
        self._failures: dict[_Step, int] = {}

    def __bool__(self) -> bool:
        return bool(self._failures)

    def __contains__(self, stepped: Mapping[str, Sequence[int]]) -> bool:
        return self._failures.get(_step(stepped), 0) >= _FAILURES_MAX

    def note(self, stepped: Mapping[str, Sequence[int]], *, has_failed: bool, is_certain: bool = False) -> None:
        """A padded run within a step has ended. One that has failed may have done so for the values in it; not where it
        `is_certain` that it did not.
        """
        step = _step(stepped)
        if not has_failed:
            self._failures.pop(step, None)
            return
        if len(self._failures) >= _STEPS_MAX and step not in self._failures:
            del self._failures[next(iter(self._failures))]
        self._failures[step] = _FAILURES_MAX if is_certain else self._failures.get(step, 0) + 1


def _step(stepped: Mapping[str, Sequence[int]]) -> _Step:
    """Without the first axis, which counts items."""
    return tuple((name, tuple(shape[1:])) for name, shape in sorted(stepped.items()))


def widest(shapes: Sequence[Mapping[str, tuple[int, ...]]]) -> dict[str, tuple[int, ...]]:
    """The smallest shapes that all of these fit into; at least one, of the same inputs and ranks."""
    return {name: tuple(map(max, zip(*(one[name] for one in shapes), strict=True))) for name in shapes[0]}
