"""Arrays by name in a file, between the service and its children: nothing is pickled, and what a child has written is
not believed.
"""

import io
import zipfile
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import IO

import numpy as np

BYTES_MAX = 2**30


def save(path: Path, arrays: Mapping[str, np.ndarray]) -> str:
    """Numbers only; the names stand beside them, for they may be anything. Returns the path. Blocks."""
    np.savez(path, np.array(list(arrays), np.str_), *arrays.values())
    return str(path)


def packed(arrays: Mapping[str, np.ndarray]) -> bytes:
    """As `save`, in memory. Text is written as numpy has it, at a fixed width."""
    file = io.BytesIO()
    plain = [array.astype(np.str_) if array.dtype.kind == "O" else array for array in map(np.asarray, arrays.values())]
    np.savez(file, np.array(list(arrays), np.str_), *plain)
    return file.getvalue()


def load(path: Path | str | IO[bytes], names: Collection[str] | None = None) -> dict[str, np.ndarray]:
    """What `save` has written; of it, what is named. Blocks. Raises: ValueError where that is not there."""
    try:
        with zipfile.ZipFile(path) as archive:
            if sum(entry.file_size for entry in archive.infolist()) > BYTES_MAX:
                raise ValueError("more than is wanted")
        with np.load(path, allow_pickle=False) as file:
            places = {str(name): f"arr_{number}" for number, name in enumerate(file["arr_0"], 1)}
            return {name: file[places[name]] for name in (places if names is None else names)}
    except (OSError, KeyError, EOFError, MemoryError, zipfile.BadZipFile) as error:
        raise ValueError(f"no arrays: {error}") from error
