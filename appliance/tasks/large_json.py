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
from math import prod
from typing import Any

import numpy as np
import orjson

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

    def shape(self) -> tuple[int, ...]:
        """How it is nested; nothing but brackets and commas is looked at. Raises: BadJson when it is irregular."""
        steps = range(self.start, self.end, _SCAN_BYTES)
        pattern = b"".join(
            bytes(self.text[at : min(at + _SCAN_BYTES, self.end)]).translate(None, _NO_STRUCTURE) for at in steps
        )
        depth = _leading_brackets(pattern)
        shape: list[int] = []
        group = b""
        for level in range(1, depth + 1):
            end = len(pattern) if level == depth else _find(pattern, b"]" * level) + level
            whole = pattern[depth - level : end]
            count = (len(whole) - 1) // (len(group) + 1)
            if whole != b"[" + (group + b",") * (count - 1) + group + b"]":
                raise BadJson("nested lists must be of equal depth and length")
            shape.insert(0, count)
            group = whole
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

    def array(self, read: Callable[[list[Any]], np.ndarray]) -> np.ndarray:
        """The elements in their shape, each step of them read by `read`. Raises: BadJson, and what `read` raises."""
        shape = self.shape()
        flat = np.concatenate([read(step) for step in self.steps()])
        if len(flat) != prod(shape):
            raise BadJson("cannot be read: an element is missing in a list of numbers")
        return flat.reshape(shape)


def read_json(text: Text) -> Any:
    """As `orjson.loads`, but long arrays of numbers in a text above `LARGE_BYTES` are `Numbers`. Raises: BadJson."""
    if len(text) <= LARGE_BYTES:
        return _loads(text)
    return _Cutter(text).read()


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


class _Cutter:
    """Goes over a text from string to string, and cuts out what is long between them."""

    def __init__(self, text: Text) -> None:
        self._text = text
        self._kept: list[Text] = []
        self._kept_to = 0
        self._numbers: list[Numbers] = []
        self._mark = secrets.token_hex(8)
        self._plain_bytes = 0
        self._strings = 0

    def read(self) -> Any:
        at = 0
        while at < len(self._text):
            quote = self._next(_QUOTE, at, len(self._text))
            self._cut(at, quote)
            at = self._string_end(quote)
        self._kept.append(self._text[self._kept_to :])
        return self._with_numbers(_loads(b"".join(self._kept)))

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
                self._kept += (self._text[self._kept_to : start], mark)
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
        while at < len(self._text):
            self._strings += 1
            if self._strings > _STRINGS_MAX:
                raise BadJson(f"has more than {_STRINGS_MAX} strings; send tensors as binary data")
            end = self._next(_QUOTE, at, len(self._text))
            if end == len(self._text):
                return end
            before = bytes(self._text[at:end])
            at = end + 1
            if (len(before) - len(before.rstrip(b"\\"))) % 2 == 0:
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


def _leading_brackets(pattern: bytes) -> int:
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


def _find(pattern: bytes, needle: bytes) -> int:
    """Where it first stands. Raises: BadJson when it does not."""
    for at in range(0, len(pattern), _SCAN_BYTES):
        found = pattern.find(needle, at, at + _SCAN_BYTES + len(needle))
        if found >= 0:
            return found
    raise BadJson("nested lists must be of equal depth and length")
