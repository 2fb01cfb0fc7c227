"""JSON from outside, read strictly: RFC 8259 and nothing beside it.

What the standard library lets through and other programs cannot hold is refused where it enters: half a surrogate pair,
bytes that are no UTF-8, NaN and numbers beyond a double, and lists in lists without end, which overflow the stack of
whoever walks or prints them.
"""

import json
import re
from collections.abc import Iterable
from typing import Any

import orjson

DEPTH_MAX = 64


VALUES_MAX = 100_000
"""Of a text from a caller that does not carry tensors. Each takes a hundred bytes, and may be two in the text."""
VALUE_BYTES = 100
_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_BEFORE_VALUES = (b",", b"[", b"{")


def read(
    text: bytes | bytearray | memoryview | str, values_max: int | None = None, names_max: int | None = None
) -> Any:
    """The value of a JSON text.

    Raises: json.JSONDecodeError, also where values are nested deeper than `DEPTH_MAX`, are more than `values_max`, or
    where an object has more than `names_max` names.
    """
    if values_max is not None and values_in(text, values_max) > values_max:
        raise json.JSONDecodeError(f"has more than {values_max} values", "", 0)
    value = orjson.loads(text)
    if fault := _fault(value, names_max):
        raise json.JSONDecodeError(fault, "", 0)
    return value


def values_in(text: bytes | bytearray | memoryview | str, exact_above: int = 0) -> int:
    """How many values a JSON text has at most, counted before it is read; without what stands in strings where there
    are more than `exact_above` of them with that.
    """
    raw = text.encode(errors="replace") if isinstance(text, str) else bytes(text)
    count = sum(map(raw.count, _BEFORE_VALUES))
    return sum(map(_STRING.sub(b"", raw).count, _BEFORE_VALUES)) if count > exact_above else count


def _fault(value: Any, names_max: int | None) -> str:
    """What is too deep or too wide; empty where nothing is. Level by level: recursion would fail on the very values
    that are looked for.
    """
    level = [value]
    for _ in range(DEPTH_MAX + 1):
        if names_max is not None and any(isinstance(one, dict) and len(one) > names_max for one in level):
            return f"an object has more than {names_max} names"
        level = [part for outer in level for part in _parts(outer)]
        if not level:
            return ""
    return f"nested deeper than {DEPTH_MAX} levels"


def _parts(value: Any) -> Iterable[Any]:
    """What stands one level deeper."""
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()
