"""Inputs for trial runs: what each axis of a graph's inputs means, and which sizes are worth trying."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import onnx

from appliance.domain.catalogue import TaskSpec, TensorSpec
from appliance.modelstore.orders import Extent
from appliance.modelstore.stages import graph as facts
from appliance.tasks.synthetic import picture_sizes, synthetic_tensor

BATCH_SYMBOLS = frozenset({"n", "b", "bs", "batch", "batch_size", "batchsize", "batch_dim"})
LENGTHS = (16, 128, 512, 16_000, 1)
"""Lengths tried on other free axes: tokens, audio samples."""
PICTURE_CHANNELS = (1, 3, 4)


def axes_of(values: Sequence[onnx.ValueInfoProto], task: TaskSpec) -> dict[str, tuple[str, ...]]:
    """Role of each axis of each input: batch, channel, height, width, sequence, or empty where it is fixed and none
    of these.
    """
    states = {state.input for state in task.state}
    first = next((value for value in values if value.name not in states | task.defaults.keys()), values[0])
    batch_symbol = (facts.symbols(first) or ("",))[0]
    return {value.name: _roles(value, task, batch_symbol, value.name in states) for value in values}


def with_carried_batch(axes: Mapping[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]] | None:
    """Return the axes with the batch where an input has one free axis that is not its first: (2, batch, 128) is the
    usual shape of a state that a network carries on. None where that changes nothing.
    """
    found = {name: _carrying(roles) for name, roles in axes.items()}
    return None if found == axes else found


def _carrying(roles: tuple[str, ...]) -> tuple[str, ...]:
    is_state = "batch" not in roles and len(roles) >= 3 and roles[0] == "" and roles.count("sequence") == 1
    return tuple("batch" if role == "sequence" else role for role in roles) if is_state else roles


def _roles(value: onnx.ValueInfoProto, task: TaskSpec, batch_symbol: str, is_state: bool) -> tuple[str, ...]:
    dims, symbols = facts.dims(value), facts.symbols(value)
    if value.name in task.constants:
        return ("",) * len(dims)
    if value.name in task.defaults:
        is_batch = [bool(one) and (one == batch_symbol or one.lower() in BATCH_SYMBOLS) for one in symbols]
        return tuple("batch" if one and axis == is_batch.index(True) else "" for axis, one in enumerate(is_batch))
    picture = _picture_roles(dims, task) if len(dims) == 4 and not is_state else None
    if picture:
        return picture
    roles = ["sequence" if dim < 0 else "" for dim in dims]
    named = [
        axis
        for axis, symbol in enumerate(symbols)
        if symbol and (symbol == batch_symbol or symbol.lower() in BATCH_SYMBOLS)
    ]
    free = [axis for axis, dim in enumerate(dims) if dim < 0]
    if named:
        roles[named[0]] = "batch"
    elif is_state and len(free) == 1:
        roles[free[0]] = "batch"
    elif len(dims) >= 2 and dims[0] in (-1, 1):
        roles[0] = "batch"
    return tuple(roles)


def _picture_roles(dims: tuple[int, ...], task: TaskSpec) -> tuple[str, ...] | None:
    layout = task.image.layout if task.image else None
    if layout is None:
        layout = "NCHW" if dims[1] in PICTURE_CHANNELS else "NHWC" if dims[3] in PICTURE_CHANNELS else None
    if layout is None:
        return None
    return ("batch", "channel", "height", "width") if layout == "NCHW" else ("batch", "height", "width", "channel")


def extents(inputs: Sequence[TensorSpec], axes: Mapping[str, tuple[str, ...]], task: TaskSpec) -> Iterator[Extent]:
    """Sizes worth trying, the likeliest first; only the first when the tenant said a picture size."""
    free = {axes[tensor.name][axis] for tensor in inputs for axis, dim in enumerate(tensor.shape) if dim < 0}
    for length in LENGTHS if "sequence" in free else LENGTHS[:1]:
        for height, width in picture_sizes(free, task.image):
            yield Extent(height=height, width=width, length=length)


def synthetic(
    inputs: Sequence[TensorSpec], axes: Mapping[str, tuple[str, ...]], task: TaskSpec, extent: Extent, seed: int = 0
) -> dict[str, np.ndarray]:
    """Tensors for all inputs."""
    rng = np.random.default_rng(seed)
    sizes = {"batch": extent.batch, "height": extent.height, "width": extent.width, "channel": 3}
    made: dict[str, np.ndarray] = {}
    for tensor in inputs:
        roles = axes[tensor.name]
        shape = [
            dim if dim >= 0 else sizes.get(role, extent.length) for dim, role in zip(tensor.shape, roles, strict=True)
        ]
        made[tensor.name] = synthetic_tensor(tensor, shape, roles, task, rng)
    return made
