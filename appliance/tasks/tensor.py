"""Tensors in, tensors out, for networks that fit no other task."""

import io
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from sys import getsizeof
from typing import Any

import numpy as np
import orjson

from appliance.domain.catalogue import TaskKind, TaskSpec, TensorSpec
from appliance.domain.errors import BadMedia, BadMetadata, BadTensor
from appliance.tasks.base import Answer, Arrays, Decoded, Media, OpenedMedia, Score, Target, fed_inputs, with_constants
from appliance.tasks.datatypes import cast, dtype_of, word_of
from appliance.tasks.large_json import LARGE_BYTES, Numbers, ScannedJson, flattened, listed, scan_json
from appliance.tasks.metrics import nearness

NPZ_BYTES_MAX = 256 * 2**20
"""Of all arrays once unpacked."""
_ENTRY = b"PK\x01\x02"
"""Begins each entry in the directory of an archive."""
_ENTRIES_MAX = 4096
_DIMENSIONS_MAX = 32
_TEXT_BYTES = 64
"""What a text takes beside its characters."""
_NUMBERS, _TEXTS = frozenset({int, float, bool}), frozenset({str})


class Tensors:
    """JSON {"inputs": {name: nested list}} (or an entry as in an answer: shape, datatype, data), or the bytes of an
    .npz.
    """

    kind = TaskKind.TENSOR

    def open(self, media: Media, spec: TaskSpec, target: Target) -> OpenedMedia:
        if media.body[:2] == b"PK":
            return _opened(_read_npz(media.body), spec, target)
        try:
            if len(media.body) <= LARGE_BYTES:
                return _opened(_inputs(orjson.loads(media.body)), spec, target)
            scanned = scan_json(media.body)
        except (ValueError, RecursionError) as error:
            raise _no_json(error) from None
        return OpenedMedia(scanned.tree_bytes, lambda: _opened(_read(scanned), spec, target))

    def decode(self, media: Media, spec: TaskSpec, target: Target, carry: Arrays) -> Decoded:
        step: Decoded | OpenedMedia = self.open(media, spec, target)
        while isinstance(step, OpenedMedia):
            step = step.go_on()
        return step

    def encode(self, outputs: list[dict[str, np.ndarray]], decoded: Decoded, spec: TaskSpec) -> Answer:
        states = {pair.output for pair in spec.state}
        return Answer({"outputs": {name: to_json(array) for name, array in outputs[0].items() if name not in states}})

    def similarity(self, answer: Mapping[str, Any], reference: Mapping[str, Any]) -> Score:
        return compare(answer["outputs"], reference["outputs"])

    def accuracy(self, answer: Mapping[str, Any], truth: Mapping[str, Any]) -> Score:
        """Against `outputs` by nearness, or a `label` (index) by the largest number of the first output."""
        if isinstance(truth.get("outputs"), Mapping):
            return compare(answer["outputs"], truth["outputs"])
        if isinstance(truth.get("label"), int):
            first = next(iter(answer["outputs"].values()))
            return Score(float(int(np.argmax(_values(first))) == truth["label"]), 1.0, "top-1")
        raise BadMetadata(reason="a truth of this task needs 'outputs' or 'label' (an index)")


def _opened(given: Mapping[str, Any], spec: TaskSpec, target: Target) -> OpenedMedia:
    """Names and shapes are checked; nothing is made of the data. Raises: BadTensor."""
    wanted = {tensor.name for tensor in fed_inputs(spec, target)}
    optional = {tensor.name for tensor in target.inputs if tensor.name in spec.defaults}
    if not wanted <= given.keys() <= wanted | optional:
        also = f" (optional: {sorted(optional)})" if optional else ""
        raise BadTensor(reason=f"the model takes the inputs {sorted(wanted)}{also}, not {sorted(given)}")
    fitting = {
        tensor.name: fit(given[tensor.name], tensor, target.shape_max.get(tensor.name))
        for tensor in target.inputs
        if tensor.name in given
    }

    def decode() -> Decoded:
        step = {name: one.array() for name, one in fitting.items()}
        return Decoded([with_constants(step, spec, target)])

    return OpenedMedia(sum(one.bytes for one in fitting.values()), decode)


def _read(scanned: ScannedJson) -> dict[str, Any]:
    try:
        return _inputs(scanned.read())
    except (ValueError, RecursionError) as error:
        raise _no_json(error) from None


def _no_json(error: Exception) -> BadMedia:
    return BadMedia(
        reason=f"the application takes tensors, as JSON or .npz, and the JSON is not valid: {error}. "
        "To send pictures, sounds or texts, import the model with their task (--task)"
    )


def _inputs(message: Any) -> dict[str, Any]:
    """Those of a message, by name. Raises: BadMedia."""
    inputs = message.get("inputs") if isinstance(message, dict) else None
    if isinstance(inputs, list) and all(
        isinstance(entry, dict) and isinstance(entry.get("name"), str) for entry in inputs
    ):
        inputs = {entry["name"]: entry for entry in inputs}
    if not isinstance(inputs, dict):
        raise BadMedia(reason='send {"inputs": {"name": [[...]]}} or an .npz file')
    return inputs


def _read_npz(body: bytes) -> dict[str, Any]:
    """The arrays of an .npz, still packed: nothing but their headers is unpacked, and checked against the sizes in the
    archive.
    """
    if body.count(_ENTRY) > _ENTRIES_MAX:
        raise BadMedia(reason=f"the .npz holds more than {_ENTRIES_MAX} arrays")
    with _npz_is_whole():
        archive = zipfile.ZipFile(io.BytesIO(body))
        entries = archive.infolist()
        if any(entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) for entry in entries):
            raise BadMedia(reason="the .npz is packed in a way that numpy does not write")
        if sum(entry.file_size for entry in entries) > NPZ_BYTES_MAX:
            raise BadMedia(reason=f"the arrays of the .npz take more than {NPZ_BYTES_MAX} bytes")
        return {entry.filename.removesuffix(".npy"): _packed(archive, entry) for entry in entries}


@contextmanager
def _npz_is_whole() -> Iterator[None]:
    """Raises: BadMedia where it is damaged."""
    try:
        yield
    except BadMedia:
        raise
    except Exception as error:  # zipfile, zlib and numpy's header parser answer damage with a dozen kinds of error
        raise BadMedia(reason=f"the .npz cannot be read: {error}") from None


@dataclass(frozen=True, slots=True)
class _Packed:
    """An array in an .npz."""

    archive: zipfile.ZipFile
    entry: zipfile.ZipInfo
    shape: tuple[int, ...]
    dtype: "np.dtype[Any]"

    def array(self) -> np.ndarray:
        """Raises: BadMedia."""
        with _npz_is_whole(), self.archive.open(self.entry) as file:  # which gives no more than the archive says
            return np.asarray(np.lib.format.read_array(file, allow_pickle=False))


def _packed(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> _Packed:
    with archive.open(entry) as file:
        version = np.lib.format.read_magic(file)
        read_header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, dtype = read_header(file)
    if dtype.hasobject or prod(shape) * dtype.itemsize > entry.file_size:
        raise ValueError(f"{entry.filename} does not hold what its header says")
    return _Packed(archive, entry, shape, dtype)


@dataclass(frozen=True, slots=True)
class Fitting:
    """What a caller gave for an input whose shape it has."""

    bytes: int
    """Memory that `array` needs at most, its result and intermediate copies together."""
    array: Callable[[], np.ndarray]
    """The tensor. Raises: BadTensor, BadMedia."""


def fit(value: Any, tensor: TensorSpec, most: tuple[int, ...] | None = None) -> Fitting:
    """What the caller gave, for an input of this shape, and at most as large as `most`; a batch axis that is missing is
    added. Nothing is made of its data.

    Raises: BadTensor.
    """
    stated = None
    if isinstance(value, dict):
        stated, value = value.get("shape"), value.get("data")
    try:
        if isinstance(value, Numbers):
            shape = value.shape()
        elif isinstance(value, _Packed):
            shape = value.shape
        else:
            value, shape = flattened(value) if isinstance(value, list) else ([value], ())
        count = prod(shape)
        if stated is not None:
            shape = _reshaped(count, stated)
    except ValueError as error:
        raise BadTensor(reason=f"input {tensor.name!r}: {error}") from None
    if len(shape) + 1 == len(tensor.shape) and tensor.shape[0] in (-1, 1):
        shape = (1, *shape)
    _check_shape(shape, tensor, most)
    dtype = dtype_of(tensor.datatype)
    size = count * dtype.itemsize
    if dtype.kind == "O" and isinstance(value, list):
        size += sum(map(getsizeof, value))
    if isinstance(value, _Packed):
        size += count * (value.dtype.itemsize + (_TEXT_BYTES if dtype.kind == "O" else 0))
    return Fitting(size, lambda: _array_of(value, tensor).reshape(shape))


def _array_of(value: Any, tensor: TensorSpec) -> np.ndarray:
    """Flat, in the type of the input. Raises: BadTensor, BadMedia."""
    dtype = dtype_of(tensor.datatype)
    try:
        if isinstance(value, Numbers):
            return value.array(dtype, lambda step: _elements(step, tensor)).ravel()
        return _elements(value.array() if isinstance(value, _Packed) else value, tensor).ravel()
    except (ValueError, TypeError, OverflowError) as error:
        raise BadTensor(reason=f"input {tensor.name!r}: {error}") from None


def _elements(values: "list[Any] | np.ndarray", tensor: TensorSpec) -> np.ndarray:
    """A flat list, or an array, in the type of the input. Raises: BadTensor."""
    is_text = dtype_of(tensor.datatype).kind == "O"
    if isinstance(values, np.ndarray):
        is_good = values.dtype.kind in ("U" if is_text else "biuf")
    else:
        is_good = (_TEXTS if is_text else _NUMBERS).issuperset(map(type, values))
    array: np.ndarray | None = None
    if is_good:
        array = np.asarray(values, np.object_ if is_text else None)
    if array is None or not (is_text or array.dtype.kind in "biuf"):  # a number beyond 64 bits stays an object
        raise BadTensor(reason=f"input {tensor.name!r} holds something that is no {'text' if is_text else 'number'}")
    return cast(array, tensor.datatype)


def _reshaped(count: int, stated: Any) -> tuple[int, ...]:
    """A stated shape, with its side -1 as large as `count` elements make it. Raises: ValueError."""
    sides = [stated] if type(stated) is int else stated
    if not isinstance(sides, list) or len(sides) > _DIMENSIONS_MAX or not {int}.issuperset(map(type, sides)):
        raise ValueError(f"shape must be a list of at most {_DIMENSIONS_MAX} whole numbers")
    known = prod(side for side in sides if side != -1)
    if sides.count(-1) == 1 and known > 0:
        sides = [count // known if side == -1 else side for side in sides]
    if min(sides, default=0) < 0 or prod(sides) != count:
        raise ValueError(f"{count} elements have no shape {stated}")
    return tuple(sides)


def _check_shape(shape: tuple[int, ...], tensor: TensorSpec, most: tuple[int, ...] | None) -> None:
    """Raises: BadTensor."""
    wanted = list(tensor.shape)
    if len(shape) != len(wanted) or any(want not in (-1, have) for want, have in zip(wanted, shape, strict=True)):
        raise BadTensor(reason=f"input {tensor.name!r} has shape {wanted} (-1 is free), not {list(shape)}")
    if most is not None and any(have > limit for have, limit in zip(shape, most, strict=True)):
        raise BadTensor(reason=f"input {tensor.name!r} takes at most {list(most)}, not {list(shape)}")


def to_json(array: np.ndarray) -> dict[str, Any]:
    """shape, datatype and flat data; numbers that JSON does not have (NaN, infinities) become null."""
    flat = array.ravel()
    data = listed(flat)
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        data = [value if np.isfinite(value) else None for value in data]
    if array.dtype.kind in "OSU":
        data = [value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value) for value in data]
    return {"shape": list(array.shape), "datatype": word_of(array.dtype), "data": data}


def compare(ones: Mapping[str, Any], others: Mapping[str, Any]) -> Score:
    """Nearness of an answer's outputs to those of a reference."""
    return nearness({name: _values(one) for name, one in ones.items()}, {n: _values(one) for n, one in others.items()})


def _values(entry: Any) -> np.ndarray:
    """Flat values of an answer's entry, or of a nested list."""
    data = entry["data"] if isinstance(entry, Mapping) else entry
    array = np.asarray(data).ravel()
    if array.dtype == object and all(value is None or isinstance(value, int | float) for value in array):
        array = array.astype(np.float64)
    return array
