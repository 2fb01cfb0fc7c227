"""Tensors of the Open Inference Protocol on the wire: JSON and the binary extension, in both directions.

Hand-checked rather than modelled: this is the hot path. A binary tensor is a view into the request's body (copied only
where the bytes are not aligned for its type), so it crosses the server without a copy. The JSON in front of binary
tensors is the same in every request of a client: what it says, once checked, is remembered by its bytes.
"""

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from math import prod
from sys import getsizeof
from typing import Any, NamedTuple

import numpy as np
import orjson

from appliance.domain.errors import BadTensor
from appliance.runtime.serving.admission import Described
from appliance.tasks.datatypes import dtype_of, word_of
from appliance.tasks.large_json import (
    LARGE_BYTES,
    BadJson,
    Numbers,
    ScannedJson,
    flattened,
    fragment,
    read_json,
    scan_json,
)

Body = bytes | bytearray | memoryview
"""A request's body, as the server gathered it."""
_DIMENSIONS_MAX = 32
_NAME_MAX = 1024
_INPUTS_MAX = 1024
_OUTPUTS_MAX = 1024
_CLASSES_MAX = 10_000
"""Of one item of an output: each becomes a text."""
_ELEMENTS_MAX = 1 << 40
_REMEMBERED = 128
_REMEMBERED_BYTES_MAX = 1024
"""How many headers are remembered, and how long each may be: a few MB at the worst."""
_WRITTEN_SOON = 16_384
"""Elements that become JSON within a millisecond."""
_JSON_TYPES: Mapping[str, tuple[frozenset[type], str]] = {
    "f": (frozenset({int, float}), "numbers"),
    "i": (frozenset({int}), "whole numbers"),
    "u": (frozenset({int}), "whole numbers"),
    "b": (frozenset({bool}), "true or false"),
    "O": (frozenset({str}), "strings"),
}
"""Kind of dtype → what may stand for it in JSON, and how to say so."""


class Place(NamedTuple):
    """Where the bytes of a tensor are in a shared memory region of the caller's."""

    region: str
    offset: int
    size: int


@dataclass(frozen=True, slots=True)
class SharedTensors:
    """What of a call is in shared memory."""

    inputs: "tuple[tuple[DescribedInput, Place], ...]"
    outputs: Mapping[str, Place]
    """By name, with the bytes that there are for it."""


@dataclass(slots=True)
class InferCall:
    """A parsed infer request.

    `outputs` None = all; `binary` names the outputs wanted as bytes, with a default for the rest; `classes` those of
    which so many classes are wanted. `shared` None: all of it is in the body; else `inputs` lacks those that are still
    to be read.
    """

    id: str | None
    inputs: dict[str, np.ndarray]
    outputs: list[str] | None
    binary: dict[str, bool]
    binary_default: bool
    parameters: Mapping[str, Any]
    shared: SharedTensors | None = None
    written: Mapping[str, Place] | None = None
    """Outputs that were written into shared memory, with the bytes that they took: an answer says where they are."""
    texts_bytes: int = 0
    """What the texts among the inputs take, where they are many."""
    classes: Mapping[str, int] = field(default_factory=dict)


def read_header(body: Body, json_length: int | None, scanned: ScannedJson | None = None) -> "Header":
    """Read the JSON part of a request body; with `json_length` (Inference-Header-Content-Length) the bytes behind it
    are binary tensors in order. Nothing is made of tensors yet. `scanned`: what `scan_header` has returned.

    Raises: BadTensor saying which key is wrong.
    """
    if scanned is not None:
        return _header(scanned)
    length = _json_length(body, json_length)
    if length == len(body):
        return _whole_header(body)
    if length <= _REMEMBERED_BYTES_MAX:
        return _remembered_header(bytes(body[:length]))
    return _header(body[:length])


def scan_header(body: Body, json_length: int | None) -> ScannedJson:
    """Look through the JSON part of a request body: what will be made of it can be counted then. Raises: BadTensor."""
    try:
        return scan_json(body[: _json_length(body, json_length)])
    except BadJson as error:
        raise _no_json(error) from None


def _json_length(body: Body, stated: int | None) -> int:
    length = len(body) if stated is None else stated
    if not 0 < length <= len(body):
        raise BadTensor(reason=f"Inference-Header-Content-Length {length} does not fit a body of {len(body)} bytes")
    return length


def _no_json(error: BadJson) -> BadTensor:
    return BadTensor(reason=f"the JSON of the request {error}")


def make_call(header: "Header", body: Body) -> InferCall:
    """Make the tensors of a request body with this header. Raises: BadTensor saying which key is wrong."""
    inputs = _inputs(header.inputs, body, header.length)
    call = InferCall(
        header.id, inputs, header.outputs, header.binary, header.binary_default, header.parameters, header.shared
    )
    call.classes = header.classes
    if is_slow_to_make(header, body):
        texts = [inputs[each.name].ravel().tolist() for each in header.built if each.word == "BYTES"]
        call.texts_bytes = sum(map(_size_of_texts, texts))
    return call


def shared_input(described: "DescribedInput", data: memoryview) -> np.ndarray:
    """An input of which the bytes are in shared memory, by a copy of them. Raises: BadTensor."""
    return _inputs([described], data, 0)[described.name]


def has_long_json(body: Body, json_length: int | None) -> bool:
    """Whether `read_header` may take more than a millisecond."""
    return len(body) > LARGE_BYTES and (json_length is None or json_length > LARGE_BYTES)


def is_slow_to_make(header: "Header", body: Body) -> bool:
    """Whether `make_call` may take more than a millisecond: many numbers in JSON, or many texts."""
    return len(body) > LARGE_BYTES and bool(header.built)


def is_slow_to_write(call: InferCall, outputs: Mapping[str, np.ndarray]) -> bool:
    """Whether `encode_infer` would take more than a millisecond: much JSON, or many texts."""
    for name, array in outputs.items():  # a loop: every answer is asked
        is_long = array.size > _WRITTEN_SOON and not (call.written and name in call.written)
        if is_long and (array.dtype.kind in "OUS" or not call.binary.get(name, call.binary_default)):
            return True
    return False


def encode_infer(
    call: InferCall, outputs: Mapping[str, np.ndarray], model: str, version: str, parameters: Mapping[str, str]
) -> tuple[bytes, int | None]:
    """The response body, and the length of its JSON part when binary tensors follow it.

    `version` is the number of the variant in text, as in metadata and statistics; `parameters` say which one it is.
    """
    described: list[_DescribedOutput] = []
    chunks: list[Any] = []
    is_binary = True
    for name, array in outputs.items():
        place = None if call.written is None else call.written.get(name)
        if place is not None:
            is_binary = False
            described.append((name, array.dtype, array.shape, place, None))
        elif call.binary.get(name, call.binary_default):
            chunk = bytes_of(array)
            chunks.append(chunk)
            described.append((name, array.dtype, array.shape, len(chunk), None))
        else:
            is_binary = False
            described.append((name, array.dtype, array.shape, None, _json_data(array)))
    is_repeated = is_binary and call.id is None
    text = (_remembered_answer if is_repeated else _answer)(
        model, version, tuple(parameters.items()), call.id, tuple(described)
    )
    if not chunks:
        return text, None
    return b"".join([text, *chunks]), len(text)


_DescribedOutput = tuple[str, "np.dtype[Any]", tuple[int, ...], int | Place | None, Any]
"""An output of an answer: its name, dtype, shape, and the length of its bytes, their place in shared memory, or its
values for JSON.
"""


def _answer(
    model: str,
    version: str,
    parameters: tuple[tuple[str, str], ...],
    call_id: str | None,
    outputs: tuple[_DescribedOutput, ...],
) -> bytes:
    """The JSON part of an answer."""
    described: list[dict[str, Any]] = []
    for name, dtype, shape, size, data in outputs:
        entry: dict[str, Any] = {"name": name, "datatype": word_of(dtype), "shape": shape}
        if size is None:
            entry["data"] = data
        elif isinstance(size, Place):
            entry["parameters"] = _parameters_of(size)
        else:
            entry["parameters"] = {"binary_data_size": size}
        described.append(entry)
    header: dict[str, Any] = {
        "model_name": model,
        "model_version": version,
        "parameters": dict(parameters),
        "outputs": described,
    }
    if call_id is not None:
        header["id"] = call_id
    return orjson.dumps(header, option=orjson.OPT_SERIALIZE_NUMPY)


def _parameters_of(place: Place) -> dict[str, Any]:
    """As a request states them: an offset only where there is one."""
    offset = {"shared_memory_offset": place.offset} if place.offset else {}
    return {"shared_memory_region": place.region, **offset, "shared_memory_byte_size": place.size}


_remembered_answer = lru_cache(_REMEMBERED)(_answer)
"""Of answers whose tensors all follow as bytes: the same each time, unless they carry an id."""


# -- requests ----------------------------------------------------------------------------------------------------------


class DescribedInput(NamedTuple):
    """An input as the JSON describes it.

    `size` None: its values are `data`; `dtype` None: its bytes need more than a view.
    """

    where: str
    name: str
    word: str
    shape: list[int]
    elements: int
    size: int | None
    dtype: "np.dtype[Any] | None"
    data: Any

    @property
    def described(self) -> Described:
        """As admission looks at it. Raises: BadTensor where the type is none."""
        return self.name, dtype_of(self.word), tuple(self.shape)

    @property
    def is_built(self) -> bool:
        """Whether the tensor takes memory of its own: numbers in JSON, and texts."""
        return self.size is None or self.word == "BYTES"

    @property
    def built_bytes(self) -> int:
        """What that takes at most; of texts in binary as much as if all their characters were ASCII."""
        if self.size is not None:
            return min(self.elements, self.size // 4) * _TEXT_BYTES + self.size if self.is_built else 0
        if self.word == "BYTES":
            return _size_of_texts(self.data)
        most = self.data.elements_max if isinstance(self.data, Numbers) else _LISTED_MAX
        return min(self.elements, most) * dtype_of(self.word).itemsize


_TEXT_BYTES = 80
"""What a text takes beside its characters: the object, and its places in a list and an array."""
_LISTED_MAX = 2**20
"""Elements that lists of a request can have that are not `Numbers`."""


@dataclass(frozen=True, slots=True)
class Header:
    """The JSON part of a request, checked.

    Shared by all requests that begin with the same bytes: nobody may change it.
    """

    length: int
    """Of the JSON; tensors in binary follow it."""
    id: str | None
    inputs: list[DescribedInput]
    outputs: list[str] | None
    binary: dict[str, bool]
    binary_default: bool
    parameters: Mapping[str, Any]
    shared: SharedTensors | None
    built: tuple[DescribedInput, ...]
    """Inputs in the body that take memory of their own."""
    built_bytes: int
    """How much."""
    classes: Mapping[str, int]
    """How many classes are wanted in place of an output, by its name."""


def _header(text: Body | ScannedJson) -> Header:
    try:
        header = text.read() if isinstance(text, ScannedJson) else read_json(text)
    except BadJson as error:
        raise _no_json(error) from None
    if not isinstance(header, dict):
        raise BadTensor(reason="the request must be a JSON object")
    parameters = _mapping(header.get("parameters"), "parameters")
    outputs, binary, places, classes = _requested_outputs(header.get("outputs"))
    described = _described_inputs(header.get("inputs"))
    in_body = [each for each, place in described if place is None]
    in_regions = tuple((each, place) for each, place in described if place is not None)
    call_id = header.get("id")
    if call_id is not None and type(call_id) not in (str, int):
        raise BadTensor(reason="id: must be a string")
    built = tuple(each for each in in_body if each.is_built)
    return Header(
        text.length if isinstance(text, ScannedJson) else len(text),
        str(call_id) if call_id is not None and call_id != "" else None,
        in_body,
        outputs,
        binary,
        parameters.get("binary_data_output") is True,
        {name: value for name, value in parameters.items() if name != "binary_data_output"},
        SharedTensors(in_regions, places) if in_regions or places else None,
        built,
        sum(each.built_bytes for each in built),
        classes,
    )


_remembered_header = lru_cache(_REMEMBERED)(_header)


def _whole_header(body: Body) -> Header:
    """Of a request that is all JSON: the same each time where it says that its tensors are in shared memory."""
    text = bytes(body) if len(body) <= _REMEMBERED_BYTES_MAX else b""
    return _remembered_header(text) if b'"shared_memory_region"' in text else _header(body)


def _described_inputs(listed: Any) -> list[tuple[DescribedInput, Place | None]]:
    if not isinstance(listed, list) or not listed:
        raise BadTensor(reason="inputs: must be a list of at least one tensor")
    if len(listed) > _INPUTS_MAX:
        raise BadTensor(reason=f"inputs: at most {_INPUTS_MAX} may be sent")
    inputs = [_described(described, f"inputs[{index}]") for index, described in enumerate(listed)]
    names: set[str] = set()
    for each, _ in inputs:
        if each.name in names:
            raise BadTensor(reason=f"{each.where}: {each.name!r} appears twice")
        names.add(each.name)
    return inputs


def _described(described: Any, where: str) -> tuple[DescribedInput, Place | None]:
    if not isinstance(described, dict):
        raise BadTensor(reason=f"{where}: must be an object")
    name, word = described.get("name"), described.get("datatype")
    if not isinstance(name, str) or not isinstance(word, str) or len(name) > _NAME_MAX or len(word) > _NAME_MAX:
        raise BadTensor(reason=f"{where}: name and datatype must be strings of at most {_NAME_MAX} characters")
    shape, count = _shape(described.get("shape"), where)
    parameters = _mapping(described.get("parameters"), f"{where}.parameters")
    size, place = parameters.get("binary_data_size"), _place(parameters, where)
    if place is not None:
        if size is not None:
            raise BadTensor(reason=f"{where}: binary_data_size or shared_memory_region, not both")
        size = place.size
    if size is None:
        return DescribedInput(where, name, word, shape, count, None, None, described.get("data")), None
    if type(size) is not int or size < 0:
        raise BadTensor(reason=f"{where}: binary_data_size does not fit: it must be a whole number ≥ 0")
    if word == "BYTES":
        return DescribedInput(where, name, word, shape, count, size, None, None), place
    dtype = dtype_of(word)
    if size != count * dtype.itemsize:
        raise BadTensor(
            reason=f"{where}: {size} bytes for shape {shape} of {word}, which takes {count * dtype.itemsize}"
        )
    return DescribedInput(where, name, word, shape, count, size, None if word == "BOOL" else dtype, None), place


def _place(parameters: Mapping[str, Any], where: str) -> Place | None:
    """Where a tensor is in shared memory, by its parameters; None: it is not."""
    region = parameters.get("shared_memory_region")
    if region is None:
        return None
    if not isinstance(region, str):
        raise BadTensor(reason=f"{where}: shared_memory_region must be a string")
    numbers = {"shared_memory_offset": parameters.get("shared_memory_offset", 0)}
    numbers["shared_memory_byte_size"] = parameters.get("shared_memory_byte_size")
    for word, number in numbers.items():
        if type(number) is not int or not 0 <= number <= _ELEMENTS_MAX:
            raise BadTensor(reason=f"{where}: {word} must be a whole number ≥ 0")
    return Place(region, *numbers.values())


def _inputs(described: list[DescribedInput], body: Body, offset: int) -> dict[str, np.ndarray]:
    inputs: dict[str, np.ndarray] = {}
    for where, name, word, shape, count, size, dtype, data in described:
        if size is None:
            inputs[name] = _from_json(data, word, shape, count, where)
            continue
        if size > len(body) - offset:
            raise BadTensor(reason=f"{where}: binary_data_size does not fit the {len(body) - offset} bytes left")
        if dtype is not None:
            array = np.frombuffer(body, dtype, count, offset).reshape(shape)
            inputs[name] = array if array.flags.aligned else array.copy()
        elif word == "BYTES":
            inputs[name] = _unpack_bytes(memoryview(body)[offset : offset + size], shape, count, where)
        else:  # any byte may come for a BOOL, and a bool that is neither 0 nor 1 is both true and false
            inputs[name] = np.not_equal(np.frombuffer(body, np.uint8, count, offset), 0).reshape(shape)
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
    if (count or prod(filter(None, shape))) > _ELEMENTS_MAX:  # one zero does not make the other sizes small
        raise BadTensor(reason=f"{where}: shape {shape} is too large")
    return shape, count


def _from_json(data: Any, word: str, shape: list[int], count: int, where: str) -> np.ndarray:
    if isinstance(data, Numbers):
        return _from_numbers(data, word, shape, count, where)
    if not isinstance(data, list):
        raise BadTensor(reason=f"{where}: needs data (a list) or parameters.binary_data_size")
    dtype = dtype_of(word)
    try:
        flat, _ = flattened(data)
    except BadJson as error:
        raise BadTensor(reason=f"{where}: {error}") from None
    if len(flat) != count:
        raise BadTensor(reason=f"{where}: {len(flat)} elements for shape {shape}, which takes {count}")
    return _checked(flat, dtype, word, where).reshape(shape)


def _from_numbers(data: Numbers, word: str, shape: list[int], count: int, where: str) -> np.ndarray:
    """Of a long list, which is still text."""
    dtype = dtype_of(word)
    try:
        elements = prod(data.shape())
        if elements != count:
            raise BadTensor(reason=f"{where}: {elements} elements for shape {shape}, which takes {count}")
        return data.array(dtype, lambda step: _checked(step, dtype, word, where)).reshape(shape)
    except BadJson as error:
        raise BadTensor(reason=f"{where}: {error}") from None


def _checked(flat: list[Any], dtype: "np.dtype[Any]", word: str, where: str) -> np.ndarray:
    types, wanted = _JSON_TYPES[dtype.kind]
    if not types.issuperset(map(type, flat)):
        raise BadTensor(reason=f"{where}: the data of a {word} tensor must be {wanted}")
    try:
        with np.errstate(over="raise"):
            return np.array(flat, dtype)
    except (OverflowError, FloatingPointError):
        raise BadTensor(reason=f"{where}: a value does not fit {word}") from None


def _unpack_bytes(data: memoryview, shape: list[int], count: int, where: str) -> np.ndarray:
    """Each element: a little-endian 32-bit length and that many bytes."""
    values: list[Any] = []
    offset = 0
    while offset < len(data) and len(values) <= count:
        if offset + 4 > len(data):
            raise BadTensor(reason=f"{where}: the BYTES data ends inside a length")
        (length,) = struct.unpack_from("<I", data, offset)
        offset += 4
        if offset + length > len(data):
            raise BadTensor(reason=f"{where}: the BYTES data ends inside an element")
        values.append(_text(data[offset : offset + length], where))
        offset += length
    if len(values) != count:
        found = f"more than {count}" if len(values) > count else len(values)
        raise BadTensor(reason=f"{where}: {found} BYTES elements for shape {shape}, which takes {count}")
    array = np.empty(count, dtype=np.object_)
    array[:] = values
    return array.reshape(shape)


def _size_of_texts(data: Any) -> int:
    """What texts in lists take, lists and all."""
    size, level = 0, data if isinstance(data, list) else []
    while level:
        size += sum(map(getsizeof, level)) + 16 * len(level)
        level = [part for each in level if type(each) is list for part in each]
    return size


def _text(value: memoryview, where: str) -> str:
    """Decode an element: ONNX strings are UTF-8, and ONNX Runtime neither takes nor returns others."""
    try:
        return str(value, "utf-8")
    except UnicodeDecodeError as error:
        raise BadTensor(reason=f"{where}: a BYTES element is no UTF-8: {error.reason}") from None


def _requested_outputs(listed: Any) -> tuple[list[str] | None, dict[str, bool], dict[str, Place], dict[str, int]]:
    """The names, which of them are wanted as bytes or not, which in shared memory, and of which so many classes."""
    if listed is None or listed == []:
        return None, {}, {}, {}
    if not isinstance(listed, list):
        raise BadTensor(reason="outputs: must be a list")
    if len(listed) > _OUTPUTS_MAX:
        raise BadTensor(reason=f"outputs: at most {_OUTPUTS_MAX} may be named; named none, all are answered")
    names: list[str] = []
    binary: dict[str, bool] = {}
    places: dict[str, Place] = {}
    classes: dict[str, int] = {}
    for index, described in enumerate(listed):
        name = described.get("name") if isinstance(described, dict) else None
        if not isinstance(name, str) or len(name) > _NAME_MAX:
            raise BadTensor(reason=f"outputs[{index}]: must be an object with a name of at most {_NAME_MAX} characters")
        names.append(name)
        parameters = _mapping(described.get("parameters"), f"outputs[{index}].parameters")
        wanted, place = parameters.get("binary_data"), _place(parameters, f"outputs[{index}]")
        if wanted is not None:
            binary[name] = wanted is True
        if place is not None:
            places[name] = place
        count = parameters.get("classification", 0)
        if type(count) is not int or not 0 <= count <= _CLASSES_MAX:
            raise BadTensor(reason=f"outputs[{index}]: classification must be a whole number from 1 to {_CLASSES_MAX}")
        if count:
            classes[name] = count
    if both := places.keys() & classes.keys():
        raise BadTensor(reason=f"output {min(both)!r}: classification or shared_memory_region, not both")
    _refuse_overlaps(places)
    return names, binary, places, classes


def _refuse_overlaps(places: Mapping[str, Place]) -> None:
    """Two outputs in one place are one output."""
    for one, other in pairwise(sorted(places.values())):
        if one.region == other.region and one.offset + one.size > other.offset:
            raise BadTensor(reason=f"outputs overlap in the shared memory region {one.region!r}")


def _mapping(value: Any, where: str) -> Mapping[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise BadTensor(reason=f"{where}: must be an object")
    return value


# -- responses ---------------------------------------------------------------------------------------------------------


def bytes_of(array: np.ndarray) -> Any:
    """As the protocol has a tensor in binary."""
    if array.dtype.kind not in "OUS":
        contiguous = np.ascontiguousarray(array)
        return contiguous.data.cast("B") if contiguous.size else b""
    parts: list[bytes] = []
    for value in array.ravel():
        raw = value if isinstance(value, bytes) else str(value).encode()
        parts += (struct.pack("<I", len(raw)), raw)
    return b"".join(parts)


def _json_data(array: np.ndarray) -> Any:
    """Flat data.

    JSON has no NaN or infinity: they become null, which clients must expect of a model that yields them.
    """
    if array.dtype.kind in "OUS":
        texts = [value.decode(errors="replace") if isinstance(value, bytes) else str(value) for value in array.ravel()]
        return fragment(texts) if len(texts) > _WRITTEN_SOON else texts
    flat = np.ascontiguousarray(array).ravel()
    return fragment(flat) if len(flat) > _WRITTEN_SOON else flat
