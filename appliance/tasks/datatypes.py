"""The Open Inference Protocol's words for number formats, as numpy knows them."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from appliance.domain.catalogue import DefaultValue
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


def word_of(dtype: np.dtype[Any]) -> str:
    """The protocol word of a numpy type; text of any kind is BYTES."""
    return WORDS.get(dtype.newbyteorder("="), "BYTES")


def cast(array: np.ndarray, word: str) -> np.ndarray:
    """The array in the type of `word`, C-contiguous; what an integer type cannot hold is rounded and clipped, not
    wrapped.
    """
    dtype = dtype_of(word)
    if dtype.kind in "iu" and array.dtype != dtype and array.dtype.kind in "iuf":
        bounds = np.iinfo(dtype)
        whole = np.rint(np.nan_to_num(array)) if array.dtype.kind == "f" else array
        array = np.clip(whole, _bound(bounds.min, array.dtype), _bound(bounds.max, array.dtype))
    with np.errstate(
        over="ignore", invalid="ignore"
    ):  # too large for a narrow float: infinity, as the graph would make it
        return np.asarray(array, dtype=dtype, order="C")


def default_array(default: DefaultValue) -> np.ndarray:
    """What an optional input holds where a request leaves it out."""
    return np.array(default.values, dtype_of(default.datatype)).reshape(default.shape)


def _bound(bound: int, dtype: np.dtype[Any]) -> int | float:
    """A bound of the target type, expressed in the source's: numpy refuses a Python int that the array's own type
    cannot hold.
    """
    if dtype.kind == "f":
        return float(np.nextafter(np.float64(bound), 0.0)) if abs(bound) > 2**53 else float(bound)
    own = np.iinfo(dtype)
    return min(max(bound, int(own.min)), int(own.max))
