"""Which padding a network's answers bear: each fill is tried on samples, and the one whose answers stay is kept.

Exact is a padding after which every output is what it was; of a network whose answers are words it is enough that it
reads no worse. Runs in a child process.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import chain, islice

import numpy as np

from appliance.domain.catalogue import TaskKind, TensorSpec
from appliance.domain.errors import BadModel
from appliance.domain.padding import CroppedAxis, Fill, PaddedAxis, Padding
from appliance.modelstore.stages.running import largest_error
from appliance.tasks.base import Score
from appliance.tasks.padding import Padded, cropped

Arrays = dict[str, np.ndarray]
Run = Callable[[Mapping[str, np.ndarray]], Arrays]
Shapes = dict[str, tuple[int, ...]]

STEPS: Mapping[str, int] = {"height": 64, "width": 64, "sequence": 16}
"""By the role of an axis: pixels, tokens."""
DIFFERENCE_MAX = 1e-3
"""Of the norm of an output: kernels add in another order where there are more columns."""
LOSS_MAX = 0.002
"""Of accuracy, where words are read."""
READ = frozenset({TaskKind.TEXT_RECOGNITION})
"""Tasks whose answers are words. Of others the numbers are the answer, which padding changes or does not."""
READ_SAMPLES_MIN = 8
"""Fewer do not show that a network reads no worse."""
SAMPLES = 32
_LOOKED_AT = 8
"""Samples, before the first run, by which is known along which axes they differ."""
_PER_MAX = 32
"""By so much of an input an output may be shorter: so many sizes in a row show where its size changes."""


@dataclass(frozen=True, slots=True)
class Shown:
    """A sample: the inputs of its runs, and where its answer is judged how, by outputs and those without padding."""

    steps: Sequence[Arrays]
    worth: Callable[[list[Arrays], list[Arrays]], Score] | None = None


@dataclass(slots=True)
class _Trial:
    """What one padding has done so far."""

    padding: Padding
    is_exact: bool = True
    before: list[Score] = field(default_factory=list)
    after: list[Score] = field(default_factory=list)
    samples: int = 0
    has_failed: bool = False

    def add(self, sample: Shown, own: list[Arrays], run: Run) -> None:
        if self.has_failed:
            return
        try:
            found = [self._ran(step, run) for step in sample.steps]
        except (BadModel, ValueError):  # it does not run at such a size, or its outputs are not as foreseen
            self.has_failed = True
            return
        self.samples += 1
        pairs = zip(found, own, strict=True)
        self.is_exact = self.is_exact and all(largest_error(one, other) <= DIFFERENCE_MAX for one, other in pairs)
        if sample.worth is None:
            self.has_failed = not self.is_exact
        else:
            self.before.append(sample.worth(own, own))
            self.after.append(sample.worth(found, own))

    def _ran(self, step: Arrays, run: Run) -> Arrays:
        shapes = {name: array.shape for name, array in step.items()}
        ran = self.padding.stepped(shapes, {})
        for one in self.padding.axes:  # as much as can happen to it at most, where nothing would
            if ran[one.input][one.axis] == shapes[one.input][one.axis]:
                ran[one.input] = _resized(ran[one.input], one.axis, shapes[one.input][one.axis] + one.step)
        return cropped(run(Padded(step, ran, self.padding.fill)), self.padding, shapes, ran)

    @property
    def loss(self) -> float:
        """Of accuracy."""
        return _value(self.before) - _value(self.after) if self.before else 0.0

    @property
    def passes(self) -> bool:
        if self.has_failed or not self.samples:
            return False
        return self.is_exact or (self.samples >= READ_SAMPLES_MIN and self.loss <= LOSS_MAX)

    def shown(self) -> Padding:
        """The padding with what speaks for it."""
        words = f"{self.samples} samples, outputs as without it"
        if self.before:
            words = f"{self.samples} samples, accuracy {_value(self.after):.4f} after {_value(self.before):.4f}"
        return replace(self.padding, is_exact=self.is_exact, evidence=words)


def find_padding(
    run: Run, inputs: Sequence[TensorSpec], axes: Mapping[str, tuple[str, ...]], samples: Iterable[Shown]
) -> Padding | None:
    """The best of the paddings that its answers bear; None where there is none, or the samples are all of one size.

    `run` raises BadModel where the network does not run.
    """
    rest = iter(samples)
    first = list(islice(rest, _LOOKED_AT))
    groups = _padded_axes(inputs, axes, [step for sample in first for step in sample.steps])
    if not groups:
        return None
    padded_axes = tuple(chain.from_iterable(groups))
    try:
        crops = _crops(run, groups, first[0].steps[0])
    except (BadModel, ValueError):
        return None
    is_float = any(one.datatype.startswith("FP") for one in inputs if one.name in {axis.input for axis in padded_axes})
    fills = list(Fill) if is_float else [Fill.ZERO]
    trials = [_Trial(Padding(fill, padded_axes, crops)) for fill in fills]
    for sample in chain(first, rest):
        try:
            own = [run(step) for step in sample.steps]
        except BadModel:
            return None
        for trial in trials:
            trial.add(sample, own, run)
        if all(trial.has_failed for trial in trials):
            return None
    passing = [trial for trial in trials if trial.passes]
    best = min(passing, key=lambda trial: (not trial.is_exact, trial.loss), default=None)
    return None if best is None else best.shown()


def _padded_axes(
    inputs: Sequence[TensorSpec], axes: Mapping[str, tuple[str, ...]], steps: Sequence[Arrays]
) -> list[list[PaddedAxis]]:
    """Free axes along which the samples differ, by role; those of one role grow together, so they are of one size."""
    free: dict[str, list[tuple[str, int]]] = {}
    for tensor in inputs:
        roles = axes.get(tensor.name, ())
        for axis, (dim, role) in enumerate(zip(tensor.shape, roles, strict=False)):
            if axis and dim < 0 and role in STEPS:
                free.setdefault(role, []).append((tensor.name, axis))
    found: list[list[PaddedAxis]] = []
    for role, places in free.items():
        sizes = [{step[name].shape[axis] for name, axis in places if name in step} for step in steps]
        if all(len(one) == 1 for one in sizes) and len(set().union(*sizes)) > 1:
            found.append([PaddedAxis(name, axis, STEPS[role]) for name, axis in places if name in steps[0]])
    return found


def _resized(shape: tuple[int, ...], axis: int, size: int) -> tuple[int, ...]:
    return (*shape[:axis], size, *shape[axis + 1 :])


# -- how outputs grow --------------------------------------------------------------------------------------------------


def _crops(run: Run, groups: list[list[PaddedAxis]], step: Arrays) -> tuple[CroppedAxis, ...]:
    """How each axis of each output grows with the inputs. Raises: BadModel; ValueError where that cannot be told."""
    found: list[CroppedAxis] = []
    shapes: Shapes = {name: array.shape for name, array in step.items()}
    number = 0
    for group in groups:
        size = shapes[group[0].input][group[0].axis]
        seen: dict[int, Shapes] = {}
        for more in (*range(_PER_MAX + 1), 2 * _PER_MAX, 4 * _PER_MAX):
            ran = dict(shapes)
            for one in group:
                ran[one.input] = _resized(ran[one.input], one.axis, size + more)
            try:
                seen[size + more] = {name: array.shape for name, array in run(Padded(step, ran, Fill.ZERO)).items()}
            except BadModel:  # only some sizes run, and others nobody can ask for
                if not more:
                    raise
        found += _grown(seen, number)
        number += len(group)
    return tuple(found)


def _grown(seen: Mapping[int, Shapes], number: int) -> list[CroppedAxis]:
    """Raises: ValueError."""
    found = []
    for name, shape in seen[min(seen)].items():
        if any(len(outputs[name]) != len(shape) for outputs in seen.values()):
            raise ValueError(f"the rank of output {name!r} depends on the size of the input")
        for axis in range(len(shape)):
            sizes = {size: outputs[name][axis] for size, outputs in seen.items()}
            if len(set(sizes.values())) > 1:
                found.append(_fitted(name, axis, number, sizes))
    return found


def _fitted(name: str, axis: int, number: int, sizes: Mapping[int, int]) -> CroppedAxis:
    """Raises: ValueError where it grows in no way that is foreseen."""
    least, most = min(sizes), max(sizes)
    ratio = Fraction(sizes[most] - sizes[least], most - least).limit_denominator(_PER_MAX)
    times, per = ratio.numerator, ratio.denominator
    # Each size leaves a range for what is added before the division.
    low = max(per * out - times * size for size, out in sizes.items())
    high = min(per * (out + 1) - 1 - times * size for size, out in sizes.items())
    if times < 1 or low > high:
        raise ValueError(f"axis {axis} of output {name!r} does not grow with the input as foreseen")
    return CroppedAxis(name, axis, number, times, low, per)


def _value(scores: Sequence[Score]) -> float:
    total = sum(scores[1:], scores[0])
    return total.value
