"""PyTorch checkpoints in the older, unzipped format, read with numpy alone.

A pickle can name any function; this reader knows a few harmless names and refuses every other one, so a hostile file
runs nothing.
"""

import collections
import pickle
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from appliance.demo.zoo.graphs import Array

MAGIC = 0x1950A86A20F9469CFC6C
"""First pickle of the file."""


class BadCheckpoint(ValueError):
    """Not a checkpoint of this format, or one that wants more than tensors."""


class _Storage(NamedTuple):
    """Values that come after the pickles; tensors are views of it."""

    key: str
    dtype: np.dtype[Any]
    length: int


class _Tensor(NamedTuple):
    """A view by offset, size and stride, in elements."""

    storage: _Storage
    offset: int
    size: tuple[int, ...]
    stride: tuple[int, ...]

    def of(self, values: Array) -> Array:
        last = self.offset + sum((side - 1) * step for side, step in zip(self.size, self.stride, strict=True))
        if min((self.offset, *self.size, *self.stride)) < 0 or (0 not in self.size and last >= len(values)):
            raise BadCheckpoint("a tensor reaches beyond its storage")
        steps = tuple(step * values.itemsize for step in self.stride)
        return np.lib.stride_tricks.as_strided(values[self.offset :], self.size, steps).copy()


_ALLOWED: dict[tuple[str, str], Any] = {
    ("collections", "OrderedDict"): collections.OrderedDict,
    ("torch._utils", "_rebuild_tensor_v2"): lambda storage, *view: _Tensor(storage, *view[:3]),
    ("torch", "FloatStorage"): np.dtype(np.float32),
    ("torch", "LongStorage"): np.dtype(np.int64),
}


class _Reader(pickle.Unpickler):
    """Unpickles tensors, dictionaries and plain values."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise BadCheckpoint(f"the checkpoint wants {module}.{name}, which is not a tensor")
        return _ALLOWED[module, name]

    def persistent_load(self, pid: Any) -> _Storage:
        _kind, dtype, key, _location, count, _view = pid
        return _Storage(key, dtype, count)


def read_checkpoint(path: Path) -> dict[str, Array]:
    """The state dictionary: name to array. Raises `BadCheckpoint`."""
    with path.open("rb") as file:
        try:
            magic, _protocol, _system, state, keys = (_Reader(file).load() for _ in range(5))
            tensors = {name: value for name, value in state.items() if isinstance(value, _Tensor)}
            storages = {tensor.storage.key: tensor.storage for tensor in tensors.values()}
            if magic != MAGIC:
                raise BadCheckpoint(f"{path.name} is not a checkpoint of this format")
            values = {key: _values(storages[key], file) for key in keys}
            return {name: tensor.of(values[tensor.storage.key]) for name, tensor in tensors.items()}
        except (pickle.UnpicklingError, EOFError, LookupError, TypeError, AttributeError) as error:
            raise BadCheckpoint(f"{path.name} cannot be read: {error}") from error


def _values(storage: _Storage, file: BinaryIO) -> Array:
    count = int.from_bytes(file.read(8), "little")
    data = file.read(count * storage.dtype.itemsize)
    if count != storage.length or len(data) != count * storage.dtype.itemsize:
        raise BadCheckpoint("the checkpoint is cut short")
    return np.frombuffer(data, storage.dtype)
