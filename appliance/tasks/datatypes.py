"""The Open Inference Protocol's words for number formats, as numpy knows them."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from appliance.domain.errors import BadTensor

DTYPES: Mapping[str, np.dtype[Any]] = {
    "BOOL": np.dtype(np.bool_),
    "UINT8": np.dtype(np.uint8),
    "UINT16": np.dtype(np.uint16),
    "UINT32": np.dtype(np.uint32),
    "UINT64": np.dtype(np.uint64),
    "INT8": np.dtype(np.int8),
    "INT16": np.dtype(np.int16),
    "INT32": np.dtype(np.int32),
    "INT64": np.dtype(np.int64),
    "FP16": np.dtype(np.float16),
    "FP32": np.dtype(np.float32),
    "FP64": np.dtype(np.float64),
    "BYTES": np.dtype(np.object_),
}
WORDS: Mapping[np.dtype[Any], str] = {dtype: word for word, dtype in DTYPES.items()}


def dtype_of(word: str) -> np.dtype[Any]:
    """The numpy type of a protocol word.

    Raises: BadTensor for a word that has none here (BF16).
    """
    try:
        return DTYPES[word]
    except KeyError:
        raise BadTensor(reason=f"datatype {word!r} is not supported; use one of {', '.join(DTYPES)}") from None


def word_of(array: np.ndarray) -> str:
    """The protocol word of an array; text of any kind is BYTES."""
    return WORDS.get(array.dtype.newbyteorder("="), "BYTES")


def cast(array: np.ndarray, word: str) -> np.ndarray:
    """The array in the type of `word`, C-contiguous; integers are rounded and clipped, not wrapped."""
    dtype = dtype_of(word)
    if array.dtype == dtype:
        return np.ascontiguousarray(array).reshape(array.shape)  # ascontiguousarray alone makes a scalar 1-d
    if dtype.kind in "iu" and array.dtype.kind == "f":
        bounds = np.iinfo(dtype)
        array = np.clip(np.rint(array), bounds.min, bounds.max)
    return np.asarray(array, dtype=dtype, order="C")
