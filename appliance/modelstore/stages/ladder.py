"""Input sizes of a model with free height and width, and the names of the variants on them. Pure."""

from collections.abc import Mapping, Sequence

from appliance.domain.catalogue import ImageSpec, Precision, TaskKind, TaskSpec, TensorSpec
from appliance.modelstore.orders import Size

SHARES = (1.0, 0.75, 0.5, 0.875, 0.625, 0.375, 0.25, 0.125)
"""Shares of the full side, most useful first."""
SIDE_MIN = 32


def has_free_size(inputs: Sequence[TensorSpec], axes: Mapping[str, tuple[str, ...]], task: TaskSpec) -> bool:
    """Whether the box may choose height and width: one picture input with both free, and a task that resizes both."""
    if task.kind is TaskKind.TENSOR and task.image is None:
        return False
    if task.image is not None and task.image.resize == "keep-height":
        return False
    pictures = [tensor for tensor in inputs if "height" in axes[tensor.name]]
    if len(pictures) != 1:
        return False
    roles = axes[pictures[0].name]
    return all(pictures[0].shape[roles.index(side)] < 0 for side in ("height", "width"))


def rungs(full: Size, image: ImageSpec | None, count_max: int) -> tuple[Size, ...]:
    """At most `count_max` sizes, largest first, sides rounded to the multiple that the network needs."""
    multiple = _multiple(full, image)
    sizes = [full]
    for share in SHARES[1:]:
        size = Size(_rounded(full.height * share, multiple), _rounded(full.width * share, multiple))
        if len(sizes) < count_max and size not in sizes and min(size.height, size.width) >= SIDE_MIN:
            sizes.append(size)
    return tuple(sorted(sizes, key=lambda size: -size.height * size.width))


def _multiple(full: Size, image: ImageSpec | None) -> int:
    """What was stated, else the largest power of two up to 32 that divides the full size: most networks halve five
    times.
    """
    if image is not None and image.multiple > 1:
        return image.multiple
    return next(power for power in (32, 16, 8, 4, 2, 1) if full.height % power == 0 and full.width % power == 0)


def _rounded(side: float, multiple: int) -> int:
    return max(multiple, round(side / multiple) * multiple)


def variant_name(precision: Precision, size: Size | None, full: Size | None) -> str:
    """`int8` at full size or where there is no ladder, else `int8-240x320` (height x width)."""
    return precision.value if size is None or size == full else f"{precision.value}-{size.height}x{size.width}"
