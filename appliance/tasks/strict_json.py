"""JSON from outside, read strictly: RFC 8259 and nothing beside it.

What the standard library lets through and other programs cannot hold is refused where it enters: half a surrogate pair,
bytes that are no UTF-8, NaN and numbers beyond a double, and lists in lists without end, which overflow the stack of
whoever walks or prints them.
"""

import json
from collections.abc import Iterable
from typing import Any

import orjson

DEPTH_MAX = 64


def read(text: bytes | bytearray | memoryview | str, names_max: int | None = None) -> Any:
    """The value of a JSON text.

    Raises: json.JSONDecodeError, also where values are nested deeper than `DEPTH_MAX` or an object has more than
    `names_max` names.
    """
    value = orjson.loads(text)
    if fault := _fault(value, names_max):
        raise json.JSONDecodeError(fault, "", 0)
    return value


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
