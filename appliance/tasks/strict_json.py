"""JSON from outside, read strictly: RFC 8259 and nothing beside it, and no more than the bounds of this module.

What the standard library lets through and other programs cannot hold is refused where it enters: half a surrogate pair,
bytes that are no UTF-8, NaN and numbers beyond a double, and lists in lists without end, which overflow the stack of
whoever walks or prints them. A text from a caller is counted before anything is made of it.
"""

import json
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import orjson

Text = bytes | bytearray | memoryview

DEPTH_MAX = 64
VALUES_MAX = 100_000
"""Of a text from a caller that does not carry tensors. Each takes a hundred bytes, and may be two in the text."""
NAMES_MAX = 25_000
"""Names of a text from a caller, and its objects. ImageNet-21k has 21,843 classes, which metadata may name by index."""
VALUE_BYTES = 100
_STEP_BYTES = 256 * 1024
"""Bytes that are counted at once, in about a millisecond."""
_QUOTE = ord('"')
_LEVELS = np.zeros(256, np.int8)
"""How each byte outside of strings changes the depth."""
_LEVELS[list(b"[{")] = 1
_LEVELS[list(b"]}")] = -1


class TooMuch(json.JSONDecodeError):
    """The text may be JSON, but has more than is read."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason, "", 0)

    def __str__(self) -> str:
        return self.msg


def read(text: Text | str, names_max: int | None = None) -> Any:
    """Return the value of a JSON text from a caller.

    Raises: json.JSONDecodeError; TooMuch, also where an object has more than `names_max` names.
    """
    raw = _raw(text)
    check(raw)
    return read_checked(raw, names_max)


def read_checked(text: Text | str, names_max: int | None = None) -> Any:
    """Return the value of a JSON text that `check` has passed, or that is read in a process of its own.

    Raises: json.JSONDecodeError; TooMuch where it is too deep, or an object has too many names.
    """
    raw = _raw(text)
    _check_depth(raw)
    value = orjson.loads(raw)
    if names_max is not None and raw.count(b":") > names_max and _most_names(value) > names_max:
        raise TooMuch(f"an object has more than {names_max} names")
    return value


def check(text: Text, *, has_tensors: bool = False) -> int:
    """Return the most values that a JSON text may have, counted before anything is made of it.

    `has_tensors`: any number of values is allowed; 0 is returned.

    Raises: TooMuch where it has more than `NAMES_MAX` names or objects, or `VALUES_MAX` values.
    """
    raw = bytes(text)
    if raw.count(b'":') - raw.count(rb"\":") > NAMES_MAX:  # names, but for strings that begin with a colon
        raise TooMuch(f"has more than {NAMES_MAX} names")
    counted = _counts(_steps(raw), has_tensors)
    if _too_many(counted):
        counted = _counts(_outside_strings(raw), has_tensors)
    if what := _too_many(counted):
        raise TooMuch(f"has more than {what}")
    return counted[2]


def _raw(text: Text | str) -> bytes:
    return text.encode("utf-8", "surrogatepass") if isinstance(text, str) else bytes(text)


def _counts(pieces: Iterable[bytes], has_tensors: bool) -> tuple[int, int, int]:
    """Return the number of names, objects and values, up to a bound; more where strings hold what separates these."""
    names = objects = values = 0
    for piece in pieces:
        names += piece.count(b":")
        objects += piece.count(b"{")
        if not has_tensors:
            values += piece.count(b",") + piece.count(b"[") + piece.count(b"{")
        if _too_many((names, objects, values)):
            break
    return names, objects, values


def _too_many(counted: tuple[int, int, int]) -> str:
    """Return the bound that is passed, in words; empty: none is."""
    bounds = {"names": NAMES_MAX, "objects": NAMES_MAX, "values": VALUES_MAX}
    found = zip(bounds.items(), counted, strict=True)
    return next((f"{bound} {what}" for (what, bound), count in found if count > bound), "")


def _steps(text: Text) -> Iterator[bytes]:
    return (bytes(text[at : at + _STEP_BYTES]) for at in range(0, len(text), _STEP_BYTES))


def _outside_strings(text: Text) -> Iterator[bytes]:
    """Yield what stands outside of strings, in steps."""
    quotes, rest = 0, b""
    for step in _steps(text):
        step = rest + step
        rest = b"\\" if (len(step) - len(step.rstrip(b"\\"))) % 2 else b""  # an escape stays in one step
        plain = np.frombuffer(step[: len(step) - len(rest)].replace(rb"\\", b"").replace(rb"\"", b""), np.uint8)
        so_far = quotes + np.cumsum(plain == _QUOTE, dtype=np.int32)
        quotes = int(so_far[-1]) & 1 if len(so_far) else quotes
        yield plain[so_far & 1 == 0].tobytes()


def _check_depth(text: bytes) -> None:
    """Raises: TooMuch where lists and objects are nested deeper than `DEPTH_MAX`."""
    if text.count(b"[") + text.count(b"{") <= DEPTH_MAX:
        return
    depth = 0
    for piece in _outside_strings(text):
        levels = depth + np.cumsum(_LEVELS[np.frombuffer(piece, np.uint8)], dtype=np.int32)
        if len(levels) and levels.max() > DEPTH_MAX:
            raise TooMuch(f"nested deeper than {DEPTH_MAX} levels")
        depth = int(levels[-1]) if len(levels) else depth


def _most_names(value: Any) -> int:
    """Return the number of names of the largest object."""
    most, level = 0, [value]
    while level:
        most = max(most, *(len(one) for one in level if isinstance(one, dict)), 0)
        level = [part for outer in level for part in _parts(outer)]
    return most


def _parts(value: Any) -> Iterable[Any]:
    """What stands one level deeper."""
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()
