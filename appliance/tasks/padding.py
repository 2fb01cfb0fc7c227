"""Arrays made larger before a run, and what comes of them cut back after it (`domain.padding`); rows of several
requests put together.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from appliance.domain.padding import Fill, Padding

Arrays = Mapping[str, Any]


class Padded(Mapping[str, Any]):
    """Inputs as a run has them. An array is made when it is asked for, which is where the run begins: in its thread."""

    def __init__(self, inputs: Arrays, shapes: Mapping[str, Sequence[int]], fill: Fill) -> None:
        """`shapes`: of the run, whose first axis is of no account: a request keeps its number of rows."""
        self.inputs = inputs
        self.shapes = shapes
        self.fill = fill

    def __getitem__(self, name: str) -> Any:
        return padded(self.inputs[name], self.shapes[name], self.fill)

    def __iter__(self) -> Iterator[str]:
        return iter(self.inputs)

    def __len__(self) -> int:
        return len(self.inputs)


class Stacked(Mapping[str, Any]):
    """Some inputs of one run of several requests, which have the same ones, equal in all but their first axis. An array
    is made when it is asked for, as those of `Padded`.
    """

    def __init__(self, requests: Sequence[Arrays], names: Sequence[str], made: Arrays) -> None:
        """`made`: those that are there already, for all of them; the others are the requests'."""
        self._requests = requests
        self._names = names
        self._made = made

    def __getitem__(self, name: str) -> Any:
        if name in self._made:
            return self._made[name]
        if name not in self._names:
            raise KeyError(name)
        return np.concatenate([inputs[name] for inputs in self._requests])

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def padded(array: Any, shape: Sequence[int], fill: Fill) -> Any:
    """The array at the beginning of a larger one; its first axis stays."""
    wanted = (*array.shape[:1], *shape[1:])
    if array.shape == wanted:
        return array
    if fill is Fill.EDGE and array.dtype.kind == "f":
        return np.pad(array, [(0, most - size) for size, most in zip(array.shape, wanted, strict=True)], mode="edge")
    if fill is Fill.MEAN and array.dtype.kind == "f":
        out = np.empty(wanted, array.dtype)
        out[...] = array.mean(axis=tuple(range(1, array.ndim)), keepdims=True)
    else:
        out = np.zeros(wanted, array.dtype)
    out[tuple(slice(size) for size in array.shape)] = array
    return out


def cropped(
    outputs: Arrays,
    padding: Padding,
    own: Mapping[str, Sequence[int]],
    ran: Mapping[str, Sequence[int]],
) -> dict[str, Any]:
    """The part of a run's outputs that inputs of the shapes `own` have, which ran as `ran`; views.

    Raises: ValueError where the outputs are not as large as foreseen, so that nobody knows which part that is.
    """
    found = dict(outputs)
    sizes = zip(padding.crops(own), padding.crops(ran), strict=True)
    for (name, axis, size), (_name, _axis, foreseen) in sizes:
        array = found.get(name)
        if array is None:  # not asked for
            continue
        if array.shape[axis] != foreseen:  # an axis is cropped once, so the others are as they were
            raise ValueError(f"output {name!r} has the shape {list(array.shape)} where {foreseen} were foreseen")
        found[name] = array[(slice(None),) * axis + (slice(size),)]
    return found
