"""Synthetic tensors that a network of a known interface accepts: for trial runs at import, for profiling and for
replayed load.

Pictures are smooth noise in the range that the task's pre-processing gives, token ids are small, masks are ones, states
zeros.
"""

from collections.abc import Collection, Sequence

import numpy as np

from appliance.domain.catalogue import ImageSpec, TaskSpec, TensorSpec
from appliance.tasks.datatypes import default_array, dtype_of

_TOKENS = 100
"""Token ids stay below, where nothing says how many there are: every vocabulary has as many."""
_SIDES = (224, 320, 256, 640, 128, 64)
"""Usual heights and widths of pictures, the likeliest first."""
_LINE_WIDTH = 320
"""Usual width of a line of text."""


def picture_sizes(free: Collection[str], image: ImageSpec | None) -> tuple[tuple[int, int], ...]:
    """Return the (height, width) worth trying, the likeliest first; only one where the task says a size.

    `free`: the roles of axes that the graph leaves open.
    """
    is_line = "width" in free and "height" not in free
    sides = (_LINE_WIDTH, *_SIDES) if is_line else _SIDES
    if image is not None and (image.height or image.width):
        return ((image.height or sides[0], image.width or sides[0]),)
    return tuple((side, side) for side in (sides if "width" in free or "height" in free else sides[:1]))


def synthetic_tensor(
    tensor: TensorSpec, shape: Sequence[int], roles: Sequence[str], task: TaskSpec, rng: np.random.Generator
) -> np.ndarray:
    """One input of `shape`.

    `roles`: batch, channel, height, width, sequence, or empty, an axis each; () where they are unknown.
    """
    dtype = dtype_of(tensor.datatype)
    if tensor.name in task.constants:
        return np.full([1] * len(shape), task.constants[tensor.name]).astype(dtype)
    if (value := task.defaults.get(tensor.name) or task.examples.get(tensor.name)) is not None:
        return _repeated(default_array(value), shape, roles)
    if tensor.name in {state.input for state in task.state}:
        return np.zeros(shape, dtype)
    if tensor.datatype == "BYTES":
        return np.full(shape, "text", dtype)
    if {"channel", "height", "width"} <= set(roles):
        return _picture(shape, roles, task.image or ImageSpec(), dtype, rng)
    if dtype.kind == "f":
        return rng.standard_normal(shape).astype(dtype)
    if dtype.kind == "b":
        return np.ones(shape, dtype)
    limit = task.index_limits.get(tensor.name, _TOKENS)
    return _integers(tensor.name.lower(), shape, limit, rng).astype(dtype)


def _repeated(value: np.ndarray, shape: Sequence[int], roles: Sequence[str]) -> np.ndarray:
    """A default or an example for so many items, where an axis counts them; all else of it stays as it is."""
    sides = [side if role == "batch" else own for side, own, role in zip(shape, value.shape, roles, strict=False)]
    return np.resize(value, sides) if len(sides) == value.ndim else value


def _integers(name: str, shape: Sequence[int], limit: int, rng: np.random.Generator) -> np.ndarray:
    """Whole numbers below `limit`: masks of ones, segments of zeros, else token ids, of which 0 is often padding."""
    if "mask" in name and limit > 1:
        return np.ones(shape, np.int64)
    if "type" in name or "segment" in name:
        return np.zeros(shape, np.int64)
    return rng.integers(1 if limit >= _TOKENS else 0, min(limit, _TOKENS), shape)


def _picture(
    shape: Sequence[int], roles: Sequence[str], image: ImageSpec, dtype: np.dtype[np.generic], rng: np.random.Generator
) -> np.ndarray:
    """Blocks of noise of several sizes: closer to what a convolution net sees than white noise."""
    channel, height, width = roles.index("channel"), shape[roles.index("height")], shape[roles.index("width")]
    pixels = np.zeros((shape[0], shape[channel], height, width))
    for block in (1, 4, 16, 64):
        coarse = rng.uniform(0, 255, (shape[0], shape[channel], -(-height // block), -(-width // block)))
        pixels += coarse.repeat(block, 2).repeat(block, 3)[:, :, :height, :width] / 4
    if dtype.kind in "iu":
        scaled = np.rint(pixels)
    else:
        mean, std = (np.resize(np.asarray(row), shape[channel]).reshape(1, -1, 1, 1) for row in (image.mean, image.std))
        scaled = (pixels - mean) / std
    return np.ascontiguousarray(np.moveaxis(scaled, 1, channel)).astype(dtype)
