"""Inputs for profiling a variant: synthetic tensors of the sizes it serves, by batch.

Latency of the usual operators does not depend on the values; what matters are shapes, legal token ids and masks of
ones.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence

import numpy as np

from appliance.domain.catalogue import TaskSpec, Variant
from appliance.domain.hardware import MeasureCase
from appliance.tasks.synthetic import picture_sizes, synthetic_tensor

Axes = Mapping[str, tuple[str, ...]]
"""Role of each axis of each input: batch, channel, height, width, sequence, or empty."""
CASES_BYTES_MAX = 16 * 2**20
"""Largest batch's inputs: they pass through the service, which stays small."""
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128)
REPEATED_BYTES_MAX = 16 * CASES_BYTES_MAX
"""Largest batch's inputs that the measuring child makes of the rows of a smaller batch."""
BATCH_USUAL = 8
"""Largest batch that is measured where no setting says more."""
CHANNELS = 3
LENGTHS_OF_SIGNALS = (512, 16_000, 128, 16, 1)
LENGTHS_OF_TOKENS = (128, 16, 1, 512)
SEED = 0
"""Profiles of one file differ by what the box does, never by the inputs."""


def case_lists(variant: Variant, axes: Axes, task: TaskSpec) -> Iterator[list[MeasureCase]]:
    """Cases for every batch up to the variant's, once for each length and picture size worth trying: a model may
    refuse sizes that it was not made for.
    """
    free = {
        role
        for tensor in variant.inputs
        for dim, role in zip(tensor.shape, axes.get(tensor.name, ()), strict=False)
        if dim < 0
    }
    for height, width in _sizes(variant, free, task):
        for length in _lengths(variant, axes, task):
            sizes = {"batch": 1, "channel": CHANNELS, "height": height, "width": width, "sequence": length}
            first = inputs(variant, axes, task, sizes)
            room = CASES_BYTES_MAX // max(1, sum(array.nbytes for array in first.values()))
            batches = [batch for batch in BATCHES[1:] if batch <= min(variant.batch_max, room)]
            larger = [MeasureCase(batch, inputs(variant, axes, task, {**sizes, "batch": batch})) for batch in batches]
            yield [MeasureCase(1, first), *larger, *_repeated(variant, axes, larger)]


def _repeated(variant: Variant, axes: Axes, larger: Sequence[MeasureCase]) -> Iterator[MeasureCase]:
    """Batches above the usual ones, whose inputs would not fit into the service: made by the measuring child."""
    if not larger or variant.batch_max <= BATCH_USUAL:
        return
    last = larger[-1]
    batch_axes = {name: axes[name].index("batch") for name in last.inputs if "batch" in axes.get(name, ())}
    row_bytes = sum(array.nbytes for array in last.inputs.values()) // last.batch
    for batch in BATCHES:
        if last.batch < batch <= variant.batch_max and batch * row_bytes <= REPEATED_BYTES_MAX:
            yield MeasureCase(batch, last.inputs, batch_axes)


def inputs(variant: Variant, axes: Axes, task: TaskSpec, sizes: Mapping[str, int]) -> dict[str, np.ndarray]:
    """Tensors for all inputs. `sizes`: by role of an axis."""
    rng = np.random.default_rng(SEED)
    made: dict[str, np.ndarray] = {}
    for tensor in variant.inputs:
        roles = axes.get(tensor.name, ("",) * len(tensor.shape))
        shape = [
            dim if dim >= 0 else sizes.get(role, sizes["sequence"])
            for dim, role in zip(tensor.shape, roles, strict=True)
        ]
        made[tensor.name] = synthetic_tensor(tensor, shape, roles, task, rng)
    return made


def _sizes(variant: Variant, free: Collection[str], task: TaskSpec) -> tuple[tuple[int, int], ...]:
    """Heights and widths: the rung's, else what the task says, else usual ones."""
    if variant.height and variant.width:
        return ((variant.height, variant.width),)
    return picture_sizes(free, task.image)


def _lengths(variant: Variant, axes: Axes, task: TaskSpec) -> tuple[int, ...]:
    free = [
        tensor
        for tensor in variant.inputs
        for dim, role in zip(tensor.shape, axes.get(tensor.name, ()), strict=False)
        if dim < 0 and role in ("sequence", "") and tensor.name not in task.defaults
    ]
    if not free:
        return (1,)
    is_signal = any(tensor.datatype.startswith("FP") for tensor in free)
    return LENGTHS_OF_SIGNALS if is_signal else LENGTHS_OF_TOKENS
