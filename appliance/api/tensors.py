"""Tensors of the Open Inference Protocol on the wire: JSON and the binary extension, in both directions.

Hand-checked rather than modelled: this is the hot path. A binary tensor is a view into the request's body (copied only where the bytes are not
aligned for its type), so it crosses the server without a copy.
"""

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import orjson

from appliance.domain.errors import BadTensor
from appliance.tasks.datatypes import dtype_of, word_of

_DIMENSIONS_MAX = 32
_ELEMENTS_MAX = 1 << 40


@dataclass(slots=True)
class InferCall:
    """A parsed infer request. `outputs` None = all; `binary` names the outputs wanted as bytes, with a default for the rest."""

    id: str | None
    inputs: dict[str, np.ndarray]
    outputs: list[str] | None
    binary: dict[str, bool]
    binary_default: bool
    parameters: Mapping[str, Any]


def parse_infer(body: bytes | bytearray, json_length: int | None) -> InferCall:
    """Read a request body; with `json_length` (Inference-Header-Content-Length) the bytes behind it are binary tensors in order.

    Raises: BadTensor saying which key is wrong.
    """
    length = len(body) if json_length is None else json_length
    if not 0 < length <= len(body):
        raise BadTensor(reason=f"Inference-Header-Content-Length {length} does not fit a body of {len(body)} bytes")
    try:
        header = orjson.loads(body if length == len(body) else memoryview(body)[:length])
    except orjson.JSONDecodeError as error:
        raise BadTensor(reason=f"the JSON of the request cannot be read: {error}") from None
    if not isinstance(header, dict):
        raise BadTensor(reason="the request must be a JSON object")
    parameters = _mapping(header.get("parameters"), "parameters")
    outputs, binary = _requested_outputs(header.get("outputs"))
    call_id = header.get("id")
    return InferCall(
        str(call_id) if call_id is not None and call_id != "" else None,
        _inputs(header.get("inputs"), body, length),
        outputs,
        binary,
        parameters.get("binary_data_output") is True,
        parameters,
    )


def encode_infer(
    call: InferCall, outputs: Mapping[str, np.ndarray], model: str, version: str
) -> tuple[bytes, int | None]:
    """The response body, and the length of its JSON part when binary tensors follow it."""
    described: list[dict[str, Any]] = []
    chunks: list[Any] = []
    for name, array in outputs.items():
        entry: dict[str, Any] = {"name": name, "datatype": word_of(array), "shape": array.shape}
        if call.binary.get(name, call.binary_default):
            chunk = _bytes_of(array)
            entry["parameters"] = {"binary_data_size": len(chunk)}
            chunks.append(chunk)
        else:
            entry["data"] = _json_data(array)
        described.append(entry)
    header: dict[str, Any] = {"model_name": model, "model_version": version, "outputs": described}
    if call.id is not None:
        header["id"] = call.id
    text = orjson.dumps(header, option=orjson.OPT_SERIALIZE_NUMPY)
    if not chunks:
        return text, None
    return b"".join([text, *chunks]), len(text)


# -- requests ----------------------------------------------------------------------------------------------------------


def _inputs(listed: Any, body: bytes | bytearray, offset: int) -> dict[str, np.ndarray]:
    if not isinstance(listed, list) or not listed:
        raise BadTensor(reason="inputs: must be a list of at least one tensor")
    inputs: dict[str, np.ndarray] = {}
    for index, described in enumerate(listed):
        where = f"inputs[{index}]"
        if not isinstance(described, dict):
            raise BadTensor(reason=f"{where}: must be an object")
        name, word = described.get("name"), described.get("datatype")
        if not isinstance(name, str) or not isinstance(word, str):
            raise BadTensor(reason=f"{where}: name and datatype must be strings")
        if name in inputs:
            raise BadTensor(reason=f"{where}: {name!r} appears twice")
        shape, count = _shape(described.get("shape"), where)
        size = _mapping(described.get("parameters"), f"{where}.parameters").get("binary_data_size")
        if size is None:
            inputs[name] = _from_json(described.get("data"), word, shape, count, where)
            continue
        if not isinstance(size, int) or size < 0 or offset + size > len(body):
            raise BadTensor(
                reason=f"{where}: binary_data_size {size!r} does not fit the {len(body) - offset} bytes left"
            )
        inputs[name] = _from_bytes(memoryview(body)[offset : offset + size], word, shape, count, where)
        offset += size
    if offset != len(body):
        raise BadTensor(reason=f"{len(body) - offset} bytes of the body belong to no tensor")
    return inputs


def _shape(shape: Any, where: str) -> tuple[list[int], int]:
    """The checked shape and its number of elements."""
    if not isinstance(shape, list) or len(shape) > _DIMENSIONS_MAX:
        raise BadTensor(reason=f"{where}: shape must be a list of at most {_DIMENSIONS_MAX} whole numbers")
    for size in shape:
        if type(size) is not int or size < 0:
            raise BadTensor(reason=f"{where}: shape must hold whole numbers ≥ 0")
    count = prod(shape)
    if count > _ELEMENTS_MAX:
        raise BadTensor(reason=f"{where}: shape {shape} is too large")
    return shape, count


def _from_bytes(data: memoryview, word: str, shape: list[int], count: int, where: str) -> np.ndarray:
    if word == "BYTES":
        return _unpack_bytes(data, shape, count, where)
    dtype = dtype_of(word)
    if len(data) != count * dtype.itemsize:
        raise BadTensor(
            reason=f"{where}: {len(data)} bytes for shape {shape} of {word}, which takes {count * dtype.itemsize}"
        )
    array = np.frombuffer(data, dtype).reshape(shape)
    return array if array.flags.aligned else array.copy()


def _from_json(data: Any, word: str, shape: list[int], count: int, where: str) -> np.ndarray:
    if not isinstance(data, list):
        raise BadTensor(reason=f"{where}: needs data (a list) or parameters.binary_data_size")
    dtype = dtype_of(word)
    try:
        if word == "BYTES":
            array = _texts(data, where)
        else:
            array = _numbers(data, dtype, where)
    except (ValueError, TypeError, OverflowError) as error:
        raise BadTensor(reason=f"{where}: the data is no {word} tensor: {error}") from None
    if array.size != count:
        raise BadTensor(reason=f"{where}: {array.size} elements for shape {shape}, which takes {count}")
    return array.reshape(shape)


def _numbers(data: list[Any], dtype: np.dtype[Any], where: str) -> np.ndarray:
    if dtype.kind == "f":
        return np.asarray(data, dtype=dtype)
    array = np.asarray(data)
    if array.size == 0:
        return array.astype(dtype)
    if array.dtype.kind != ("b" if dtype.kind == "b" else "i") and not (dtype.kind == "u" and array.dtype.kind in "iu"):
        raise BadTensor(reason=f"{where}: the data must be {'true or false' if dtype.kind == 'b' else 'whole numbers'}")
    cast = array.astype(dtype)
    if dtype.kind != "b" and not np.array_equal(cast, array):
        raise BadTensor(reason=f"{where}: a value does not fit {dtype.name}")
    return cast


def _texts(data: list[Any], where: str) -> np.ndarray:
    flat: list[Any] = []
    stack = [data]
    while stack:
        for item in stack.pop():
            if isinstance(item, list):
                stack.append(item)
            elif isinstance(item, str):
                flat.append(item)
            else:
                raise BadTensor(reason=f"{where}: BYTES data must be strings")
    return np.array(flat, dtype=np.object_)


def _unpack_bytes(data: memoryview, shape: list[int], count: int, where: str) -> np.ndarray:
    """Each element: a little-endian 32-bit length and that many bytes."""
    values: list[Any] = []
    offset = 0
    while offset < len(data):
        if offset + 4 > len(data):
            raise BadTensor(reason=f"{where}: the BYTES data ends inside a length")
        (length,) = struct.unpack_from("<I", data, offset)
        offset += 4
        if offset + length > len(data):
            raise BadTensor(reason=f"{where}: the BYTES data ends inside an element")
        values.append(_text_or_bytes(bytes(data[offset : offset + length])))
        offset += length
    if len(values) != count:
        raise BadTensor(reason=f"{where}: {len(values)} BYTES elements for shape {shape}, which takes {count}")
    array = np.empty(count, dtype=np.object_)
    array[:] = values
    return array.reshape(shape)


def _text_or_bytes(value: bytes) -> str | bytes:
    """ONNX strings are UTF-8; what is not stays bytes."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value


def _requested_outputs(listed: Any) -> tuple[list[str] | None, dict[str, bool]]:
    if listed is None or listed == []:
        return None, {}
    if not isinstance(listed, list):
        raise BadTensor(reason="outputs: must be a list")
    names: list[str] = []
    binary: dict[str, bool] = {}
    for index, described in enumerate(listed):
        if not isinstance(described, dict) or not isinstance(described.get("name"), str):
            raise BadTensor(reason=f"outputs[{index}]: must be an object with a name")
        name: str = described["name"]
        names.append(name)
        wanted = _mapping(described.get("parameters"), f"outputs[{index}].parameters").get("binary_data")
        if wanted is not None:
            binary[name] = wanted is True
    return names, binary


def _mapping(value: Any, where: str) -> Mapping[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise BadTensor(reason=f"{where}: must be an object")
    return value


# -- responses ---------------------------------------------------------------------------------------------------------


def _bytes_of(array: np.ndarray) -> Any:
    if array.dtype.kind not in "OUS":
        contiguous = np.ascontiguousarray(array)
        return contiguous.data.cast("B") if contiguous.size else b""
    parts: list[bytes] = []
    for value in array.ravel():
        raw = value if isinstance(value, bytes) else str(value).encode()
        parts += (struct.pack("<I", len(raw)), raw)
    return b"".join(parts)


def _json_data(array: np.ndarray) -> Any:
    """Flat data. JSON has no NaN or infinity: they become null, which clients must expect of a model that yields them."""
    if array.dtype.kind in "OUS":
        return [value.decode(errors="replace") if isinstance(value, bytes) else str(value) for value in array.ravel()]
    return np.ascontiguousarray(array).ravel()
