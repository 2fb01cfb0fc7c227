"""What service and guard say to one another: a small binary header over a socket, tensors in shared memory beside it.

Nothing is pickled, and the reader of a header believes nothing of it: kinds, shapes, sizes and places are checked
against the mapping, so that neither side can make the other read outside of it. A header that is met again (the same
tensors in the same shapes) is not read again.

A header: code, number, fields (texts), tensors; integers are little-endian.
"""

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

RUN, RUN_ROWS, LOAD, UNLOAD, TOKENISE, SLEEP, WAKE, TAKE_REQUEST_AREA, TAKE_ANSWER_AREA = range(9)
"""Codes of requests. The last two bring a new shared memory in place of the one before."""
DONE, FAILED, NEEDS_AREA = range(100, 103)
"""Codes of answers; `number` of the last is how many bytes the tensors take."""
HEADER_BYTES_MAX = 60_000
DIMENSIONS_MAX = 32
ALIGNMENT_BYTES = 64
_REMEMBERED = 256
"""Headers; together at most a few MB, for the longest are not remembered."""
_REMEMBERED_BYTES_MAX = 4096
_HEAD = struct.Struct("<BQHH")
_TENSOR = struct.Struct("<HBBQQ")
_LENGTH = struct.Struct("<I")
_IS_BYTES = 1 << 31
_TEXT = 255
"""The kind of a tensor of texts; all others are numbers, as many bytes each as the type says."""
_KINDS = tuple(map(np.dtype, "? u1 u2 u4 u8 i1 i2 i4 i8 f2 f4 f8".split()))
_CODES = {kind: code for code, kind in enumerate(_KINDS)}


class BadMessage(ValueError):
    """What came is no message, or does not fit the shared memory."""


@dataclass(frozen=True, slots=True)
class Span:
    """Where a tensor lies; `dtype` None: texts, each a length and its bytes."""

    name: str
    dtype: np.dtype[Any] | None
    shape: tuple[int, ...]
    offset: int
    size: int


@dataclass(frozen=True, slots=True)
class Message:
    """A header as read; `end`: how many bytes of the shared memory its tensors take."""

    code: int
    number: int
    fields: tuple[str, ...]
    spans: tuple[Span, ...]
    end: int


Packed = tuple[bytes, Message, list[Any]]
"""A header, what it says, and for each of its tensors the array, or the bytes of its texts."""


class Layouts:
    """Headers that were written or read before. Belongs to one direction of one channel."""

    def __init__(self) -> None:
        self._written: dict[Any, tuple[bytes, Message]] = {}
        self._read: dict[bytes, Message] = {}

    def forget(self) -> None:
        """The shared memory is another one: sizes that were checked against the old one hold no more."""
        self._read.clear()

    def pack(self, code: int, number: int, fields: tuple[str, ...], tensors: Mapping[str, np.ndarray]) -> Packed:
        """Lay tensors out one after the other. Raises: BadMessage for a type or a size that cannot be sent."""
        key = (code, number, fields, tuple((name, array.dtype, array.shape) for name, array in tensors.items()))
        known = self._written.get(key)
        if known is not None:
            return *known, list(tensors.values())
        parts = [_texts(array) if array.dtype.kind in "OUS" else array for array in tensors.values()]
        message = _laid_out(code, number, fields, tensors, parts)
        header = _header(message)
        if len(header) > HEADER_BYTES_MAX:
            raise BadMessage("too many tensors, or too long names")
        if not any(span.dtype is None for span in message.spans):
            _remember(self._written, key, (header, message), len(header))
        return header, message, parts

    def read(self, header: bytes, area_bytes: int) -> Message:
        """What a header says. Raises: BadMessage."""
        known = self._read.get(header)
        if known is None:
            known = _parsed(header, area_bytes)
            _remember(self._read, header, known, len(header))
        return known


def write(message: Message, parts: Sequence[Any], area: Any) -> None:
    """Put the tensors of a packed message to their places."""
    for span, part in zip(message.spans, parts, strict=True):
        if span.dtype is None:
            area[span.offset : span.offset + span.size] = part
        elif span.size:
            np.ndarray(span.shape, span.dtype, area, span.offset)[...] = part


def views(message: Message, area: Any) -> dict[str, np.ndarray]:
    """The tensors where they lie; texts are new objects. Raises: BadMessage."""
    return {span.name: _view(span, area) for span in message.spans}


def copies(message: Message, area: Any) -> dict[str, np.ndarray]:
    """The tensors as arrays of their own. What the other side writes meanwhile changes numbers, never sizes.

    Raises: BadMessage.
    """
    return {span.name: _copy(span, area) for span in message.spans}


# -- inside ------------------------------------------------------------------------------------------------------------


def _view(span: Span, area: Any) -> np.ndarray:
    if span.dtype is None:
        return _from_texts(bytes(area[span.offset : span.offset + span.size]), span.shape)
    return np.ndarray(span.shape, span.dtype, area, span.offset) if span.size else np.zeros(span.shape, span.dtype)


def _copy(span: Span, area: Any) -> np.ndarray:
    view = _view(span, area)
    if span.dtype is None or not span.size:
        return view
    if span.dtype.kind == "b":  # a byte that is neither 0 nor 1 would be both true and false
        return np.not_equal(view.view(np.uint8), 0)
    return view.copy()


def _laid_out(
    code: int, number: int, fields: tuple[str, ...], tensors: Mapping[str, np.ndarray], parts: Sequence[Any]
) -> Message:
    spans = []
    end = 0
    for (name, array), part in zip(tensors.items(), parts, strict=True):
        dtype = None if isinstance(part, bytes) else array.dtype.newbyteorder("=")
        if dtype is not None and dtype not in _CODES:
            raise BadMessage(f"{name} is of the type {array.dtype}, which cannot be sent")
        size = len(part) if dtype is None else array.nbytes
        spans.append(Span(name, dtype, array.shape, end, size))
        end += -(-size // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
    return Message(code, number, fields, tuple(spans), end)


def _header(message: Message) -> bytes:
    pieces = [_HEAD.pack(message.code, message.number, len(message.fields), len(message.spans))]
    for text in message.fields:
        raw = text.encode()
        pieces += [_LENGTH.pack(len(raw)), raw]
    for span in message.spans:
        name = span.name.encode()
        if len(name) > HEADER_BYTES_MAX:
            raise BadMessage("a name is too long")
        kind = _TEXT if span.dtype is None else _CODES[span.dtype]
        pieces += [_TENSOR.pack(len(name), kind, len(span.shape), span.offset, span.size), name]
        pieces.append(struct.pack(f"<{len(span.shape)}Q", *span.shape))
    return b"".join(pieces)


def _parsed(header: bytes, area_bytes: int) -> Message:
    try:
        code, number, fields_count, spans_count = _HEAD.unpack_from(header)
        at = _HEAD.size
        fields = []
        for _ in range(fields_count):
            (length,) = _LENGTH.unpack_from(header, at)
            fields.append(_text(header, at + _LENGTH.size, length))
            at += _LENGTH.size + length
        spans = []
        for _ in range(spans_count):
            length, kind, dimensions, offset, size = _TENSOR.unpack_from(header, at)
            name = _text(header, at + _TENSOR.size, length)
            at += _TENSOR.size + length
            if dimensions > DIMENSIONS_MAX:
                raise BadMessage("too many dimensions")
            shape = struct.unpack_from(f"<{dimensions}Q", header, at)
            at += 8 * dimensions
            spans.append(_checked(name, kind, shape, offset, size, area_bytes))
    except (struct.error, UnicodeDecodeError) as error:
        raise BadMessage(str(error)) from None
    if at != len(header) or len({span.name for span in spans}) != len(spans):
        raise BadMessage("the header does not end where it should, or names a tensor twice")
    return Message(code, number, tuple(fields), tuple(spans), max((s.offset + s.size for s in spans), default=0))


def _checked(name: str, kind: int, shape: tuple[int, ...], offset: int, size: int, area_bytes: int) -> Span:
    if offset % ALIGNMENT_BYTES or offset > area_bytes or size > area_bytes - offset:
        raise BadMessage(f"{name} lies outside of the shared memory")
    if kind == _TEXT:
        if prod(shape) > size // _LENGTH.size or max(shape, default=0) > area_bytes:
            raise BadMessage(f"{name} has more texts than bytes")
        return Span(name, None, shape, offset, size)
    if kind >= len(_KINDS):
        raise BadMessage(f"{name} is of no known kind")
    dtype = _KINDS[kind]
    # One zero does not make the other sizes small.
    if prod(shape) * dtype.itemsize != size or prod(filter(None, shape)) > 1 << 48:
        raise BadMessage(f"{name} has another size than its shape says")
    return Span(name, dtype, shape, offset, size)


def _text(header: bytes, at: int, length: int) -> str:
    if at + length > len(header):
        raise BadMessage("the header ends inside a text")
    return header[at : at + length].decode()


def _texts(array: np.ndarray) -> bytes:
    """All lengths, then all bytes; the highest bit of a length marks what is no text."""
    lengths, raws = [], []
    for value in array.ravel().tolist():
        raw = value if isinstance(value, bytes) else str(value).encode("utf-8", "surrogatepass")
        lengths.append(len(raw) | _IS_BYTES if isinstance(value, bytes) else len(raw))
        raws.append(raw)
    return b"".join([np.array(lengths, "<u4").tobytes(), *raws])


def _from_texts(data: bytes, shape: tuple[int, ...]) -> np.ndarray:
    count = prod(shape)
    lengths = np.frombuffer(data, "<u4", count).tolist()
    values = np.empty(count, np.object_)
    at = _LENGTH.size * count
    for index, length in enumerate(lengths):
        end = at + (length & ~_IS_BYTES)
        if end > len(data):
            raise BadMessage("the texts end inside a text")
        raw = data[at:end]
        values[index] = raw if length & _IS_BYTES else _decoded(raw)
        at = end
    return values.reshape(shape)


def _decoded(raw: bytes) -> str:
    try:
        return raw.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return raw.decode("utf-8", "replace")


def _remember(table: dict[Any, Any], key: Any, value: Any, size: int) -> None:
    if size <= _REMEMBERED_BYTES_MAX:
        if len(table) >= _REMEMBERED:
            table.clear()
        table[key] = value
