"""PyTorch checkpoints in the older, unzipped format, read with numpy alone.

A pickle can name any function; this reader knows five harmless names and refuses every other one, so a hostile file
runs nothing.
"""

import collections
import pickle
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

MAGIC = 0x1950A86A20F9469CFC6C
"""First pickle of the file."""


class BadCheckpoint(ValueError):
    """Not a checkpoint of this format, or one that wants more than tensors."""


@dataclass
class _Storage:
    """Values that come after the pickles; tensors are views of it."""

    dtype: np.dtype[Any]
    count: int
    values: Array | None = None


@dataclass
class _Tensor:
    """A view by offset, size and stride, in elements."""

    storage: _Storage
    offset: int
    size: tuple[int, ...]
    stride: tuple[int, ...]

    def array(self) -> Array:
        values = self.storage.values
        assert values is not None
        last = self.offset + sum((side - 1) * step for side, step in zip(self.size, self.stride, strict=True))
        if min((self.offset, *self.size, *self.stride)) < 0 or (0 not in self.size and last >= len(values)):
            raise BadCheckpoint("a tensor reaches beyond its storage")
        steps = tuple(step * values.itemsize for step in self.stride)
        return np.lib.stride_tricks.as_strided(values[self.offset :], self.size, steps).copy()


def _rebuild(storage: _Storage, offset: int, size: tuple[int, ...], stride: tuple[int, ...], *_: object) -> _Tensor:
    return _Tensor(storage, offset, size, stride)


_STORAGES = {
    "FloatStorage": np.float32,
    "HalfStorage": np.float16,
    "DoubleStorage": np.float64,
    "LongStorage": np.int64,
    "IntStorage": np.int32,
}
_ALLOWED: dict[tuple[str, str], Any] = {
    ("collections", "OrderedDict"): collections.OrderedDict,
    ("torch._utils", "_rebuild_tensor_v2"): _rebuild,
    **{("torch", name): np.dtype(kind) for name, kind in _STORAGES.items()},
}


@dataclass
class _Storages:
    """Those seen while unpickling, by their key."""

    by_key: dict[str, _Storage] = field(default_factory=dict)


class _Reader(pickle.Unpickler):
    """Unpickles tensors, dictionaries and plain values."""

    def __init__(self, file: BinaryIO, storages: _Storages) -> None:
        super().__init__(file)
        self._storages = storages

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise BadCheckpoint(f"the checkpoint wants {module}.{name}, which is not a tensor")
        return _ALLOWED[module, name]

    def persistent_load(self, pid: Any) -> _Storage:
        kind, dtype, key, _location, count, view = pid
        if kind != "storage" or view is not None:
            raise BadCheckpoint(f"unknown reference {kind!r}")
        return self._storages.by_key.setdefault(key, _Storage(dtype, count))


def read_checkpoint(path: Path) -> dict[str, Array]:
    """The state dictionary: name to array. Raises `BadCheckpoint`."""
    storages = _Storages()
    with path.open("rb") as file:
        try:
            magic, _protocol, _system, state, keys = (_Reader(file, storages).load() for _ in range(5))
        except (pickle.UnpicklingError, EOFError, ValueError, TypeError, AttributeError, IndexError) as error:
            raise BadCheckpoint(f"{path.name} cannot be read: {error}") from error
        is_known = magic == MAGIC and isinstance(state, dict) and isinstance(keys, list)
        if not is_known or sorted(keys) != sorted(storages.by_key):
            raise BadCheckpoint(f"{path.name} is not a checkpoint of this format")
        for key in keys:
            _fill(storages.by_key[key], file)
    return {name: value.array() for name, value in state.items() if isinstance(value, _Tensor)}


def _fill(storage: _Storage, file: BinaryIO) -> None:
    count = int.from_bytes(file.read(8), "little")
    data = file.read(count * storage.dtype.itemsize)
    if count != storage.count or len(data) != count * storage.dtype.itemsize:
        raise BadCheckpoint("the checkpoint is cut short")
    storage.values = np.frombuffer(data, storage.dtype)
