"""Inputs for profiling a variant: synthetic tensors of the sizes it serves, by batch.

Latency of the usual operators does not depend on the values; what matters are shapes, legal token ids and masks of
ones.
"""

from collections.abc import Iterator, Mapping

import numpy as np

from appliance.domain.catalogue import TaskSpec, Variant
from appliance.domain.hardware import MeasureCase
from appliance.tasks.synthetic import synthetic_tensor

Axes = Mapping[str, tuple[str, ...]]
"""Role of each axis of each input: batch, channel, height, width, sequence, or empty."""
CASES_BYTES_MAX = 16 * 2**20
"""Largest batch's inputs: they pass through the service, which stays small."""
BATCHES = (1, 2, 4, 8, 16)
SIDE = 224
WIDTH_OF_LINES = 320
LENGTHS_OF_SIGNALS = (512, 16_000, 128, 16, 1)
LENGTHS_OF_TOKENS = (128, 16, 1, 512)
SEED = 0
"""Profiles of one file differ by what the box does, never by the inputs."""


def case_lists(variant: Variant, axes: Axes, task: TaskSpec) -> Iterator[list[MeasureCase]]:
    """Cases for every batch up to the variant's, once for each length worth trying: a model may refuse lengths that
    it was not made for.
    """
    for length in _lengths(variant, axes, task):
        batches = [batch for batch in BATCHES if batch <= max(1, variant.batch_max)]
        cases = [MeasureCase(1, inputs(variant, axes, task, 1, length))]
        room = CASES_BYTES_MAX // max(1, sum(array.nbytes for array in cases[0].inputs.values()))
        cases += [
            MeasureCase(batch, inputs(variant, axes, task, batch, length)) for batch in batches[1:] if batch <= room
        ]
        yield cases


def inputs(variant: Variant, axes: Axes, task: TaskSpec, batch: int, length: int) -> dict[str, np.ndarray]:
    """Tensors for all inputs."""
    rng = np.random.default_rng(SEED)
    sizes = {"batch": batch, "channel": 3, "sequence": length} | _sides(variant, axes, task)
    made: dict[str, np.ndarray] = {}
    for tensor in variant.inputs:
        roles = axes.get(tensor.name, ("",) * len(tensor.shape))
        shape = [dim if dim >= 0 else sizes.get(role, length) for dim, role in zip(tensor.shape, roles, strict=True)]
        made[tensor.name] = synthetic_tensor(tensor, shape, roles, task, rng)
    return made


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


def _sides(variant: Variant, axes: Axes, task: TaskSpec) -> dict[str, int]:
    """Height and width: the rung's, else what the task prefers, else a usual picture or line of text."""
    image = task.image
    height = variant.height or (image and image.height) or SIDE
    free = {role for roles in axes.values() for role in roles}
    usual = WIDTH_OF_LINES if "height" not in free else SIDE
    width = variant.width or (image and image.width) or usual
    return {"height": height, "width": width}
