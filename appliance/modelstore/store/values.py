"""Domain values and the rows that hold them: a field and its column have one name, and an enum is stored by its value.

For the tables and for the quick start, which has to do without SQLAlchemy.
"""

from dataclasses import fields
from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import Any, TypeVar, get_args, get_type_hints

Value = TypeVar("Value")


@cache
def types_of(kind: type) -> dict[str, Any]:
    """Return the type of each field of a dataclass, without the None of one that may be missing."""
    hints = get_type_hints(kind)
    return {one.name: _present(hints[one.name]) for one in fields(kind)}


def enum_of(hint: Any) -> type[Enum] | None:
    """Return the type of a field where it is an enum."""
    return hint if isinstance(hint, type) and issubclass(hint, Enum) else None


def value_of(kind: type[Value], row: object, **others: object) -> Value:
    """Return the value that a row holds; `others`: fields that are no columns of the same name."""
    found = dict(others)
    for name, enum in _enums(kind):  # type: ignore[arg-type]  # mypy doubts that a generic class is hashable
        if name not in others:
            column = getattr(row, name)
            found[name] = column if enum is None else enum(column)
    return kind(**found)


def columns_of(value: Any, *but: str) -> dict[str, Any]:
    """Return a value's columns by name, without those of the fields in `but`."""
    held = {one.name: getattr(value, one.name) for one in fields(value) if one.name not in but}
    return {name: one.value if isinstance(one, Enum) else one for name, one in held.items()}


@cache
def _enums(kind: type) -> tuple[tuple[str, type[Enum] | None], ...]:
    return tuple((name, enum_of(hint)) for name, hint in types_of(kind).items())


def _present(hint: Any) -> Any:
    if not isinstance(hint, UnionType):
        return hint
    present = [one for one in get_args(hint) if one is not NoneType]
    return present[0] if len(present) == 1 else hint
