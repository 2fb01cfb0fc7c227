"""JSON with many numbers, read and written in steps: no step holds the interpreter for more than a few milliseconds,
and only the numbers of one step are Python objects at a time.

A reader in C takes tens of milliseconds for each megabyte of numbers, in one call during which no other thread of the
process runs, and makes 16 times their size of objects. Here long arrays of numbers are cut out of the text first, and
are read when their type is known.
"""

import re
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from math import prod
from typing import Any

import numpy as np
import orjson

from appliance.tasks import strict_json

LARGE_BYTES = 64 * 1024
"""A text above this is worth reading in steps."""
_LONG_BYTES = 4096
"""An array of numbers above this is cut out."""
_PLAIN_BYTES_MAX = 2**20
"""Of what is neither a string nor a long array."""
_STRINGS_MAX = 200_000
_STEP_BYTES = 256 * 1024
_SCAN_BYTES = 2**20
_DEPTH_MAX = 32
_LISTED = 65_536
"""Elements made Python objects at once."""
_WRITTEN = 16_384
"""Elements written at once."""
_WIDE_BYTES = 4
"""Of each character of a string that has one beyond the first plane."""
_STRING_OBJECT_BYTES = 200
"""Memory of a string beside its characters, with the object that it may be a key of."""
_PLAIN_FACTOR = 24
"""Bytes of an empty object, or a number, for each of its bytes."""
_ESCAPED = b"\\u"
_DELIMITER, _QUOTE, _BRACKET = re.compile(rb"[{}:]"), re.compile(rb'"'), re.compile(rb"\[")
_NO_STRUCTURE = bytes(set(range(256)) - set(b"[],"))
_BRACKETS_TO_SPACES = bytes.maketrans(b"[]", b"  ")

Text = bytes | bytearray | memoryview


class BadJson(ValueError):
    """The text is no JSON, or has more parts than are read."""


@dataclass(frozen=True, slots=True)
class Numbers:
    """A long array of numbers (or of nothing but true, false and null), possibly nested, that is still text."""

    text: Text
    start: int
    end: int

    @property
    def elements_max(self) -> int:
        """More it cannot have."""
        return (self.end - self.start) // 2

    def shape(self) -> tuple[int, ...]:
        """How it is nested; nothing but brackets and commas is looked at. Raises: BadJson when it is irregular."""
        pattern = bytearray()
        for at in range(self.start, self.end, _SCAN_BYTES):
            pattern += bytes(self.text[at : min(at + _SCAN_BYTES, self.end)]).translate(None, _NO_STRUCTURE)
        depth = _leading_brackets(pattern)
        shape: list[int] = []
        inner = 0  # length of what each list of the level holds
        for level in range(1, depth + 1):
            begin = depth - level
            end = len(pattern) if level == depth else _find(pattern, b"]" * level) + level
            count = (end - begin - 1) // (inner + 1)
            is_whole = end - begin == 1 + count * (inner + 1) and pattern[end - 1] == ord("]")
            if not is_whole or not _repeats(pattern, begin + 1, end - 1, inner):
                raise BadJson("nested lists must be of equal depth and length")
            shape.insert(0, count)
            inner = end - begin
        return tuple(shape)

    def steps(self) -> Iterator[list[Any]]:
        """The elements in row-major order, some ten thousand at a time. Raises: BadJson."""
        at = self.start
        while at < self.end:
            stop = self.end
            if at + _STEP_BYTES < self.end:
                stop = _last(self.text, b",", at, at + _STEP_BYTES)
                if stop < 0:
                    raise BadJson("cannot be read: a number has no end")
            yield _loads(b"[" + bytes(self.text[at:stop]).translate(_BRACKETS_TO_SPACES) + b"]")
            at = stop + 1

    def array(self, dtype: "np.dtype[Any]", read: Callable[[list[Any]], np.ndarray]) -> np.ndarray:
        """The elements in their shape, each step of them read by `read`. Raises: BadJson, and what `read` raises."""
        shape = self.shape()
        flat, at = np.empty(prod(shape), dtype), 0
        for step in self.steps():
            end = at + len(step)
            if end <= len(flat):
                flat[at:end] = read(step)
            at = end
        if at != len(flat):
            raise BadJson("cannot be read: an element is missing in a list of numbers")
        return flat.reshape(shape)


def flattened(data: list[Any]) -> tuple[list[Any], tuple[int, ...]]:
    """The elements of nested lists in row-major order, and their shape. Numpy may not guess here: it would turn one
    long text among many elements into gigabytes. Raises: BadJson when they are irregular.
    """
    shape = [len(data)]
    while data and type(data[0]) is list:
        if set(map(type, data)) != {list} or len(set(map(len, data))) != 1:
            raise BadJson("nested lists must be of equal depth and length")
        shape.append(len(data[0]))
        data = list(chain.from_iterable(data))
    return data, tuple(shape)


def read_json(text: Text) -> Any:
    """As `orjson.loads`, but long arrays of numbers in a text above `LARGE_BYTES` are `Numbers`. Raises: BadJson."""
    if len(text) <= LARGE_BYTES:
        return _loads(text)
    return scan_json(text).read()


def scan_json(text: Text) -> "ScannedJson":
    """Look through a text, and cut out long arrays of numbers; nothing of it is made. Raises: BadJson, also where it
    has more names or objects than a caller's text may have.
    """
    try:
        strict_json.check(text, has_tensors=True)
    except strict_json.TooMuch as error:
        raise BadJson(str(error)) from None
    return ScannedJson(text)


def write_json(value: Any) -> bytes:
    """As `orjson.dumps`, but long lists and arrays are written in steps; what is no number in JSON becomes null."""
    return orjson.dumps(_with_fragments(value), option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS)


def written(text: bytes) -> orjson.Fragment:
    """A value whose JSON is known."""
    return orjson.Fragment(text)


def listed(array: np.ndarray) -> list[Any]:
    """As `tolist` of an array of one axis, in steps."""
    values: list[Any] = []
    for at in range(0, array.size, _LISTED):
        values += array[at : at + _LISTED].tolist()
    return values


def _with_fragments(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _with_fragments(each) for key, each in value.items()}
    if isinstance(value, list) and value and all(isinstance(each, list) for each in value):
        return [fragment(each) for each in value] if sum(map(len, value)) > _WRITTEN else value  # vectors
    if isinstance(value, list | np.ndarray) and len(value) > _WRITTEN:
        return fragment(value)
    return value


def fragment(values: "list[Any] | np.ndarray") -> orjson.Fragment:
    """A list, or an array of one axis, as JSON that is written already."""
    steps = (values[at : at + _WRITTEN] for at in range(0, len(values), _WRITTEN))
    written = [orjson.dumps(step, option=orjson.OPT_SERIALIZE_NUMPY)[1:-1] for step in steps]
    return orjson.Fragment(b"[" + b",".join(written) + b"]")


class ScannedJson:
    """A text gone over from string to string, of which what is long between them is cut out."""

    def __init__(self, text: Text) -> None:
        self._text = text
        self._kept: list[Text] = []
        self._kept_to = 0
        self._numbers: list[Numbers] = []
        self._mark = secrets.token_hex(8)
        self._plain_bytes = 0
        self._strings = 0
        self._string_bytes = 0
        """As objects, characters only."""
        self._scan()

    @property
    def length(self) -> int:
        """Of the text, in bytes."""
        return len(self._text)

    @property
    def tree_bytes(self) -> int:
        """Memory that `read` needs at most, its result and intermediate objects together."""
        kept = sum(map(len, self._kept))
        return kept + self._string_bytes + self._strings * _STRING_OBJECT_BYTES + self._plain_bytes * _PLAIN_FACTOR

    def read(self) -> Any:
        """As `read_json`. Raises: BadJson."""
        return self._with_numbers(_loads(b"".join(self._kept)))

    def _scan(self) -> None:
        at = 0
        while at < len(self._text):
            quote = self._next(_QUOTE, at, len(self._text))
            self._cut(at, quote)
            at = self._string_end(quote)
        self._kept.append(memoryview(self._text)[self._kept_to :])

    def _cut(self, at: int, end: int) -> None:
        """Cut the long arrays out of a stretch without strings."""
        while end - at > _LONG_BYTES:
            start = self._next(_BRACKET, at, end)
            if start == end:
                break
            run_end = self._next(_DELIMITER, start, end)  # where a run of values ends
            stop = _last(self._text, b"]", start, run_end) + 1
            if stop - start > _LONG_BYTES:
                mark = b'{"%s":%d}' % (self._mark.encode(), len(self._numbers))
                self._kept += (memoryview(self._text)[self._kept_to : start], mark)
                self._numbers.append(Numbers(self._text, start, stop))
                self._kept_to = stop
                self._plain(start - at)
                at = stop
            else:
                self._plain(run_end - at + 1)
                at = run_end + 1
        self._plain(max(0, end - at))

    def _plain(self, count: int) -> None:
        self._plain_bytes += count
        if self._plain_bytes > _PLAIN_BYTES_MAX:
            raise BadJson(
                f"has more than {_PLAIN_BYTES_MAX} bytes beside strings and lists of numbers; "
                "send tensors as binary data"
            )

    def _next(self, pattern: re.Pattern[bytes], at: int, end: int) -> int:
        """Where the pattern, of one byte, is next, looked for in steps; `end` where it is not."""
        while at < end:
            found = pattern.search(self._text, at, min(at + _SCAN_BYTES, end))
            if found is not None:
                return found.start()
            at += _SCAN_BYTES
        return end

    def _string_end(self, quote: int) -> int:
        """Behind the string that begins at `quote`."""
        at = quote + 1
        is_wide = False
        while at < len(self._text):
            self._strings += 1
            if self._strings > _STRINGS_MAX:
                raise BadJson(f"has more than {_STRINGS_MAX} strings; send tensors as binary data")
            end = self._next(_QUOTE, at, len(self._text))
            if end == len(self._text):
                return end
            before = bytes(self._text[at:end])
            is_wide = is_wide or not before.isascii() or _ESCAPED in before
            at = end + 1
            if (len(before) - len(before.rstrip(b"\\"))) % 2 == 0:
                self._string_bytes += (at - quote) * (_WIDE_BYTES if is_wide else 1)
                return at
        return len(self._text)

    def _with_numbers(self, read: Any) -> Any:
        """What was read, with the arrays where their marks stand."""
        root = [read]
        open_: list[list[Any] | dict[str, Any]] = [root]
        while open_:
            parent = open_.pop()
            pairs: Any = parent.items() if isinstance(parent, dict) else enumerate(parent)
            for place, value in list(pairs):
                if isinstance(value, dict) and self._mark in value:
                    parent[place] = self._numbers[value[self._mark]]
                elif isinstance(value, dict | list):
                    open_.append(value)
        return root[0]


def _loads(text: Text) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise BadJson(f"cannot be read: {error}") from None


def _repeats(pattern: bytearray, at: int, end: int, inner: int) -> bool:
    """Whether the stretch is its first `inner` bytes time and again, with commas between; compared in steps."""
    if at + inner < end and pattern[at + inner] != ord(","):
        return False
    ahead = inner + 1
    return all(
        pattern[one : min(one + _SCAN_BYTES, end - ahead)] == pattern[one + ahead : min(one + _SCAN_BYTES + ahead, end)]
        for one in range(at, end - ahead, _SCAN_BYTES)
    )


def _leading_brackets(pattern: bytearray) -> int:
    depth = next((at for at, byte in enumerate(pattern[: _DEPTH_MAX + 1]) if byte != ord("[")), _DEPTH_MAX + 1)
    if depth > _DEPTH_MAX:
        raise BadJson(f"lists are nested deeper than {_DEPTH_MAX}")
    return depth


def _last(text: Text, byte: bytes, at: int, end: int) -> int:
    """Where it is last in the stretch, looked for in steps; -1 where it is not."""
    while at < end:
        start = max(at, end - _SCAN_BYTES)
        found = bytes(text[start:end]).rfind(byte)
        if found >= 0:
            return start + found
        end = start
    return -1


def _find(pattern: bytearray, needle: bytes) -> int:
    """Where it first stands. Raises: BadJson when it does not."""
    for at in range(0, len(pattern), _SCAN_BYTES):
        found = pattern.find(needle, at, at + _SCAN_BYTES + len(needle))
        if found >= 0:
            return found
    raise BadJson("nested lists must be of equal depth and length")
