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


def read(text: bytes | bytearray | memoryview | str) -> Any:
    """The value of a JSON text.

    Raises: json.JSONDecodeError, also where values are nested deeper than `DEPTH_MAX`.
    """
    value = orjson.loads(text)
    if _depth_exceeds(value, DEPTH_MAX):
        raise json.JSONDecodeError(f"nested deeper than {DEPTH_MAX} levels", "", 0)
    return value


def _depth_exceeds(value: Any, depth_max: int) -> bool:
    """Level by level: recursion would fail on the very values that are looked for."""
    level = [value]
    for _ in range(depth_max + 1):
        level = [part for outer in level for part in _parts(outer)]
        if not level:
            return False
    return True


def _parts(value: Any) -> Iterable[Any]:
    """What stands one level deeper."""
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()
