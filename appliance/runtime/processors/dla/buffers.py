"""Memory that a DLA reads and writes, and the stream in which it does; by CUDA's own Python binding."""

from typing import Any

import numpy as np


class CudaFailed(RuntimeError):
    """A call of CUDA's answered with an error."""


def cuda() -> Any:
    """The binding. Raises: ImportError."""
    from cuda.bindings import runtime

    return runtime


class Buffers:
    """A buffer for each tensor of an engine, by name; one run uses them at a time."""

    def __init__(self, library: Any, sizes: dict[str, int]) -> None:
        """`sizes` in bytes. Raises: CudaFailed."""
        self._cuda = library
        self._places: dict[str, int] = {}
        self.stream = self._call(library.cudaStreamCreate())
        for name, size_bytes in sizes.items():
            self._places[name] = int(self._call(library.cudaMalloc(size_bytes)))

    def place(self, name: str) -> int:
        return self._places[name]

    def write(self, name: str, array: np.ndarray[Any, Any]) -> None:
        """Raises: CudaFailed."""
        kind = self._cuda.cudaMemcpyKind.cudaMemcpyHostToDevice
        self._call(self._cuda.cudaMemcpyAsync(self._places[name], array.ctypes.data, array.nbytes, kind, self.stream))

    def read(self, name: str, array: np.ndarray[Any, Any]) -> None:
        """Into the array, once `wait` has returned. Raises: CudaFailed."""
        kind = self._cuda.cudaMemcpyKind.cudaMemcpyDeviceToHost
        self._call(self._cuda.cudaMemcpyAsync(array.ctypes.data, self._places[name], array.nbytes, kind, self.stream))

    def wait(self) -> None:
        """Until all that was asked for is done. Raises: CudaFailed."""
        self._call(self._cuda.cudaStreamSynchronize(self.stream))

    def close(self) -> None:
        for place in self._places.values():
            self._cuda.cudaFree(place)
        self._cuda.cudaStreamDestroy(self.stream)
        self._places.clear()

    def _call(self, answer: Any) -> Any:
        error, *values = answer
        if int(error) != 0:
            raise CudaFailed(f"CUDA error {int(error)}")
        return values[0] if values else None
