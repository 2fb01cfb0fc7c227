"""How inputs of free size may be made larger with their answers staying as they are, so that requests of different
sizes share a run, and sizes go in steps. Pure.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum


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


def widest(shapes: Sequence[Mapping[str, tuple[int, ...]]]) -> dict[str, tuple[int, ...]]:
    """The smallest shapes that all of these fit into; at least one, of the same inputs and ranks."""
    return {name: tuple(map(max, zip(*(one[name] for one in shapes), strict=True))) for name in shapes[0]}
