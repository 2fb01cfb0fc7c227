"""Which shapes a build is tried with beyond those of its first case: where its free axes should end. Pure.

An axis grows by doubling, so that what a larger run takes can be foreseen. Needed are what the task itself will send
and what the tenant asks for; several items at once, longer inputs and larger pictures are tried while they are cheap.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from appliance.domain.catalogue import Shapes, TaskKind, TaskSpec, TensorSpec, Variant
from appliance.domain.errors import BadMetadata
from appliance.domain.hardware import Growth
from appliance.modelstore.importing.cases import BATCH_USUAL, Axes
from appliance.modelstore.orders import Reviewed, Size
from appliance.tasks.base import number
from appliance.tasks.embedding import TEXTS_PER_RUN, TOKENS_MAX
from appliance.tasks.image import WIDTH_MAX, rounded_up

SIDE = 640
"""Height and width where neither the graph nor the task says any."""
TOKENS, SAMPLES = 512, 16_000
"""Lengths of other free axes, of integers and of floating point."""
FREE_COUNT_MAX = 64
"""Shapes that are few enough to be run all."""

Place = tuple[str, int]
"""(input, axis)."""
Ends = dict[Place, int]


def growth(base: Shapes, variant: Variant, axes: Axes, task: TaskSpec, full: Size | None, reviewed: Reviewed) -> Growth:
    """`base`: the first case; `full`: the largest rung, whose shapes every rung of a file takes.

    Raises: BadMetadata where less is asked for than the task sends and cannot make smaller.
    """
    free = list(_free_axes(variant, axes, task))
    needed = _ends_needed(free, task, full)
    wanted = _ends_wanted(free, max(BATCH_USUAL, variant.batch_max))
    stated = {
        (name, axis): size
        for name, shape in task.shape_max.items()
        for axis, size in enumerate(shape)
        if size is not None and any(one.place == (name, axis) for one in free)
    }
    if task.kind is TaskKind.VOICE_ACTIVITY:  # pictures are scaled and texts cut
        _check_enough(needed, stated)
    must = list(_doubled(base, needed | stated))
    is_asked = len(must) if stated else 0
    last = must[-1] if must else base
    free_places = _countable(free, wanted)
    batches = {place: end for place, end in wanted.items() if _role(free, place) == "batch"}
    others = {place: end for place, end in wanted.items() if place not in batches}
    several = list(_doubled(last, _without(batches, stated)))
    longer = list(_doubled(several[-1] if several else last, _without(others, stated | needed)))
    # What runs in a guard anyway need not be kept small to be harmless.
    is_guarded = bool(reviewed.hazards or (reviewed.unless_all_run and free_places is None))
    usual = {place: min(end, BATCH_USUAL) for place, end in batches.items()}
    count = len(must) + (len(list(_doubled(last, _without(usual, stated)))) if is_guarded else 0)
    steps = (*must, *several, *longer)
    return Growth(steps, count, is_asked, reviewed.hazards, reviewed.unless_all_run, free_places)


def check_stated(task: TaskSpec, inputs: tuple[TensorSpec, ...]) -> None:
    """Raises: BadMetadata where `shape_max` does not fit the graph."""
    known = {tensor.name: tensor.shape for tensor in inputs}
    for name, wanted in task.shape_max.items():
        shape = known.get(name)
        if shape is None:
            raise BadMetadata(
                reason=f"'shape_max': there is no input {name!r}; the model has {', '.join(sorted(known))}"
            )
        fits = len(wanted) == len(shape) and all(
            size is None or dim in (-1, size) for size, dim in zip(wanted, shape, strict=True)
        )
        if not fits:
            raise BadMetadata(reason=f"'shape_max': input {name!r} has the shape {list(shape)} (-1 = any)")


def _check_enough(needed: Ends, stated: Ends) -> None:
    """Raises: BadMetadata."""
    for (name, axis), size in stated.items():
        least = needed.get((name, axis), 0)
        if size < least:
            raise BadMetadata(reason=f"'shape_max': axis {axis} of {name!r} is {size}, and the task sends {least}")


def allowed(measured: Shapes, task: TaskSpec) -> Shapes:
    """The largest shapes of requests: what was measured, or less where the tenant asked for less."""
    return {
        name: tuple(
            size if wanted is None else min(size, wanted)
            for size, wanted in zip(shape, task.shape_max.get(name, (None,) * len(shape)), strict=True)
        )
        for name, shape in measured.items()
    }


# -- inside ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _FreeAxis:
    place: Place
    role: str
    is_floating: bool


def _free_axes(variant: Variant, axes: Axes, task: TaskSpec) -> Iterator[_FreeAxis]:
    for tensor in variant.inputs:
        roles = axes.get(tensor.name, ("",) * len(tensor.shape))
        for axis, (dim, role) in enumerate(zip(tensor.shape, roles, strict=True)):
            if dim >= 0 or tensor.name in task.constants:
                continue
            if tensor.name not in task.defaults or role == "batch" or axis in _stated(task, tensor.name):
                yield _FreeAxis((tensor.name, axis), role, tensor.datatype.startswith("FP"))


def _stated(task: TaskSpec, name: str) -> set[int]:
    """Axes of an input whose end the tenant has said."""
    return {axis for axis, size in enumerate(task.shape_max.get(name, ())) if size is not None}


def _role(free: list[_FreeAxis], place: Place) -> str:
    return next(one.role for one in free if one.place == place)


def _without(ends: Ends, others: Mapping[Place, int]) -> Ends:
    return {place: end for place, end in ends.items() if place not in others}


def _ends_needed(free: list[_FreeAxis], task: TaskSpec, full: Size | None) -> Ends:
    """What the task itself sends."""
    ends: Ends = {}
    for one in free:
        end = _needed(one.role, task, full)
        if end is not None:
            ends[one.place] = end
    return ends


def _needed(role: str, task: TaskSpec, full: Size | None) -> int | None:
    image = task.image
    if role == "height":
        return full.height if full else image.height if image else None
    if role == "width" and image is not None and image.resize == "keep-height" and image.width is None:
        return rounded_up(int(number(task, "width_max", WIDTH_MAX)), image.multiple)
    if role == "width":
        return full.width if full else image.width if image else None
    if task.kind is TaskKind.TEXT_EMBEDDING:
        return {"batch": TEXTS_PER_RUN, "sequence": int(number(task, "tokens_max", TOKENS_MAX))}.get(role)
    if task.kind is TaskKind.VOICE_ACTIVITY and role == "sequence":
        chunk = number(task, "chunk_samples", 512)
        return int(chunk + number(task, "context_samples", chunk // 8))
    return None


def _ends_wanted(free: list[_FreeAxis], batch: int) -> Ends:
    """What is allowed where it costs little."""
    ends = {"batch": batch, "height": SIDE, "width": SIDE, "channel": 1}
    return {one.place: ends.get(one.role, SAMPLES if one.is_floating else TOKENS) for one in free}


def _doubled(base: Shapes, ends: Ends) -> Iterator[Shapes]:
    """From `base`, without it, to the ends: all axes at once."""
    shapes = {name: list(shape) for name, shape in base.items()}
    while short := [(name, axis) for (name, axis), end in ends.items() if shapes[name][axis] < end]:
        for name, axis in short:
            shapes[name][axis] = min(2 * shapes[name][axis], ends[name, axis])
        yield {name: tuple(shape) for name, shape in shapes.items()}


def _countable(free: list[_FreeAxis], wanted: Ends) -> Mapping[str, tuple[int, ...]] | None:
    """Free axes by input, None where they leave more shapes than can be run."""
    if math.prod(wanted[one.place] for one in free) > FREE_COUNT_MAX:
        return None
    found: dict[str, tuple[int, ...]] = {}
    for one in free:
        name, axis = one.place
        found[name] = (*found.get(name, ()), axis)
    return found
