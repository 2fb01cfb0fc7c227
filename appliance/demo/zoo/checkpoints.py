"""PyTorch checkpoints in the older, unzipped format, read with numpy alone.

A pickle can name any function; this reader knows a few harmless names and refuses every other one, so a hostile file
runs nothing.
"""

import collections
import pickle
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from appliance.demo.zoo.graphs import Array


class _Storage(NamedTuple):
    """Values that come after the pickles; tensors are views of it."""

    key: str
    dtype: np.dtype[Any]


class _Tensor(NamedTuple):
    """A view by offset, size and stride, in elements."""

    storage: _Storage
    offset: int
    size: tuple[int, ...]
    stride: tuple[int, ...]

    def of(self, data: bytes) -> Array:
        """The values. Raises where the view reaches beyond its storage."""
        dtype = self.storage.dtype
        strides = [step * dtype.itemsize for step in self.stride]
        return np.ndarray(self.size, dtype, data, self.offset * dtype.itemsize, strides).copy()


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
            raise pickle.UnpicklingError(f"the checkpoint wants {module}.{name}, which is not a tensor")
        return _ALLOWED[module, name]

    def persistent_load(self, pid: Any) -> _Storage:
        _kind, dtype, key, *_ = pid
        return _Storage(key, dtype)


def read_checkpoint(path: Path) -> dict[str, Array]:
    """The state dictionary: name to array."""
    with path.open("rb") as file:
        _magic, _protocol, _system, state, keys = (_Reader(file).load() for _ in range(5))
        dtypes = {tensor.storage.key: tensor.storage.dtype for tensor in state.values()}
        data = {key: file.read(int.from_bytes(file.read(8), "little") * dtypes[key].itemsize) for key in keys}
    return {name: tensor.of(data[tensor.storage.key]) for name, tensor in state.items()}
