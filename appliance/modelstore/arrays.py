"""Arrays by name in a file, between the service and its children: nothing is pickled."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np


def save(path: Path, arrays: Mapping[str, np.ndarray]) -> str:
    """Numbers only; the names stand beside them, for they may be anything. Returns the path. Blocks."""
    np.savez(path, np.array(list(arrays), np.str_), *arrays.values())
    return str(path)


def load(path: Path | str) -> dict[str, np.ndarray]:
    """What `save` has written. Blocks. Raises: ValueError, OSError."""
    with np.load(path, allow_pickle=False) as file:
        names = [str(name) for name in file["arr_0"]]
        return {name: file[f"arr_{number}"] for number, name in enumerate(names, 1)}
