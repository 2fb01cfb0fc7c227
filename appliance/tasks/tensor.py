"""Tensors in, tensors out, for networks that fit no other task."""

import io
import zipfile
from collections.abc import Mapping
from typing import Any

import numpy as np
import orjson

from appliance.domain.catalogue import TaskKind, TaskSpec, TensorSpec
from appliance.domain.errors import BadMedia, BadMetadata, BadTensor
from appliance.tasks.base import Answer, Arrays, Decoded, Media, Score, Target, fed_inputs, with_constants
from appliance.tasks.datatypes import cast, dtype_of, word_of
from appliance.tasks.large_json import LARGE_BYTES, Numbers, listed, read_json
from appliance.tasks.metrics import nearness

NPZ_BYTES_MAX = 256 * 2**20
"""Of all arrays once unpacked."""


class Tensors:
    """JSON {"inputs": {name: nested list}} (or an entry as in an answer: shape, datatype, data), or the bytes of an
    .npz.
    """

    kind = TaskKind.TENSOR

    def decode(self, media: Media, spec: TaskSpec, target: Target, carry: Arrays) -> Decoded:
        given = _read_npz(media.body) if media.body[:2] == b"PK" else _read_json(media.body)
        wanted = {tensor.name for tensor in fed_inputs(spec, target)}
        optional = {tensor.name for tensor in target.inputs if tensor.name in spec.defaults}
        if not wanted <= given.keys() <= wanted | optional:
            also = f" (optional: {sorted(optional)})" if optional else ""
            raise BadTensor(reason=f"the model takes the inputs {sorted(wanted)}{also}, not {sorted(given)}")
        step = {tensor.name: fit(given[tensor.name], tensor) for tensor in target.inputs if tensor.name in given}
        return Decoded([with_constants(step, spec, target)])

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


def _read_json(body: bytes) -> dict[str, Any]:
    try:
        message = orjson.loads(body) if len(body) <= LARGE_BYTES else read_json(body)
    except (ValueError, RecursionError) as error:
        raise BadMedia(reason=f"the JSON is not valid: {error}") from None
    inputs = message.get("inputs") if isinstance(message, dict) else None
    if isinstance(inputs, list) and all(
        isinstance(entry, dict) and isinstance(entry.get("name"), str) for entry in inputs
    ):
        inputs = {entry["name"]: entry for entry in inputs}
    if not isinstance(inputs, dict):
        raise BadMedia(reason='send {"inputs": {"name": [[...]]}} or an .npz file')
    return inputs


def _read_npz(body: bytes) -> dict[str, Any]:
    """The arrays of an .npz, whose headers are checked against the sizes in the archive before anything is unpacked."""
    try:
        with zipfile.ZipFile(io.BytesIO(body)) as archive:
            entries = archive.infolist()
            if any(entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) for entry in entries):
                raise BadMedia(reason="the .npz is packed in a way that numpy does not write")
            if sum(entry.file_size for entry in entries) > NPZ_BYTES_MAX:
                raise BadMedia(reason=f"the arrays of the .npz take more than {NPZ_BYTES_MAX} bytes")
            return {entry.filename.removesuffix(".npy"): _read_npy(archive, entry) for entry in entries}
    except BadMedia:
        raise
    except Exception as error:  # zipfile, zlib and numpy's header parser answer damage with a dozen kinds of error
        raise BadMedia(reason=f"the .npz cannot be read: {error}") from None


def _read_npy(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> np.ndarray:
    with archive.open(entry) as file:
        data = file.read(entry.file_size)  # no more than was promised, whatever the archive holds
    stream = io.BytesIO(data)
    version = np.lib.format.read_magic(stream)
    read_header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = read_header(stream)
    count = 1
    for side in shape:
        count *= side
    if dtype.hasobject or count * dtype.itemsize > len(data):
        raise ValueError(f"{entry.filename} does not hold what its header says")
    stream.seek(0)
    return np.asarray(np.lib.format.read_array(stream, allow_pickle=False))


def fit(value: Any, tensor: TensorSpec) -> np.ndarray:
    """What the caller gave, in the type and shape of the input; a batch axis that is missing is added.

    Raises: BadTensor.
    """
    shape = None
    if isinstance(value, dict):
        shape, value = value.get("shape"), value.get("data")
    try:
        array = value.array(np.asarray) if isinstance(value, Numbers) else np.asarray(value)
        if shape is not None:
            array = array.reshape(shape)
        if dtype_of(tensor.datatype).kind != "O" and array.dtype.kind not in "biuf":
            raise BadTensor(reason=f"input {tensor.name!r} holds something that is no number")
        if dtype_of(tensor.datatype).kind == "O" and not all(isinstance(entry, str) for entry in array.ravel()):
            raise BadTensor(reason=f"input {tensor.name!r} holds something that is no text")
        array = cast(array, tensor.datatype)
    except (ValueError, TypeError, OverflowError) as error:
        raise BadTensor(reason=f"input {tensor.name!r}: {error}") from None
    if array.ndim + 1 == len(tensor.shape) and tensor.shape[0] in (-1, 1):
        array = array[np.newaxis]
    is_fitting = len(array.shape) == len(tensor.shape) and all(
        wanted in (-1, side) for wanted, side in zip(tensor.shape, array.shape, strict=True)
    )
    if not is_fitting:
        raise BadTensor(
            reason=f"input {tensor.name!r} has shape {list(tensor.shape)} (-1 is free), not {list(array.shape)}"
        )
    return array


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
